"""The suite stats."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tests.city_files import FILES, MESSAGES
from riot_ops.core.errors import RiotError


@pytest.mark.parametrize("theirs", [{"avg": 1}, None], ids=["differ", "agree"])
def test_counting_is_measured_after_a_comparison(
    city: Path, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, int] | None
) -> None:
    from riot_bench.baselines.python import stats as stats_python
    from riot_bench.suites.stats import suite as stats

    monkeypatch.setattr(stats, "MESSAGES_PER_FILE", MESSAGES // FILES)
    if theirs is not None:
        monkeypatch.setattr(stats_python, "stats", lambda files: theirs)
        with pytest.raises(RiotError, match=r"differ in the number of records: .*\{'avg': 1\}"):
            list(stats._count_only(city, MESSAGES // FILES, MESSAGES, 1))
        return
    found = {m.measure: m for m in stats._count_only(city, MESSAGES // FILES, MESSAGES, 1)}
    assert all(m.value > 0 for m in found.values())
    reaches = {name: m.reach for name, m in found.items() if m.unit == "ratio"}
    assert reaches == {"stats/local-all-cores-vs-one": 1.6, "stats/count-only-vs-plain-python": 12}
