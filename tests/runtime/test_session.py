"""Sessions: input of any form, rejected events, and the end of a stream."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pandas as pd
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
EVENT = {"seq": 3, "event_time": NOON, "device": "ü", "value": 2.0, "place": [1, 2]}


@pytest.mark.parametrize("window", [{"window": 5}, {"window": 5, "mode": "sliding"}])
def test_flushed_rows_have_all_fields(window):
    task = t.MovingAverage(**window, by=("device",), partial=True)
    session = task.session()
    assert session.push(EVENT) == []
    (row,) = session.flush()
    names = task.output_schema(pa.RecordBatch.from_pylist([EVENT]).schema).names
    assert list(row) == names
    assert (row["device"], row["value"], row["count"], row["place"]) == ("ü", 2.0, 1, None)

    # also after a restart without a further record
    again = task.session()
    again.restore(session.snapshot())
    assert again.flush() == [row]


def test_large_integer_is_not_rounded_before_the_task_sees_it():
    exact = t.Window(frame=2, aggregates={"sum": ("i", "sum")}).session()
    assert exact.push_many([{"i": 1}, {"i": 2**53 + 2}]) == [{"sum": 2**53 + 3}]
    rounded = t.KalmanFilter().session()
    assert rounded.push({"value": 2**53 + 1}) == [] and rounded.errors[0]["reason"] == "out_of_range"


@pytest.mark.parametrize(
    ("first", "other", "shown"),
    [
        ("a", 1, "1 (int) is not of type string"),
        (1, "a", "'a' (str) is not of type int64"),
        (1.5, "a", "'a' (str) is not of type double"),
        (date(2024, 5, 1), datetime(2024, 5, 1, 1, tzinfo=UTC), "k = "),
    ],
)
def test_key_of_another_kind_than_the_first_is_rejected(first, other, shown):
    for task in (t.RunningCount(by="k"), t.Deduplicate(by="k", flag="new"), t.Window(by="k", emit="each")):
        session = task.session()
        rows = session.push_many([{"k": None}, {"k": first}, {"k": other}, {"k": first}])
        assert [row["k"] for row in rows] == [None, first, first], task
        (error,) = session.errors
        assert error["reason"] in ("wrong_type", "out_of_range") and shown in error["message"]


@pytest.mark.parametrize("values", [(1, 1.0, 2.0, 1), (1.0, 1, 2.0, 1.0)])
def test_equal_integers_and_floats_are_one_key(values):
    session = t.RunningCount(by="k").session()
    assert [row["count"] for row in session.push_many({"k": value} for value in values)] == [1, 2, 1, 3]


def test_flush_before_any_record():
    for task in (t.MovingAverage(partial=True), t.KalmanFilter(), t.Project(fields=("value",))):
        assert task.session().flush() == []


def test_misspelt_field_is_refused():
    kalman = t.KalmanFilter(by=("device",)).session()
    with pytest.raises(ConfigError, match=r"kalman_filter reads the field 'value'.*did you mean \"vlaue\""):
        kalman.push({"device": "a", "vlaue": 2.0})
    with pytest.raises(ConfigError, match="reads the field 'device'"):
        kalman.push_many([{"value": 2.0, "place": 1}])
    assert kalman.errors == []
    # a field that is left out has no value
    assert kalman.push({"device": "a", "event_time": NOON}) == [{"device": "a", "event_time": NOON, "value": None}]
    assert kalman.push({}) == [{"device": None, "value": None}]
    # fields that the task does not read are passed on
    assert kalman.push({"device": "a", "value": None, "place": [1]}) == [{"device": "a", "value": None, "place": [1]}]


def test_events_are_ingested_as_in_a_dataflow():
    session = ro.map(lambda row: row).session()
    far = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    for time, wanted in (
        (NOON, NOON),
        (NOON.replace(tzinfo=None), NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        (NOON.date(), NOON.replace(hour=0)),
        (1_000_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (far, far),
        (None, None),
    ):
        assert session.push({"event_time": time, "seq": "7"}) == [{"event_time": wanted, "seq": 7}]
    bad = [
        ({"event_time": 253_402_300_800_000_000}, "out_of_range"),
        ({"event_time": 1.5}, "wrong_type"),
        ({"event_time": "soon"}, "wrong_type"),
        ({"name": "\ud800"}, "invalid_utf8"),
        ({"count": 2**70}, "out_of_range"),
        ({"thing": object()}, "wrong_type"),
        ({"seq": 2**63}, "out_of_range"),
    ]
    for event, _ in bad:
        assert session.push(event) == []
    assert [e["reason"] for e in session.errors] == [reason for _, reason in bad]
    assert {e["task"] for e in session.errors} == {"map_function"}
    assert session.errors[3]["message"] == "name = '\\ud800' (str) is not UTF-8"
    assert session.errors[3]["raw"] == '{"name": "\\ud800"}'


def test_rejected_event_leaves_state_unchanged():
    session = t.MovingAverage(by=("device",), window=9).session()
    session.push({"device": "a", "value": 1.0, "event_time": NOON})
    before = session.snapshot()
    for event in ({"device": "\ud800"}, {"device": "a", "event_time": 2**62}, {"device": "a", "value": "n/a"}):
        session.push({"value": 2.0, "event_time": NOON} | event)
    assert session.snapshot() == before
    assert len(session.errors) == 3


READINGS = [{"device": "a", "value": 1.0}, {"device": "a", "value": 3.0}]


@pytest.mark.parametrize(
    "batch",
    [
        pa.RecordBatch.from_pylist(READINGS),
        pa.concat_tables([pa.Table.from_pylist(READINGS[:1]), pa.Table.from_pylist(READINGS[1:])]),
        pd.DataFrame(READINGS),
        READINGS,
        pa.table({"device": pa.array(["a", "a"], pa.string_view()), "value": pa.array([1.0, 3.0], pa.float32())}),
        pa.table({"device": pa.array(["a", "a"]).dictionary_encode(), "value": [1.0, 3.0]}),
    ],
    ids=["batch", "table", "pandas", "list", "string view", "dictionary"],
)
def test_batches_of_every_type(batch):
    out = t.MovingAverage(window=2, by=("device",)).session().push_batch(batch)
    assert out.to_pylist() == [{"device": "a", "value": 2.0, "count": 2}]


def test_other_values_are_refused_as_batches():
    session = t.KalmanFilter().session()
    with pytest.raises(ConfigError, match="cannot read records from str"):
        session.push_batch("a.csv")
    with pytest.raises(ConfigError, match=r"the records: the field 'event_time' must be timestamp.* got string"):
        session.push_batch(pa.table({"event_time": ["soon"], "value": [1.0]}))
    times = pa.array([2**62, 0], pa.timestamp("us"))
    assert session.push_batch(pa.table({"event_time": times, "value": [1.0, 2.0]})).num_rows == 1
    assert session.push_batch(pa.table({"event_time": times[:1], "value": [1.0]})).num_rows == 0
    assert [e["reason"] for e in session.errors] == ["out_of_range"] * 2


def test_flushed_windows_have_all_fields():
    window = t.Window(frame="1min", by=("device",), aggregates={"low": ("value", "min"), "n": "count"})
    session = window.session()
    session.push({"seq": 3, "event_time": NOON, "device": "a", "value": None})
    (left,) = session.flush()
    kinds = {"seq": pa.int64(), "event_time": pa.timestamp("us", "UTC"), "device": pa.string(), "value": pa.float64()}
    assert list(left) == window.output_schema(pa.schema(kinds)).names
    assert (left["seq"], left["device"], left["low"], left["n"]) == (3, "a", None, 1)


@pytest.mark.parametrize("event", [1.0, None, "text", [{"value": 1.0}]])
def test_push_of_a_bare_value_is_refused_with_advice(event):
    with pytest.raises(ConfigError, match=r"push takes one event, a mapping .*push\(\{'value': …\}\)"):
        t.KalmanFilter().session().push(event)


FALLING = r"seq falls from 5 to 3 in row {}: .*sort_by\('seq'\)"


@pytest.mark.parametrize("task", [t.NoOp(), t.MovingAverage(value="value", window=2)])
def test_falling_seq_is_refused_within_a_batch_and_between_batches(task):
    rows = [{"seq": seq, "value": float(seq)} for seq in (4, 5, 5, 3)]
    with pytest.raises(ConfigError, match=FALLING.format(3)):
        task.session().push_batch(rows)
    session = task.session()
    session.push_batch(rows[:3])
    with pytest.raises(ConfigError, match=FALLING.format(0)):
        session.push_batch(pa.Table.from_pylist(rows[3:]))
    assert session.push_batch([{"seq": 6, "value": 1.0}]).num_rows == 1  # the session goes on
    assert task.session(ordered=False).push_batch(rows).num_rows


def test_rejected_records_count_in_the_row_of_a_falling_seq():
    times = pa.array([0, 1 << 62, 0], pa.timestamp("us", "UTC"))  # the second is after the year 9999
    rows = pa.table({"seq": [5, 5, 3], "event_time": times})
    with pytest.raises(ConfigError, match=FALLING.format(2)):
        t.NoOp().session().push_batch(rows)


def test_seq_may_be_null_or_missing():
    session = t.NoOp().session()
    session.push_batch([{"seq": 5, "value": 1.0}])
    assert session.push({"value": 2.0}) == [{"value": 2.0}]
    assert session.push_batch(pa.table({"seq": pa.array([None, 6], pa.int64()), "value": [1.0, 2.0]})).num_rows >= 1
