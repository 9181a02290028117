"""Timing micro-batches by Spark's progress, and failing queries. Fake queries stand in for Spark's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness import micro_batches as sparks
from riot_bench.harness.micro_batches import durations, intervals, micro_batches, rate_of, timed_query

from riot_ops.core.errors import RiotError


def scripted_query(*batches: tuple[float, float, int]) -> Any:
    """A query with micro-batches: start (s), duration (s) and rows of each."""
    return SimpleNamespace(
        recentProgress=[
            {
                "batchId": number,
                "timestamp": datetime.fromtimestamp(begun, UTC).isoformat(),
                "durationMs": {"triggerExecution": 1000 * seconds},
                "numInputRows": rows,
            }
            for number, (begun, seconds, rows) in enumerate(batches)
        ]
    )


def test_trigger_wait_counts_in_intervals_but_not_in_durations() -> None:
    query = scripted_query((100.0, 0.2, 5), (100.5, 0.1, 5), (101.0, 0.75, 5), (101.75, 0.25, 5), (102.0, 0.1, 0))
    assert durations(query) == [0.2, 0.1, 0.75, 0.25]
    assert micro_batches(query)[1] == (100.5, 0.1)
    assert intervals(query, 4) == pytest.approx([0.4, 1.15, 0.25])
    assert intervals(query, 2) == pytest.approx([0.4])
    assert intervals(query, 1) == []


class Frame:
    """A streaming DataFrame whose query fails; it is its own writer."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.writeStream = self

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: self

    def awaitTermination(self, _: float | None = None) -> bool:  # noqa: N802
        raise self.error


def test_failed_query_is_reported_with_its_reason(tmp_path: Path) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for error, message in (
        (PySparkException("Job aborted.\n\tat org.apache"), "a query in plain PySpark failed: Job aborted."),
        (
            Py4JError("Answer from Java side is empty"),
            "a query in plain PySpark failed: Answer from Java side is empty",
        ),
    ):
        with pytest.raises(RiotError) as failed:
            timed_query(Frame(error), tmp_path / "checkpoint", limit_s=5.0)
        assert str(failed.value) == message
    with pytest.raises(KeyError):
        timed_query(Frame(KeyError("ours")), tmp_path / "checkpoint", limit_s=5.0)


def test_stopped_query_has_a_caveat() -> None:
    assert rate_of(([7.0, 2.0, 1.0], None), 10, 60.0) == (7.5, "", False)
    assert rate_of(([4.0], 60.0), 10, 60.0) == (2.5, "; the first micro-batch only", False)
    assert rate_of(([], 20.0), 10, 60.0) == (0.5, "; none finished within 60 s", True)
    assert rate_of(([], None), 60, 60.0).value == 1.0


def test_query_is_observed_until_its_last_micro_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last micro-batch ends between two looks."""
    seen: list[int] = []
    left = [True, False]
    query = SimpleNamespace(lastProgress={"batchId": 0}, recentProgress=[])

    def ended(_: float) -> bool:
        if left.pop():
            query.lastProgress = {"batchId": 3}
            return True
        return False

    class Writer:
        def __getattr__(self, _: str) -> Any:
            return lambda *_, **__: self

        def start(self) -> Any:
            return query

    query.awaitTermination = ended

    def watch(of: Any) -> None:
        seen.append(sparks.completed_batches(of))

    sparks.timed_query(SimpleNamespace(writeStream=Writer()), tmp_path, watch=watch)
    assert seen == [1, 4]
