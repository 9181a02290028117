"""Memory of tasks by process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.riotbench import applications, micro
from riot_bench.suites.riotbench.task_memory import task_memory

from riot_ops.core.errors import RiotError


@pytest.mark.long
def test_earlier_memory_of_this_process_does_not_count() -> None:
    held = np.ones(1 << 26)  # 512 MiB
    found = task_memory("KAL", 1000.0, True)
    assert found.size and held.size
    assert 30 < np.median(found) < 400


def test_failed_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(RiotError, match="KAL at 1,000 messages/s ended with exit code 1"):
        task_memory("KAL", 1000.0, True)


@pytest.mark.parametrize(
    ("suite", "key", "given", "measured"),
    [
        (micro, "micro/spark", {"task": ("KAL",), "runner": "spark"}, "micro/spark/KAL/peak"),
        (
            applications,
            "app/spark",
            {"name": ("stats",), "stream": ("city",), "runner": "spark", "duration": 9.0},
            "app/spark/stats/city/peak",
        ),
    ],
)
def test_experiments_on_spark_have_names_of_their_own(
    suite: Any, key: str, given: dict[str, Any], measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def measures(quick: bool, **options: Any) -> Iterator[Measure]:
        asked.append(options)
        yield Measure(measured.replace("spark/", ""), 1.0, "messages/s")

    monkeypatch.setattr(suite, "measures", measures)
    [experiment] = [one for one in suite.EXPERIMENTS if one.key == key]
    [found] = experiment.measures(True)
    assert asked == [given]
    assert found.measure == measured
    [shown] = [figure for figure in experiment.figures if figure.points([found])]
    assert shown.key == "peak"
    assert not any(figure.points([found]) for one in suite.EXPERIMENTS[:1] for figure in one.figures)
