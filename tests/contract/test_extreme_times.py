"""Times at both ends of the calendar: what tasks make of them can be read, or its record is an error."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.dataflows.dspbench.operators import SliceMeans, SlidingTotals, TopK, WeightedAverage
from riot_ops.task import registered_tasks
from tests.search import stride
from tests.simulated_query import SimulatedQuery

KINDS = [
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns", "UTC"),
    pa.timestamp("ns"), pa.timestamp("ms", "UTC"), pa.timestamp("s"),
]  # fmt: skip
READINGS = pa.RecordBatch.from_pydict(
    {
        "seq": pa.array([0, 1]),
        "event_time": pa.array([0, 0], pa.timestamp("us", "UTC")),
        "key": ["a", "b"],
        "value": [1.0, 2.0],
    }
)
WEEKS = [
    t.Window(frame="7d"),
    t.Window(frame=w.Hopping("21d", "7d"), by="key", emit="each"),
    t.Window(frame=w.Session("7d"), by="key", allowed_lateness="1d"),
    t.Window(frame="7d", max_ahead="30d"),
    t.Compute({"week": "floor_time(event_time, '7d')"}),
    t.Compute({"event_time": "floor_time(event_time, '3650d')"}),
    TopK(item="key", value="value", every="7d"),
    SliceMeans(length="7d", every="1d", period="7d"),
    SlidingTotals(totals={"n": None}, every="7d"),
    t.SortByEventTime(allowed_lateness="7d"),
    t.SortByEventTime(allowed_lateness="7d", scope="key", by="key"),
    WeightedAverage(value="value", weight="value", calendar="month", start="start"),
    WeightedAverage(value="value", weight="value", window=2, start="start"),
    t.Deduplicate(by="key", ttl="7d"),
    t.KalmanFilter(by="key", ttl="10000d"),
]
PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def writes_times(task, schema):
    """Whether some output has a time that is not one of the input."""
    try:
        made = task.output_schema(schema)
    except ConfigError:
        return False
    written = task.writes()
    return getattr(task, "clock", lambda: None)() is not None or any(
        pa.types.is_timestamp(f.type) and (written is None or f.name in written) for f in made
    )


def timed_cases():
    for kind in registered_tasks():
        for case in kind.cases():
            place = case.batch.schema.get_field_index("event_time")
            timed = place >= 0 and pa.types.is_timestamp(case.batch.schema.field(place).type)
            if timed and writes_times(case.task, case.batch.schema):
                yield pytest.param(case.task, case.batch, id=f"{kind.name()}-{case.name}")
    for i, task in enumerate(WEEKS):
        yield pytest.param(task, READINGS, id=f"{task.name()}-weeks-{i}")


def each_kind():
    """Pair each case with each kind of time, or in ``make test`` with every third, another one for each case."""
    for i, case in enumerate(timed_cases()):
        for kind in KINDS[i % stride(3) :: stride(3)]:
            yield pytest.param(*case.values, kind, id=f"{case.id}-{kind}")


def extreme(batch, kind, first):
    """Return rows with times at the ends of the range of a type; ``first`` selects the end that is first."""
    if kind.unit == "ns":
        low, high = -(2**63) + 1, 2**63 - 1
        steps = [0, 1, 10**9, 86_400 * 10**9]
    else:
        low, high = -(-EARLIEST // PER_UNIT[kind.unit]), LATEST // PER_UNIT[kind.unit]
        steps = [0, 1, *(n * 1_000_000 // PER_UNIT[kind.unit] for n in (1, 60, 86_400, 8 * 86_400))]
    lows, highs = [low + n for n in steps], [high - n for n in steps]
    times = {"low": [*lows, 0, *highs[::-1]], "high": [*highs, 0, *lows], "both": [*lows[::-1], *highs]}[first]
    rows = np.arange(len(times)) % batch.num_rows
    batch = batch.take(pa.array(rows))
    if "seq" in batch.schema.names:
        batch = batch.set_column(batch.schema.get_field_index("seq"), "seq", pa.array(range(len(times)), pa.int64()))
    return batch.set_column(batch.schema.get_field_index("event_time"), "event_time", pa.array(times, kind))


@pytest.mark.long
@pytest.mark.parametrize(("task", "batch", "kind"), [*each_kind()])
def test_times_computed_from_extreme_times_are_readable(task, batch, kind):
    for first in ("low", "high", "both"):
        given = extreme(batch, kind, first)
        try:
            task.output_schema(given.schema)
        except ConfigError:  # a task of whole microseconds
            return
        flow = ro.Dataflow("extreme")
        made = flow.source("in", schema=given.schema).to(task, id="made")
        flow.sink("out", made, made.to(ro.map(lambda row: row), id="mapped"))
        table = pa.Table.from_batches([given])
        results = [flow.run(table, batch_size=1 if first == "high" else None)]
        results += [SimulatedQuery(flow, table, random.Random(1))] if first == "both" else []
        for result in results:
            for stream in ("made", "mapped"):
                for row in result[stream].to_pylist():
                    assert repr(row)  # datetimes, which raise where they are out of range
                    if "window_end" in row and (row["event_time"] is not None):
                        assert row["window_start"] <= row["window_end"]
            assert {e["task"] for e in result["errors"].to_pylist()} <= {"in", "made"}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "task", [t.Window(frame="7d"), t.Window(frame=w.Session("7d")), t.Window(frame="10d", max_ahead="20d")]
)
def test_each_record_at_the_ends_of_time_is_counted_or_an_error(task, kind):
    for first in ("low", "high", "both"):
        given = pa.Table.from_batches([extreme(READINGS, kind, first)])
        flow = ro.Dataflow("counted")
        flow.sink("out", flow.source("in", schema=given.schema).to(task, id="counts"))
        result = flow.run(given)
        counted, reasons = sum(result["counts"]["count"].to_pylist()), result["errors"]["reason"].to_pylist()
        assert counted + len(reasons) == given.num_rows
        assert set(reasons) <= {"out_of_range", "late", "from_the_future"}


def test_first_time_of_each_reason():
    """By hand: the last whole week of the calendar ends on Thursday, 9999-12-30; the first begins on 0001-01-04."""
    session = t.Window(frame="7d").session()
    for day, month, year, reason in (
        (3, 1, 1, "out_of_range"), (4, 1, 1, None), (29, 12, 9999, None), (30, 12, 9999, "out_of_range"),
    ):  # fmt: skip
        session.push({"event_time": datetime(year, month, day, tzinfo=UTC)})
        assert [e["reason"] for e in session.errors] == ([] if reason is None else [reason]), (day, month, year)
        session.errors.clear()
    floor = t.Compute({"week": "floor_time(event_time, '7d')"}).session()
    assert floor.push({"event_time": datetime(1, 1, 3, tzinfo=UTC)}) == []
    assert [e["reason"] for e in floor.errors] == ["out_of_range"]
    assert floor.push({"event_time": datetime(1, 1, 4, tzinfo=UTC)})[0]["week"] == datetime(1, 1, 4, tzinfo=UTC)
