"""Results of unbounded and sliding windows at multiples of a duration, against plain Python."""

from __future__ import annotations

import json
import random
import statistics
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
AGGREGATES = {"n": "count", "sum": ("value", "sum"), "middle": ("value", "quantile", 0.5)}
TASK = t.Window(by="key", aggregates=AGGREGATES, emit="5s")
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(-9, 9)), min_size=1, max_size=30)


def wanted(records):
    """Compute the results of records in order of arrival, whose times may fall."""
    out, seen, fresh, now = [], {}, set(), None

    def emit():
        due = NOON + timedelta(seconds=(now // 5 + 1) * 5, microseconds=-1)
        for key in fresh:
            values = seen[key]
            out.append((due, key, len(values), sum(values), statistics.median(values)))
        fresh.clear()

    for key, second, value in records:
        if now is not None and second // 5 > now // 5:
            emit()
        now = second if now is None else max(now, second)
        seen.setdefault(key, []).append(value)
        fresh.add(key)
    emit()
    return sorted(out)


def found(rows):
    return sorted((row["event_time"], row["key"], row["n"], row["sum"], row["middle"]) for row in rows)


def given_rows(records):
    return [{"event_time": NOON + timedelta(seconds=s), "key": key, "value": v} for key, s, v in records]


def flow_of(task):
    flow = ro.Dataflow("ticks")
    schema = {"event_time": "timestamp[us, tz=UTC]", "key": "string", "value": "int64"}
    flow.sink("out", flow.source("in", schema=schema).to(task, id="n"))
    return flow


@given(RECORDS, st.integers(1, 9))
def test_keys_with_records_have_results_at_multiples(records, cut):
    session, out = TASK.session(), []
    rows = given_rows(records)
    for i in range(0, len(rows), cut):
        out += session.push_batch(rows[i : i + cut]).to_pylist()
        data, session = session.snapshot(), TASK.session()
        session.restore(data)
    out += session.flush()
    assert found(out) == wanted(records)


def wanted_of_windows(records, size, full):
    """Compute the results of sliding windows at the last records before each multiple of five seconds."""
    out, seen, fresh, now = [], {}, set(), None

    def emit():
        due = NOON + timedelta(seconds=(now // 5 + 1) * 5, microseconds=-1)
        for key in fresh:
            mine, (last, _) = seen[key], seen[key][-1]
            window = [(s, v) for s, v in mine if s > last - 7] if size == "7s" else mine[-size:]
            if not full or (last - mine[0][0] >= 7 if size == "7s" else len(mine) >= size):
                values = [v for _, v in window]
                out.append((due, key, len(values), sum(values), statistics.median(values)))
        fresh.clear()

    for key, second, value in records:
        late = size == "7s" and key in seen and second < seen[key][-1][0]
        if now is not None and second // 5 > now // 5:
            emit()
        now = second if now is None else max(now, second)
        if not late:
            seen.setdefault(key, []).append((second, value))
            fresh.add(key)
    emit()
    return sorted(out)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [1, 3, "7s"])
@given(RECORDS, st.integers(1, 9))
def test_sliding_windows_have_results_at_multiples(size, full, records, cut):
    rows, expected = given_rows(records), wanted_of_windows(records, size, full)
    for names in (["n", "sum", "middle"], ["n", "sum"]):
        aggregates = {name: AGGREGATES[name] for name in names}
        task = t.Window(by="key", frame=w.Sliding(size, full=full), aggregates=aggregates, emit="5s")
        session, out = task.session(), []
        for i in range(0, len(rows), cut):
            out += session.push_batch(rows[i : i + cut]).to_pylist()
            data, session = session.snapshot(), task.session()
            session.restore(data)
        out += session.flush()
        got = sorted((row["event_time"], row["key"], *(row[name] for name in names)) for row in out)
        assert got == [(due, key, *rest[: len(names)]) for due, key, *rest in expected]


@pytest.mark.long
@given(RECORDS, st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_results_on_spark_are_those_of_one_process(records, most, partitions, seed):
    rows = given_rows(records)
    flow = flow_of(TASK)
    local = flow.run(rows)["n"].to_pylist()
    assert found(local) == wanted(records)
    query = SimulatedQuery(flow, rows, random.Random(seed), max_records=most, partitions=partitions)
    assert found(query["n"].to_pylist()) == found(local)


def test_result_has_key_time_and_aggregates():
    out = flow_of(TASK).run(given_rows([("a", 1, 2), ("b", 7, 3)]))["n"]
    assert [name for name in out.column_names if not name.startswith("ordinal")] == [
        "seq", "event_time", "key", "n", "sum", "middle",
    ]  # fmt: skip
    assert out.schema.field("sum").type == pa.int64()


def test_duration_survives_its_description():
    described = json.loads(json.dumps(TASK.to_dict()))
    assert t.Task.from_dict(described) == TASK == t.Window(by="key", aggregates=AGGREGATES, emit=timedelta(seconds=5))


def test_misuse_is_refused():
    for options, message in (
        ({"emit": "0s"}, "emit = datetime.timedelta\\(0\\).* a duration longer than 0"),
        ({"emit": "often"}, "emit = 'often'.*'each' or 'update' or a duration"),
        ({"emit": 5}, "emit = 5"),
        ({"emit": "5s", "aggregates": {"x": ("v", "ewm", 3)}}, "needs frame = None and emit = 'each'"),
    ):
        with pytest.raises(ConfigError, match=message):
            t.Window(**options)
    with pytest.raises(ConfigError, match="event_time"):
        TASK.session().push_batch([{"key": "a", "value": 1}])
