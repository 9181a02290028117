"""Quantiles of windows equal those of NumPy and pandas."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.tasks.window.windowing.sample import MAX_VALUES, Sample, quantiles
from tests.simulated_query import SimulatedQuery

TIME = pa.timestamp("us", "UTC")
QS = (0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
AGGREGATES = {f"q{i}": ("value", "quantile", q) for i, q in enumerate(QS)}
ROOM = pa.schema([("event_time", TIME), ("key", pa.int64()), ("value", pa.float64())])


def dataflow(**parameters):
    flow = ro.Dataflow("f")
    rows = flow.source("in", schema=ROOM)
    flow.sink("out", rows.to(t.Window(by="key", aggregates=AGGREGATES, **parameters), id="w"))
    return flow


def readings(seed, n, keys=3, span_s=300):
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(20, 5, n), rng.integers(0, 4))  # with ties
    values[rng.random(n) < 0.05] = np.nan
    times = np.sort(rng.integers(0, span_s * 1_000_000, n))
    return pa.table(
        {
            "event_time": pa.array(1_714_564_800_000_000 + times, TIME),
            "key": rng.integers(0, keys, n),
            "value": pa.array(values, from_pandas=True),
        }
    )


def by_pandas(table, size_s, every_s):
    """Quantiles per key and window, as pandas has them."""
    frame = table.to_pandas()
    frame["s"] = frame["event_time"].astype("int64") / (1e9 if frame["event_time"].dt.unit == "ns" else 1e6)
    out = {}
    first = int(frame["s"].min() // every_s * every_s) - size_s
    for start in range(first, int(frame["s"].max()) + 1, every_s):
        part = frame[(frame["s"] >= start) & (frame["s"] < start + size_s)]
        for key, group in part.groupby("key"):
            out[(key, start)] = group["value"].quantile(list(QS)).tolist()
    return out


def found(table):
    rows = table.to_pylist()
    return {(r["key"], int(r["window_start"].timestamp())): [r[name] for name in AGGREGATES] for r in rows}


def assert_equal(got, wanted):
    assert got.keys() == wanted.keys()
    for place, values in wanted.items():
        assert [np.nan if v is None else v for v in got[place]] == pytest.approx(values, rel=1e-14, nan_ok=True)


def test_small_windows_by_hand():
    def median_and_95(values):
        session = t.Window(frame=len(values), aggregates={"m": ("v", "quantile", 0.5), "p": ("v", "quantile", 0.95)})
        (row,) = session.session().push_many({"v": v} for v in values)
        return row["m"], row["p"]

    assert median_and_95([1.0, 3.0]) == (2.0, 2.9)
    assert median_and_95([5.0]) == (5.0, 5.0)
    assert median_and_95([0.0, -0.0, 1.0]) == (0.0, pytest.approx(0.9))
    assert median_and_95([0.1] * 7) == (0.1, 0.1)
    assert median_and_95([float(i) for i in range(17)]) == (8.0, 15.2)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=60), st.sampled_from(QS))
def test_quantile_equals_numpy_to_the_last_bit(values, q):
    one = Sample()
    one.add(np.array(values))
    assert quantiles([one], q)[0] == np.quantile(np.array(values) + 0.0, q)


def test_samples_of_any_size_equal_numpy():
    rng = np.random.default_rng(5)
    sizes = [1, 2, 3, 4, 5, 17, 100, 1_000, 4_096, 50_000, MAX_VALUES]
    parts = [rng.lognormal(0, 2, n) for n in sizes]
    samples = []
    for part in parts:
        one = Sample()
        for piece in np.array_split(part, 3):
            one.add(piece)
        samples.append(one)
    for q in QS:
        assert quantiles([None, *samples], q).tolist()[1:] == [np.quantile(part, q) for part in parts]


@pytest.mark.parametrize(("frame", "size", "every"), [("1min", 60, 60), (w.Hopping("2min", "30s"), 120, 30)])
@pytest.mark.parametrize("n", [5, 60, 2_000])
def test_windows_equal_pandas(n, frame, size, every):
    table = readings(n, n)
    assert_equal(found(dataflow(frame=frame).run(table)["w"]), by_pandas(table, size, every))


@pytest.mark.parametrize("max_records", [1, 9, 40])
def test_micro_batches_give_the_same_quantiles(max_records):
    flow, table = dataflow(frame=w.Hopping("1min", "20s")), readings(1, 120)
    out = SimulatedQuery(flow, table, random.Random(2), max_records=max_records)["w"]
    assert found(out) == found(flow.run(table)["w"])


@pytest.mark.parametrize("emit", ["final", "each"])
def test_count_and_session_windows_equal_pandas(emit):
    values = readings(3, 40, keys=1)["value"].to_pylist()
    windows = t.Window(frame=40, emit=emit, aggregates={"m": ("value", "quantile", 0.3)}).session()
    rows = windows.push_many({"value": v} for v in values)
    wanted = [pd.Series(values[: i + 1], dtype=float).quantile(0.3) for i in range(40)]
    wanted = wanted if emit == "each" else wanted[-1:]
    assert [r["m"] for r in rows] == pytest.approx([None if np.isnan(one) else one for one in wanted], rel=1e-14)


def test_window_beyond_the_limit_is_within_a_percent_for_any_split(monkeypatch):
    monkeypatch.setattr("riot_ops.tasks.window.windowing.sample.MAX_VALUES", 500)
    rng = np.random.default_rng(6)
    values = np.concatenate([rng.lognormal(0, 3, 700), -rng.lognormal(0, 2, 300), [0.0, 5e-324, 1.7e308, -1.7e308]])
    rng.shuffle(values)
    exact = np.sort(values)
    whole = Sample()
    whole.add(values)
    for pieces in (2, 5, 1000):
        one = Sample()
        for i, piece in enumerate(np.array_split(values, pieces)):
            if i % 2:
                one.add(piece)
            else:
                other = Sample()
                other.add(piece)
                one.merge(other)
        assert one.pack() == whole.pack()
        assert one.values is None
        for q in QS:
            wanted = exact[int(q * (values.size - 1))]
            assert quantiles([one], q)[0] == pytest.approx(wanted, rel=0.01)
    small = Sample()
    small.add(values[:500])
    assert quantiles([small], 0.5)[0] == np.quantile(values[:500], 0.5)


@pytest.mark.parametrize("accuracy", [None, 0.05])
def test_packed_sample_roundtrip(accuracy):
    one = Sample(accuracy)
    one.add(np.array([3.0, -1.0, 0.0, 2.5]))
    data = one.pack()
    import msgspec

    again = Sample.unpack(accuracy, msgspec.json.decode(msgspec.json.encode(data)))
    assert again.pack() == data
    assert quantiles([again], 0.4) == quantiles([one], 0.4)
    one.add(np.array([7.0]))
    again.add(np.array([7.0]))
    assert again.pack() == one.pack()


@pytest.mark.spark
def test_spark_equals_pandas(spark, tmp_path):
    table = readings(8, 300)
    query = dataflow(frame="1min").start(spark, table, out=tmp_path / "out", checkpoint=tmp_path / "c", max_records=90)
    query.wait(timeout="4min")
    assert_equal(found(query["w"]), by_pandas(table, 60, 60))
