"""Which records come behind a warm-up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROWS = st.lists(st.tuples(st.sampled_from("aü"), st.one_of(st.none(), st.integers(0, 20)), st.booleans()), max_size=25)


def told(rows, records, span):
    """The same, record by record."""
    first, messages, answers = {}, {}, []
    for row in rows:
        time, key = row["event_time"], row["key"]
        past = True
        if span:
            if time is not None:
                first.setdefault(key, time)
            past = time is not None and (time - first[key]).total_seconds() >= span
        if past:
            messages.setdefault(key, set()).add(row["seq"])
        answers.append(past and len(messages[key]) > records)
    return answers


@given(ROWS, st.integers(0, 3), st.integers(0, 6), st.integers(1, 7))
def test_it_is_over_behind_so_many_messages_and_so_much_time(given, records, span, cut):
    rows, seq = [], -1
    for key, second, more in given:
        seq += not (more and rows and rows[-1]["key"] == key)
        rows.append(
            {"seq": seq, "key": key, "event_time": None if second is None else NOON + timedelta(seconds=second)}
        )
    schema = pa.schema([("seq", pa.int64()), ("key", pa.string()), ("event_time", pa.timestamp("us", tz="UTC"))])
    session = t.FlagWarmUp(by="key", records=records, span=timedelta(seconds=span), output="over").session()
    got = []
    for place in range(0, len(rows), cut):
        got += session.push_batch(pa.Table.from_pylist(rows[place : place + cut], schema))["over"].to_pylist()
    assert got == told(rows, records, span)


def test_without_numbers_each_record_is_a_message():
    session = t.FlagWarmUp(records=1).session()
    assert [session.push({"x": 1})[0]["warm"] for _ in range(3)] == [False, True, True]
    assert session.push_batch(pa.table({"x": [1, 2]}))["warm"].to_pylist() == [True, True]


def test_a_label_makes_it_another():
    assert t.FlagWarmUp(records=1, label="ada") != t.FlagWarmUp(records=1, label="bob")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"records": -1}, "records"),
        ({"span": timedelta(-1)}, "span must not be negative"),
        ({"output": ""}, "output must name a field"),
    ],
)
def test_misuse(wrong, message):
    with pytest.raises(ConfigError, match=message):
        t.FlagWarmUp(**wrong)


def test_a_field_of_that_name_and_no_time():
    with pytest.raises(ConfigError, match="adds the field 'warm', which its input has"):
        t.FlagWarmUp(records=1).output_schema(pa.schema([("warm", pa.bool_())]))
    with pytest.raises(ConfigError, match="event_time"):
        t.FlagWarmUp(span="1s").output_schema(pa.schema([("x", pa.int64())]))
    with pytest.raises(ConfigError, match="timestamp"):
        t.FlagWarmUp(span="1s").output_schema(pa.schema([("event_time", pa.int64())]))
