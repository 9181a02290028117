"""Times of received messages, against the reader of declared types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.subscription import Subscription
from riot_ops.core.casting import cast

SUBSCRIPTION = Subscription(MQTTConnection(url="memory://times"), ("a",), 1, 60, "at", ())


def time_of(text):
    return SUBSCRIPTION.message("a", b"", [("at", text)]).time_us


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1500", 1500),
        ("-1500", -1500),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01t01:00:00,5z", 3_600_500_000),
        ("1970-01-01 01+01", 0),
        ("1970-01-01T00:00:00.1234567891-00:30", 1_800_123_456),
        ("1969-12-31T23:59:59.9999999Z", -1),
        *((text, None) for text in ("", "x", "19700101T00", "１２", "1970-W01-4", "1970-01-01T00:00:00+01:30:15", "1970-01-01_00:00", "1.5",
                                    "1970-01-01T24:00", "1970-01-01T00:00:60", "0000-01-01", "１970-01-01", "9" * 30)),
    ],
)  # fmt: skip
def test_times_of_messages_are_read_or_missing(text, micros):
    assert time_of(text) == micros


FORMS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["2024-05-01", "2024-02-30", "20240501", "0001-01-01", "2024-W18-3"]),
    st.sampled_from(["T", "t", " ", "_", ""]),
    st.sampled_from(["12:34:56", "12:34", "12", "123456", "24:00:00", "12:34:60", ""]),
    st.sampled_from(["", ".5", ",123456", ".1234567891", "."]),
    st.sampled_from(["", "Z", "z", "+01", "-0130", "+05:30", "+1", " Z", "+01:00:30"]),
)


@given(FORMS.filter(lambda text: not text.isdecimal()))
def test_times_of_messages_equal_those_of_declared_types(text):
    column, _ = cast(pa.array([text]), pa.timestamp("us", "UTC"))
    assert time_of(text) == column.cast(pa.int64())[0].as_py()
