"""Readers of times in text: one answer for one text, and that of Python where it has one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.casting import cast

TIME = pa.timestamp("us", "UTC")
REFUSED = "refused"

#: Parts of times, the last of each not in the forms that are read.
DATES = st.sampled_from(["2024-05-01", "2024-02-29", "1969-12-31", "0001-01-02", "9999-12-30", "2023-02-29", "0000-01-01",
                         "10000-01-01", "20240501", "2024-W18-3", "2024-5-1", "2024-13-01", "２024-05-01"])  # fmt: skip
MARKS = st.sampled_from(["T", "t", " ", "  ", "_", ""])
CLOCKS = st.sampled_from(["12:34:56", "00:00:00", "23:59:59", "12:34", "12", "24:00", "24:00:00", "23:59:60", "12:60", "1:00",
                          "123456", "1234", "12:34:5", ""])  # fmt: skip
FRACTIONS = st.sampled_from(
    ["", ".5", ",5", ".123456", ".1234567", ".123456789", ".1234567891", ",1234567891234", ".", ",", ".5.5"]
)
ZONES = st.sampled_from(["", "Z", "z", "+00:00", "+0130", "-01:30", "+05", "-23:59", "+24:00", "+1", "+01:60", " Z", "UTC",
                         "+01:30:15", "−01:00"])  # fmt: skip
TEXTS = st.one_of(
    st.builds("{}{}{}{}{}".format, DATES, MARKS, CLOCKS, FRACTIONS, ZONES),
    DATES,
    st.text("0123456789-:.,TtZz+ ", max_size=30),
)


def of_lines(text):
    """The time that a parser of lines reads, ``refused``, or None for an empty text."""
    session = t.ParseLines(schema={"x": (0, "iso", None)}, delimiter="|").session()
    rows = session.push({"payload": text})
    return rows[0]["x"] if rows else REFUSED


def of_types(text):
    """The time that a source with declared types reads."""
    flow = ro.Dataflow("times")
    flow.sink("out", flow.source("rows", schema=pa.schema([("x", TIME)])))
    column, problems = cast(pa.array([text]), TIME)
    if problems:
        return REFUSED
    rows = flow.run(pa.table({"x": column}))["rows"]  # times outside the years 1 to 9999 are rejected there
    return rows["x"][0].as_py() if rows.num_rows else REFUSED


def of_python(text):
    """The time that Python reads, in UTC without a zone; None if it reads none."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@given(TEXTS.filter(str.strip))
def test_lines_and_declared_types_read_the_same_times(text):
    found = of_lines(text)
    assert of_types(text) == found
    python = of_python(text.strip())
    if found != REFUSED and python is not None:
        assert found == python


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024-05-01T12", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("2024-05-01 12:30", datetime(2024, 5, 1, 12, 30, tzinfo=UTC)),
        ("2024-05-01t12:30:01z", datetime(2024, 5, 1, 12, 30, 1, tzinfo=UTC)),
        ("2024-05-01T12:30:01,25+01", datetime(2024, 5, 1, 11, 30, 1, 250_000, UTC)),
        ("2024-05-01T12:30:01.1234567899-0130", datetime(2024, 5, 1, 14, 0, 1, 123_456, UTC)),
        ("2024-05-01T12+05:30", datetime(2024, 5, 1, 6, 30, tzinfo=UTC)),
        ("1969-12-31T23:59:59.9999999", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        *((text, REFUSED) for text in (
            "2024-05-01T24:00", "2024-05-01T23:59:60", "2024-05-01Z", "2024-05-01T", "2024-05-01T12:30:01.", "2024-05-01T12,5",
            "2024-05-01T12:30:01+1", "2024-05-01T12:30:01+24", "2024-05-01T12:30:01 Z", "20240501", "0000-01-01", "10000-01-01",
            "0001-01-01T00:00+01", "9999-12-31T23:30-01", "2023-02-29", "1714564860", "x")),
    ],
)  # fmt: skip
def test_forms_of_iso_8601(text, time):
    assert of_lines(text) == of_types(text) == time


@given(
    st.datetimes(timezones=st.timezones()).filter(
        lambda at: 2 < at.year < 9998 and not at.utcoffset() % timedelta(minutes=1)
    )
)
def test_times_of_python_are_read(moment):
    text = moment.isoformat()
    assert of_lines(text) == of_types(text) == moment.astimezone(UTC)
