"""Functions that return any number of records for each record."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks.functions.flat_map_function import flat_map
from tests.reference.splits import run

FILE = Path(__file__).name


def test_results_are_numbered_in_a_further_ordinal():
    now = datetime(2020, 1, 1, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([7], pa.int64()),
            "event_time": pa.array([now], TIMESTAMP),
            "ordinal": pa.array([2], pa.int64()),
            "value": [1.5],
        }
    )
    task = flat_map(lambda row: ({"value": v} for v in (1.0, 2.0)))
    assert run(task, batch)[0] == [
        {"seq": 7, "event_time": now, "ordinal": 2, "ordinal_2": i, "value": v} for i, v in enumerate((1.0, 2.0))
    ]
    assert run(flat_map(lambda row: None), batch)[0] == []


def test_record_may_have_thousands_of_results():
    session = flat_map(lambda row: [row] * row["n"]).session()
    assert [row["ordinal"] for row in session.push({"n": 5000})] == list(range(5000))


def test_late_failure_of_a_generator_gives_no_results():
    def fn(row):
        yield {"value": 1.0}
        raise KeyError("late")

    session = flat_map(fn).session()
    assert session.push({"value": 0.0}) == []
    line = fn.__code__.co_firstlineno + 2
    assert session.errors[0]["message"] == f"KeyError: 'late' ({FILE}, line {line}, in fn)"
