"""Aggregates keep values of every type exactly, or refuse the type; compared with Python's own arithmetic."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from tests.simulated_query import SimulatedQuery

NOON_US = 1_714_564_800_000_000
TIME = pa.timestamp("us", "UTC")
#: Extended unique identifiers of devices, which differ in the last byte.
IDS = [0x70B3D57ED0046F00 + i for i in range(20)]
VALUES = {name: ("v", name) for name in ("min", "max", "first", "last")}
COUNTS = {"unique": ("v", "unique"), "distinct": ("v", "distinct", 14)}
NUMBERS = [
    (pa.int64(), [*IDS, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, IDS[3], IDS[3]]),
    (pa.uint64(), [2**63 + 1, 2**63, 2**64 - 1, 2**64 - 2, 2**53 + 1, 2**63 + 1]),
    (pa.int32(), [2**31 - 1, -(2**31), 0, 7]),
    (pa.bool_(), [True, False, True]),
]
TIMES = [
    (pa.timestamp("ns", "UTC"), [1_714_564_800_123_456_789 + i for i in (0, 2, 1, 1)]),
    (pa.timestamp("us"), [2**57 + 1, 2**57, 2**57 + 3]),
    (pa.date32(), [19_000, 18_999, 19_001]),
    (pa.time64("ns"), [80_000_000_000_001, 80_000_000_000_000]),
    (pa.duration("ns"), [2**60 + 1, -(2**60) - 1]),
]


def column_of(dtype, numbers):
    if not pa.types.is_temporal(dtype):
        return pa.array(numbers, dtype)
    return pa.array(numbers, pa.int32() if dtype.bit_width == 32 else pa.int64()).cast(dtype)


def numbers_of(column):
    dtype = column.type
    if pa.types.is_temporal(dtype):
        column = column.cast(pa.int32() if dtype.bit_width == 32 else pa.int64())
    return column.to_pylist()


def dataflow(dtype, **parameters):
    flow = ro.Dataflow("f")
    rows = flow.source("r", schema=pa.schema([("event_time", TIME), ("v", dtype)]))
    flow.sink("o", rows.to(t.Window(**parameters), id="w"))
    return flow


def records(column, at=lambda i: NOON_US + i):
    return pa.table({"event_time": pa.array([at(i) for i in range(len(column))], TIME), "v": column})


def of(numbers):
    return {"min": min(numbers), "max": max(numbers), "first": numbers[0], "last": numbers[-1]}


FRAMES = [
    {"frame": "1min"},
    {"frame": w.Hopping("2min", "1min")},
    {"frame": w.Session("1min")},
    {"frame": w.Count(100, partial=True)},
    {"frame": "1min", "emit": "each"},
]


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize(("dtype", "numbers"), NUMBERS + TIMES, ids=lambda one: str(one)[:16])
def test_values_keep_type_and_digits(dtype, numbers, frame):
    out = dataflow(dtype, aggregates=VALUES | COUNTS, **frame).run(records(column_of(dtype, numbers)))["w"]
    last = out.slice(out.num_rows - 1)
    assert {last.schema.field(name).type for name in VALUES} == {dtype}
    assert {name: numbers_of(last[name])[0] for name in VALUES} == of(numbers)
    assert last["unique"].to_pylist() == [len(set(numbers))]
    assert abs(last["distinct"].to_pylist()[0] - len(set(numbers))) <= 1


@pytest.mark.parametrize("max_records", [1, 2, 7])
@pytest.mark.parametrize(("dtype", "numbers"), [*NUMBERS[:2], TIMES[0]], ids=lambda one: str(one)[:16])
def test_micro_batches_keep_digits(dtype, numbers, max_records):
    aggregates = VALUES | COUNTS | ({} if dtype in [d for d, _ in TIMES] else {"sum": ("v", "sum")})
    flow = dataflow(dtype, frame="1min", aggregates=aggregates)
    table = records(column_of(dtype, numbers))
    out = SimulatedQuery(flow, table, random.Random(max_records), max_records=max_records)["w"]
    assert out.schema.field("max").type == dtype
    assert {name: numbers_of(out[name])[0] for name in VALUES} == of(numbers)
    assert out.select(list(aggregates)).equals(flow.run(table)["w"].select(list(aggregates)))


@pytest.mark.parametrize(("dtype", "numbers"), NUMBERS, ids=lambda one: str(one)[:16])
def test_sums_of_integers_are_exact_or_null(dtype, numbers):
    for n in range(1, len(numbers) + 1):
        total = sum(numbers[:n])
        low, high = (0, 2**64) if dtype == pa.uint64() else (-(2**63), 2**63)
        out = dataflow(
            dtype, frame=w.Hopping("1min", "20s"), aggregates={"sum": ("v", "sum"), "mean": ("v", "mean")}
        ).run(records(column_of(dtype, numbers[:n]), lambda i: NOON_US + 40_000_000 * (i % 2)))["w"]
        whole = [row for row in out.to_pylist() if row["window_start"] == datetime(2024, 5, 1, 12, tzinfo=UTC)]
        assert whole[0]["sum"] == (total if low <= total < high else None)
        assert out.schema.field("sum").type == (pa.uint64() if dtype == pa.uint64() else pa.int64())
        assert whole[0]["mean"] == pytest.approx(fmean(map(float, numbers[:n])), rel=1e-12, abs=600)


@pytest.mark.parametrize("bound", [IDS[3], IDS[3] + 0.0, 2**53 + 1, 2**63, -(2**63), 2**70, -0.5, 0, 1])
@pytest.mark.parametrize(("dtype", "numbers"), NUMBERS, ids=lambda one: str(one)[:16])
def test_relations_compare_exactly(dtype, numbers, bound):
    wanted = {
        "==": [x == bound for x in numbers],
        "!=": [x != bound for x in numbers],
        "<": [x < bound for x in numbers],
        "<=": [x <= bound for x in numbers],
        ">": [x > bound for x in numbers],
        ">=": [x >= bound for x in numbers],
    }
    if isinstance(bound, int) and 0 < bound < 2**64:
        wanted["&"] = [x & bound != 0 for x in numbers]
    aggregates = {f"n{i}": ("v", "matches", relation, bound) for i, relation in enumerate(wanted)}
    aggregates |= {f"s{i}": ("v", "share", relation, bound) for i, relation in enumerate(wanted)}
    (row,) = (
        dataflow(dtype, frame="1min", aggregates=aggregates).run(records(column_of(dtype, numbers)))["w"].to_pylist()
    )
    for i, hits in enumerate(wanted.values()):
        assert (row[f"n{i}"], row[f"s{i}"]) == (sum(hits), sum(hits) / len(hits))


def test_bits_of_fractions_and_negative_numbers():
    (row,) = (
        dataflow(pa.float64(), frame="1min", aggregates={"n": ("v", "matches", "&", 2)})
        .run(records(pa.array([2.9, -2.5, 4.0, None, float("nan"), 2.0**64 + 2.0**13, -1.0])))["w"]
        .to_pylist()
    )
    assert row["n"] == 3  # 2, -2 and -1, in two's complement


def test_top_counts_integers_of_any_size():
    (row,) = (
        dataflow(pa.uint64(), frame="1min", aggregates={"top": ("v", "top", 2)})
        .run(records(pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1], pa.uint64())))["w"]
        .to_pylist()
    )
    assert row["top"] == [{"value": 2**64 - 1, "count": 2}, {"value": 2**64 - 2, "count": 1}]


def test_distinct_decimals_count_by_value():
    column = pa.array([Decimal("1.10"), Decimal("1.11"), Decimal("1.10"), None], pa.decimal128(38, 2))
    big = pa.array([Decimal(10**37 + i) for i in range(4)], pa.decimal128(38, 0))
    for values, n in ((column, 2), (big, 4)):
        (row,) = dataflow(values.type, frame="1min", aggregates=COUNTS).run(records(values))["w"].to_pylist()
        assert (row["unique"], row["distinct"]) == (n, n)


@pytest.mark.parametrize("function", ["sum", "fsum", "min", "max", "first", "last", "matches", "share", "top"])
def test_decimals_are_refused_by_field_and_type(function):
    options = {"matches": (">", 1), "share": (">", 1), "top": (1,)}.get(function, ())
    for dtype in (pa.decimal128(38, 2), pa.decimal256(60, 0)):
        with pytest.raises(ConfigError, match=r"'v'.*decimal"):
            dataflow(dtype, frame="1min", aggregates={"x": ("v", function, *options)}).run([])


@pytest.mark.parametrize("function", ["sum", "mean", "std", "matches", "share", "quantile"])
@pytest.mark.parametrize("dtype", [pa.timestamp("ns"), pa.date32(), pa.string()], ids=str)
def test_times_and_texts_are_refused_as_numbers(function, dtype):
    options = {"matches": (">", 1), "share": (">", 1), "quantile": (0.5,)}.get(function, ())
    with pytest.raises(ConfigError, match=rf"'v'.*{str(dtype).split('[')[0]}"):
        dataflow(dtype, frame="1min", aggregates={"x": ("v", function, *options)}).run([])


LARGEST = np.finfo(float).max
UGLY = st.none() | st.sampled_from([1e300, -1e300, 1e16, 1.0, -1.0, 0.1, -0.0, 5e-324, LARGEST, -LARGEST])


def exact_statistics(values):
    """Compute what ``fsum``, ``fmean``, ``count``, ``min`` and ``max`` of values are."""
    present = [v for v in values if v is not None]
    try:
        total = math.fsum(present)
    except OverflowError:
        total = None
    mean = None if total is None or not present else total / len(present)
    ends = min(present, default=None), max(present, default=None)
    return total if present else None, total, mean, len(present), *ends


@pytest.mark.parametrize("names", [["s", "z", "m"], ["s", "z", "m", "n", "low", "high"]], ids=["sums", "summaries"])
@given(st.lists(UGLY | st.integers(-(2**53), 2**53).map(float), min_size=1, max_size=12), st.integers(1, 5))
def test_exact_sums_equal_those_of_python(names, values, cut):
    every = dict(s=("v", "fsum"), z=("v", "fsum", 0), m=("v", "fmean"), n=("v", "count"), low=("v", "min"))
    every |= {"high": ("v", "max")}
    parts_of = {
        None: [values[: i + 1] for i in range(len(values))],
        w.Sliding(3): [values[max(i - 2, 0) : i + 1] for i in range(len(values))],
        w.Count(3): [values[i : i + 3] for i in range(0, len(values) - 2, 3)],
        w.Hopping("3s", "1s"): [values[max(i, 0) : i + 3] for i in range(-2, len(values))],
    }
    records = [{"event_time": datetime(2024, 5, 1, 12, 0, i, tzinfo=UTC), "v": v} for i, v in enumerate(values)]
    schema = pa.schema([("event_time", TIME), ("v", pa.float64())])
    for frame, parts in parts_of.items():
        session, found = t.Window(frame=frame, aggregates={name: every[name] for name in names}).session(), []
        for i in range(0, len(records), cut):
            found += session.push_batch(pa.RecordBatch.from_pylist(records[i : i + cut], schema)).to_pylist()
        found += session.flush()
        assert [tuple(row[name] for name in names) for row in found] == [
            exact_statistics(part)[: len(names)] for part in parts
        ], frame


def test_exact_sum_of_integers_is_rounded_once():
    ids = [2**62 + 1] * 3 + [-(2**62)] * 3
    session = t.Window(aggregates={"s": ("v", "fsum"), "m": ("v", "fmean")}).session()
    row = session.push_batch(pa.table({"v": ids})).to_pylist()[-1]
    assert (row["s"], row["m"]) == (3.0, 0.5)
    with pytest.raises(ConfigError, match="the sum of no values is None or 0, got 7"):
        t.Window(aggregates={"s": ("v", "fsum", 7)})


def test_field_with_two_aggregates_meets_the_requirements_of_both():
    both = {"mean": ("v", "mean"), "max": ("v", "max")}
    for dtype in (pa.decimal128(10, 2), pa.timestamp("us")):
        with pytest.raises(ConfigError, match="'v'"):
            dataflow(dtype, frame="1min", aggregates=both).run([])
    dataflow(pa.decimal128(10, 2), frame="1min", aggregates={"mean": ("v", "mean"), "n": ("v", "count")}).run([])


def test_session_keeps_the_type_of_its_values():
    def pushed(*values):
        session = t.Window(frame="1min", aggregates={"max": ("v", "max"), "first": ("v", "first")}).session()
        for value in values:
            session.push({"event_time": datetime(2024, 5, 1, 12, tzinfo=UTC), "v": value})
        (row,) = session.flush()
        return row["first"], row["max"]

    assert pushed(IDS[0], IDS[1], None) == (IDS[0], IDS[1])
    assert pushed(2**64 - 2, 2**64 - 1) == (2**64 - 2, 2**64 - 1)
    assert pushed(1, 2.5) == (1.0, 2.5)
    assert pushed(date(2024, 5, 2), date(2024, 5, 1), None) == (date(2024, 5, 2), date(2024, 5, 2))
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert pushed(noon, noon + timedelta(microseconds=1)) == (noon, noon + timedelta(microseconds=1))


@pytest.mark.spark
def test_spark_keeps_digits(spark, tmp_path):
    (dtype, numbers), (signed, ids), (ns, times) = NUMBERS[1], NUMBERS[0], TIMES[0]
    n = len(numbers)
    table = records(column_of(dtype, numbers))
    table = table.append_column("id", column_of(signed, ids[:n])).append_column("t", column_of(ns, (times * n)[:n]))
    flow = ro.Dataflow("f")
    rows = flow.source("r", schema=table.schema)
    aggregates = {f"{name}_{field}": (field, name) for name in (*VALUES, "unique") for field in ("v", "id", "t")}
    aggregates["sum"] = ("id", "sum")
    flow.sink("o", rows.to(t.Window(frame="1min", aggregates=aggregates), id="w"))
    query = flow.start(spark, table, out=tmp_path / "out", checkpoint=tmp_path / "c", max_records=2)
    query.wait(timeout="4min")
    wanted = flow.run(table)["w"].select(list(aggregates))
    assert query["w"].select(list(aggregates)).equals(wanted)
    assert wanted["sum"].to_pylist() == [None]
    assert numbers_of(wanted["max_v"]) == [max(numbers)]


@pytest.mark.spark
def test_dataframe_has_lossless_types(spark):
    seconds = pa.timestamp("s", "UTC")
    table = pa.table(
        {
            "event_time": pa.array([NOON_US + i for i in range(3)], TIME),
            "u": pa.array([Decimal(2**64 - i) for i in (3, 1, 2)], pa.decimal128(20, 0)),
            "t": pa.array([NOON_US + i for i in (1, 3, 2)], TIME),
            "s": pa.array([5, 7, 6], seconds),
            "id": pa.array(IDS[:3]),
        }
    )
    flow = ro.Dataflow("f")
    declared = {"u": pa.uint64(), "t": pa.timestamp("ns", "UTC"), "s": seconds, "id": pa.int64()}
    rows = flow.source("r", schema=pa.schema([("event_time", TIME), *declared.items()]))
    flow.sink("o", rows.to(t.Window(frame="1min", aggregates={name: (name, "max") for name in declared}), id="w"))
    out = flow.frames(spark.createDataFrame(table))["w"].select(list(declared)).toArrow()
    assert [str(kind) for kind in out.schema.types] == [
        "decimal128(20, 0)",
        "int64",
        "timestamp[us, tz=UTC]",
        "int64",
    ]
    assert out["u"].to_pylist() == [Decimal(2**64 - 1)]
    assert (out["t"].to_pylist(), out["id"].to_pylist()) == ([1000 * (NOON_US + 3)], [IDS[2]])
    assert out["s"].cast(pa.int64()).to_pylist() == [7_000_000]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.none() | st.floats(-1e3, 1e3)), min_size=1, max_size=20),
    st.integers(1, 7),
    st.sampled_from([w.Tumbling("20s"), w.Hopping("20s", every="10s"), w.Session("50s")]),
)
def test_lines_are_those_of_numpy(rows, cut, frame):
    rows = sorted(rows, key=lambda row: row[0])
    aggregates = {"slope": ("v", "slope"), "start": ("v", "intercept"), "middle": ("v", "median")}
    session, found = t.Window(frame=frame, aggregates=aggregates).session(), []
    for i in range(0, len(rows), cut):
        part = rows[i : i + cut]
        at = pa.array([s * 1_000_000 for s, _ in part], pa.timestamp("us", "UTC"))
        found += session.push_batch(
            pa.table({"event_time": at, "v": pa.array([v for _, v in part], pa.float64())})
        ).to_pylist()
    for row in [*found, *session.flush()]:
        start = row["window_start"].timestamp()
        window = [(s, v) for s, v in rows if v is not None and start <= s < row["window_end"].timestamp()]
        if len({s for s, _ in window}) < 2:
            assert (row["slope"], row["start"]) == (None, None)
        else:
            slope, level = np.polyfit([s for s, _ in window], [v for _, v in window], 1)
            assert row["slope"] == pytest.approx(slope, rel=1e-6, abs=1e-6)
            assert row["start"] == pytest.approx(level + slope * window[0][0], rel=1e-6, abs=1e-6)
        assert row["middle"] == (np.median([v for _, v in window]) if window else None)
