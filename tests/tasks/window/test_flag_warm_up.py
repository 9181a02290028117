"""Warm-up flags, against a loop over records."""

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


def warm_flags(rows, records, span):
    """Flag record by record."""
    first, messages, flags = {}, {}, []
    for row in rows:
        time, key = row["event_time"], row["key"]
        after_span = True
        if span:
            if time is not None:
                first.setdefault(key, time)
            after_span = time is not None and (time - first[key]).total_seconds() >= span
        if after_span:
            messages.setdefault(key, set()).add(row["seq"])
        flags.append(after_span and len(messages[key]) > records)
    return flags


@pytest.mark.long
@given(ROWS, st.integers(0, 3), st.integers(0, 6), st.integers(1, 7))
def test_warm_up_ends_after_its_messages_and_its_span(given, records, span, cut):
    rows, seq = [], -1
    for key, second, more in given:
        seq += not (more and rows and rows[-1]["key"] == key)
        rows.append(
            {"seq": seq, "key": key, "event_time": None if second is None else NOON + timedelta(seconds=second)}
        )
    schema = pa.schema([("seq", pa.int64()), ("key", pa.string()), ("event_time", pa.timestamp("us", tz="UTC"))])
    session = t.FlagWarmUp(by="key", records=records, duration=timedelta(seconds=span), output="over").session()
    got = []
    for place in range(0, len(rows), cut):
        got += session.push_batch(pa.Table.from_pylist(rows[place : place + cut], schema))["over"].to_pylist()
    assert got == warm_flags(rows, records, span)


def test_without_numbers_each_record_is_a_message():
    session = t.FlagWarmUp(records=1).session()
    assert [session.push({"x": 1})[0]["warm"] for _ in range(3)] == [False, True, True]
    assert session.push_batch(pa.table({"x": [1, 2]}))["warm"].to_pylist() == [True, True]


def test_label_distinguishes_equal_tasks():
    assert t.FlagWarmUp(records=1, label="ada") != t.FlagWarmUp(records=1, label="bob")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"records": -1}, "records"),
        ({"duration": timedelta(-1)}, "duration must not be negative"),
        ({"output": ""}, "output must name a field"),
    ],
)
def test_misuse_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        t.FlagWarmUp(**wrong)


def test_existing_field_and_missing_time_are_refused():
    with pytest.raises(ConfigError, match="adds the field 'warm', which its input already has"):
        t.FlagWarmUp(records=1).output_schema(pa.schema([("warm", pa.bool_())]))
    with pytest.raises(ConfigError, match="event_time"):
        t.FlagWarmUp(duration="1s").output_schema(pa.schema([("x", pa.int64())]))
    with pytest.raises(ConfigError, match="timestamp"):
        t.FlagWarmUp(duration="1s").output_schema(pa.schema([("event_time", pa.int64())]))
