"""Rate before a failure, dip and recovery after it, computed by hand."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness.recovery import CommitHistory, count_lost_and_duplicated, read_commits

from riot_ops.core.errors import ConfigError


def test_rate_before_excludes_the_outage() -> None:
    # a commit a second; killed half a second after one, and the next is six seconds later
    run = CommitHistory((*map(float, range(11)), 16.0), (*(100 * i for i in range(11)), 1060))
    assert run.rate(5.5, 10.5) < 92, "the rate up to the failure itself has"
    assert run.rate_before(10.5, 5.0) == 100.0
    rising = CommitHistory((0.0, 4.0, 5.0, 9.0), (0, 40, 60, 300))
    assert [rising.rate_before(8.0, seconds) for seconds in (0.5, 1.0, 2.0, 5.0)] == [20.0, 20.0, 20.0, 12.0]
    assert rising.rate_before(4.0, 1.0) == 10.0 and math.isnan(rising.rate_before(3.0, 5.0))
    assert math.isnan(rising.dip(3.0, math.nan)) and math.isnan(rising.recovery_s(3.0, math.nan))


def test_recovery_needs_three_seconds_at_the_rate() -> None:
    # nothing from 10 to 12; then 300 in a second, 20 in the next, 100 in each from there on: 140 a second in the first 3
    times = (*map(float, range(11)), *map(float, range(12, 31)))
    counts = (*(100 * i for i in range(11)), 1000, 1300, 1320, *(1320 + 100 * i for i in range(1, 17)))
    run = CommitHistory(times, counts)
    assert run.rate(12.0, 15.0) == 140.0
    # the second from 13.9 on has 0.1 x 20 + 0.9 x 100 = 92, that from 14 on 100; half a second from 13.9 on 42 of 47.5
    assert run.recovery_s(10.0, 100.0) == pytest.approx(4.0)


def test_usual_variation_is_no_dip() -> None:
    # alternating 150 and 50 a second, before and after a failure at 20
    counts = [0]
    for i in range(40):
        counts.append(counts[-1] + (150, 50)[i % 2])
    run = CommitHistory(tuple(map(float, range(41))), tuple(counts))
    assert run.rate_before(20.0, 10.0) == 100.0
    assert run.recovery_s(20.0, 100.0) == 0.0 and run.dip(20.0, 100.0) == 0.5, (
        "the lowest rate is reported nevertheless"
    )
    # a start at 10 a second is not usual: the second from 10 on, of 50, is a dip
    late = CommitHistory((0.0, 4.0, *map(float, range(5, 11)), 11.0, *map(float, range(12, 20))),
                    (0, 40, *(40 + 100 * i for i in range(1, 7)), 690, *(690 + 100 * i for i in range(1, 9))))  # fmt: skip
    assert late.recovery_s(10.0, 100.0) == pytest.approx(1.0)


def steady(outage: float = 0.0, rate: float = 100.0) -> CommitHistory:
    """A commit each half second for ten seconds, then none for ``outage`` seconds, then the backlog, and so on."""
    times = [0.5 * i for i in range(1, 21)] + [10.0 + max(outage, 0.5) + 0.5 * i for i in range(21)]
    counts = [rate * t for t in times]
    return CommitHistory((0.0, *times), (0, *map(int, counts)))


def test_rates_between_commits() -> None:
    run = CommitHistory.of([(4.0, 30), (2.0, 10)], begun=0.0)
    assert [run.rate(a, b) for a, b in ((0.0, 2.0), (2.0, 4.0), (1.0, 3.0), (0.0, 4.0))] == [5.0, 15.0, 10.0, 10.0]
    assert list(run.series(0.0, 4.0, 2.0)) == [(0.0, 5.0), (2.0, 15.0)]
    assert CommitHistory.of([(-3.0, 7)], begun=0.0).times == (0.0, 0.0), "commits before the run count at its start"
    with pytest.raises(ConfigError, match="end must be after start"):
        run.rate(2.0, 2.0)


def test_no_failure_has_no_dip() -> None:
    run = steady()
    assert run.dip(10.0, 100.0) == pytest.approx(1.0) and run.recovery_s(10.0, 100.0) == 0.0


def test_outage_with_a_late_backlog() -> None:
    # nothing is committed from 10 to 16; then a commit of few records, and the others half a second later
    times = (*(0.5 * i for i in range(21)), 16.0, 16.5, *(16.5 + 0.5 * i for i in range(1, 20)))
    counts = (*(50 * i for i in range(21)), 1060, 1650, *(1650 + 50 * i for i in range(1, 20)))
    run = CommitHistory(times, counts)
    assert run.rate(5.0, 10.0) == 100.0
    assert run.dip(10.0, 100.0) == pytest.approx(0.1)
    assert 5.4 < run.recovery_s(10.0, 100.0) <= 6.0
    assert math.isnan(CommitHistory((0.0, 10.0, 40.0), (0, 1000, 2500)).recovery_s(10.0, 100.0))


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 1000)), min_size=1))
def test_series_counts_each_record_once(commits: list[tuple[float, int]]) -> None:
    run = CommitHistory.of(commits, begun=0.0)
    total = sum(rate for _, rate in run.series(0.0, 60.0, 0.5)) * 0.5
    assert total == pytest.approx(sum(n for _, n in commits), abs=1e-6)


def test_commits_are_read_from_result_files(tmp_path: Path) -> None:
    for name, seq in (("a", [0, 1, 2]), ("b", [2, 5]), (".c", [7])):
        pq.write_table(pa.table({"seq": seq}), tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", (100.0 + len(seq),) * 2)
    assert sorted(read_commits(tmp_path)) == [(102.0, 2), (103.0, 3)]
    (tmp_path / ".c.parquet").unlink()
    assert count_lost_and_duplicated([tmp_path], 6) == (2, 1)
    assert count_lost_and_duplicated([], 6) == (6, 0)


def test_dip_may_start_after_the_failure() -> None:
    # the rate holds for two seconds after the failure, since records in progress are still delivered
    times = (*map(float, range(13)), 18.0, 19.0, *map(float, range(20, 40)))
    counts = (*(100 * i for i in range(13)), 1260, 1900, *(2000 + 100 * i for i in range(20)))
    run = CommitHistory(times, counts)
    assert run.dip(10.0, 100.0) == pytest.approx(0.1)
    assert 7.0 < run.recovery_s(10.0, 100.0) <= 8.0
    later = CommitHistory((*map(float, range(41)), 60.0), (*(100 * i for i in range(41)), 4010))
    assert later.recovery_s(10.0, 100.0) == 0.0, "later events do not belong to the failure"
