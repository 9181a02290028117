"""Running summaries, against plain Python."""

from __future__ import annotations

import math
import operator
import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.simulated_query import SimulatedQuery

values = st.none() | st.floats(-1e6, 1e6) | st.sampled_from([1e16, -1e16, 1e-9, 0.1, -0.0])
rows = st.lists(st.tuples(st.sampled_from("ab"), values), max_size=25)


def reference(rows):
    seen = {}
    for key, value in rows:
        its = seen.setdefault(key, [])
        if value is not None:
            its.append(value)
        total = math.fsum(its)
        some = (min(its), max(its), total, total / len(its)) if its else (None, None, 0.0, None)
        yield (key, len(its), *some)


def pushed(session, rows):
    batch = pa.RecordBatch.from_pydict({"k": [k for k, _ in rows], "v": pa.array([v for _, v in rows], pa.float64())})
    found = session.push_batch(batch)
    return list(zip(*(found[name].to_pylist() for name in ("k", "count", "min", "max", "sum", "mean")), strict=True))


@given(rows, st.integers(0, 25))
def test_statistics_equal_plain_python(rows, cut):
    session = t.RunningSummary(by=("k",), value="v").session()
    assert pushed(session, rows[:cut]) + pushed(session, rows[cut:]) == list(reference(rows))
    session = t.RunningSummary(by=("k",), value="v", emit="update").session()
    every = [(i, row) for i, row in enumerate(reference(rows))]
    for part in (every[:cut], every[cut:]):
        last = {row[0]: (i, row) for i, row in part}
        wanted = [row for _, row in sorted(last.values())]
        assert pushed(session, rows[part[0][0] : part[-1][0] + 1] if part else []) == wanted


BIG = np.finfo(float).max
ugly = values | st.sampled_from([BIG, -BIG, 5e-324, -1.0, 1e300, -1e300, math.inf, -math.inf])


def flow_of(**options):
    flow = ro.Dataflow("figures")
    source = flow.source("in", schema={"k": "string", "v": "double"})
    flow.sink("out", source.to(t.RunningSummary(by=("k",), value="v", **options), id="n"))
    return flow


@pytest.mark.long
@given(
    st.lists(st.tuples(st.sampled_from("abc"), ugly), max_size=30),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_updates_on_spark_equal_one_process_to_the_bit(rows, most, partitions, seed):
    given = [{"k": k, "v": v} for k, v in rows]
    result = SimulatedQuery(flow_of(emit="update"), given, random.Random(seed), max_records=most, partitions=partitions)
    whole = flow_of().run(given)
    every = {row["seq"]: row for row in whole["n"].to_pylist()}
    wanted = []
    for number in every:
        after = (other for other in range(number + 1, (number // most + 1) * most) if other in every)
        if all(every[other]["k"] != every[number]["k"] for other in after):
            wanted.append(every[number])
    assert sorted(result["n"].to_pylist(), key=lambda row: row["seq"]) == wanted
    errors = [sorted((e["seq"], e["reason"], e["raw"]) for e in one["errors"].to_pylist()) for one in (result, whole)]
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("options", "readings", "wanted"),
    [
        ({"emit": "update"}, [0.1, 0.7, 1e16, -3.25, 6.0, None] * 6, 2),
        ({"emit": "update"}, [1e300, 1.0, 1e-300, -1e300] * 8, 2),
        ({"emit": "update"}, [BIG, 1.0, BIG, *[1.0] * 45, math.inf], 2),  # the infinite one is rejected in its stage
        ({"emit": "update"}, [1.0] * 8, 8),  # the digits of the sum are more than these records
        ({"emit": "each"}, [1.0] * 36, 36),
        ({"emit": "update", "ttl": "1min"}, [1.0] * 36, 36),
    ],
    ids=["update", "far apart", "beyond doubles", "few", "each", "ttl"],
)
def test_shuffle_carries_sums_where_they_are_less_than_records(options, readings, wanted, monkeypatch):
    crossed = []
    update = t.RunningSummary.update

    def noted(self, batch, *rest):
        crossed.append(batch.num_rows)
        return update(self, batch, *rest)

    monkeypatch.setattr(t.RunningSummary, "update", noted)
    flow = ro.Dataflow("figures")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "k": "string", "v": "double"})
    flow.sink("out", source.to(t.RunningSummary(by=("k",), value="v", **options), id="n"))
    noon = "2024-05-01T12:00:00Z"
    given = [{"event_time": noon, "k": "ab"[i % 2], "v": v} for i, v in enumerate(readings)]
    calm = SimpleNamespace(shuffle=lambda _: None, random=lambda: 1.0, choice=operator.itemgetter(-1))
    result = SimulatedQuery(flow, given, calm, max_records=len(readings), partitions=1)
    assert sum(crossed) == wanted
    last = {row["k"]: row["sum"] for row in result["n"].to_pylist()}
    for key, total in last.items():
        its = [row["v"] for row in given if row["k"] == key and row["v"] is not None and math.isfinite(row["v"])]
        assert total == (None if its[:2] == [BIG, BIG] else math.fsum(its))


def test_sum_returns_from_beyond_float64():
    session = t.RunningSummary().session()
    big = np.finfo(float).max
    found = session.push_many([{"value": v} for v in (big, big, -big, -1.0)])
    assert [row["sum"] for row in found] == [big, None, big, big]
    assert [row["mean"] for row in found] == [big, None, big / 3, big / 4]
    assert session.push({"value": math.inf}) == []
    assert session.errors[0]["reason"] == "not_finite"


def test_names():
    row = t.RunningSummary(prefix="v_").session().push({"value": 2})[0]
    assert row == {"value": 2, "v_count": 1, "v_min": 2.0, "v_max": 2.0, "v_sum": 2.0, "v_mean": 2.0}
    with pytest.raises(ConfigError, match="prefix = '' names a field 'min', which is reserved"):
        t.RunningSummary(by=("min",))
