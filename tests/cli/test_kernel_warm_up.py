"""What ``riot-ops warm`` compiles."""

from __future__ import annotations

import pytest

from riot_ops.cli import kernel_warm_up as warm
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.applications import APPLICATIONS
from riot_ops.task import registered_tasks


def test_every_task_stream_and_application_has_a_unit():
    assert {u.split()[1] for u in warm.UNITS if u.startswith("task ")} == {kind.code for kind in registered_tasks()}
    assert {u for u in warm.UNITS if u.startswith("stream ")} == {
        f"stream {s}" for s in ("city", "taxi", "fit", "grid")
    }
    alone = {one.code for one in APPLICATIONS.values() if one.suite != "riotbench"}
    assert {u.split()[1] for u in warm.UNITS if u.startswith("application ")} == {"stats", "etl"} | alone
    assert len(set(warm.UNITS)) == len(warm.UNITS)


def test_applications_have_units_of_their_own():
    assert warm.units_of(["stats"]) == ("application stats",)
    assert warm.units_of(["word_count", "WC", "fd"]) == ("application wc", "application fd")
    for name, message in (("pred", "NAME must be one of stats, etl, "), ("stast", "unknown application 'stast'")):
        with pytest.raises(ConfigError, match=message):
            warm.units_of([name])


@pytest.mark.long
def test_failed_units_are_reported(monkeypatch):
    monkeypatch.setattr(warm, "UNITS", ("task PI", "task NONE"))
    seen = []
    failed = warm.warm(1, lambda *args: seen.append(args), warm.UNITS)
    assert sorted((done, total) for done, total, _ in seen) == [(1, 2), (2, 2)]
    assert {unit for _, _, unit in seen} == {"task PI", "task NONE"}
    assert list(failed) == ["task NONE"]
    assert "unknown task 'NONE'" in failed["task NONE"]
