"""Calendar fields against Python's datetime, for examples and random times."""

from __future__ import annotations

import calendar
import math
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks import TimeFields
from tests.search import depth

ALL = ("hour", "hour_sin", "hour_cos", "weekday", "weekend")


def fields(moment, **options):
    return TimeFields(fields=ALL, **options).session().push({"event_time": moment})[0]


def expected(local):
    """The fields by Python's datetime."""
    hour = local.hour + local.minute / 60 + (local.second + local.microsecond / 1e6) / 3600
    weekday = calendar.weekday(local.year, local.month, local.day)
    return {
        "hour": pytest.approx(hour, abs=1e-9),
        "hour_sin": pytest.approx(math.sin(2 * math.pi * hour / 24), abs=1e-9),
        "hour_cos": pytest.approx(math.cos(2 * math.pi * hour / 24), abs=1e-9),
        "weekday": float(weekday),
        "weekend": float(weekday in (calendar.SATURDAY, calendar.SUNDAY)),
    }


@settings(max_examples=depth(100), deadline=None)
@given(st.integers(-(10**16), 2 * 10**16), st.floats(-24, 24))  # from 1653 to 2603
def test_any_time_and_offset_equal_python(microseconds, offset):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    row = fields(moment, utc_offset=offset)
    assert row == {"event_time": moment, **expected(moment + timedelta(microseconds=round(offset * 3.6e9)))}


def test_week_of_examples():
    """1 February 2015 was a Sunday."""
    week = [fields(datetime(2015, 2, 1, tzinfo=UTC) + timedelta(days=n)) for n in range(7)]
    assert [row["weekday"] for row in week] == [6, 0, 1, 2, 3, 4, 5]
    assert [row["weekend"] for row in week] == [1, 0, 0, 0, 0, 0, 1]
    day = [fields(datetime(2015, 2, 1, h, 45, 36, tzinfo=UTC)) for h in (0, 6, 12, 18, 23)]
    assert [row["hour"] for row in day] == [0.76, 6.76, 12.76, 18.76, 23.76]
    quarters = [fields(datetime(2015, 2, 1, h, tzinfo=UTC)) for h in (0, 6, 12, 18)]
    assert [round(row["hour_sin"], 12) for row in quarters] == [0, 1, 0, -1]
    assert [round(row["hour_cos"], 12) for row in quarters] == [1, 0, -1, 0]
    assert fields(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))["weekday"] == calendar.WEDNESDAY


def test_offset_is_local_time_minus_utc():
    moment = datetime(2015, 7, 5, 23, 30, tzinfo=UTC)  # a Sunday
    delhi, new_york = ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York")
    assert fields(moment, utc_offset=5.5) == {"event_time": moment, **expected(moment.astimezone(delhi))}
    assert fields(moment, utc_offset=5.5)["weekday"] == calendar.MONDAY
    assert fields(moment, utc_offset=-4) == {"event_time": moment, **expected(moment.astimezone(new_york))}
    local = moment.astimezone(timezone(timedelta(hours=2)))
    assert fields(local)["hour"] == 23.5  # a zone in the value makes no difference


@pytest.mark.parametrize("kind", [pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us")])
def test_time_may_have_another_name_and_unit(kind):
    noon = int(datetime(2024, 2, 29, 12, tzinfo=UTC).timestamp())
    factor = {"s": 1, "ms": 1000, "us": 1_000_000}[kind.unit]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([noon * factor, None], pa.int64()).cast(kind), pa.array([None, noon * 1_000_000]).cast(TIMESTAMP)],
        names=["pickup", "event_time"],
    )
    out = TimeFields(fields=("hour", "weekday"), time="pickup").session().push_batch(batch)
    assert out.schema.names == ["pickup", "event_time", "hour", "weekday"]
    assert (out["hour"].to_pylist(), out["weekday"].to_pylist()) == ([12.0, None], [3.0, None])


def test_only_named_fields_are_added():
    row = TimeFields(fields=("weekend",)).session().push({"event_time": datetime(2024, 2, 24, tzinfo=UTC), "hour": "x"})
    assert row[0]["hour"] == "x"
    assert row[0]["weekend"] == 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fields": ()}, "at least one field"),
        ({"fields": ("hour", "hour")}, "none twice"),
        ({"fields": ("hours",)}, 'did you mean "hour'),
        ({"fields": ("hour",), "utc_offset": 24.5}, "from -24 to 24"),
        ({"fields": ("hour",), "utc_offset": -24.5}, "from -24 to 24"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        TimeFields(**options)


@pytest.mark.parametrize(("offset", "hour"), [(24, 6.0), (-24, 6.0), (23.75, 5.75), (-0.5, 5.5)])
def test_offsets_reach_a_day(offset, hour):
    row = fields(datetime(2015, 2, 3, 6, tzinfo=UTC), utc_offset=offset)  # a Tuesday
    assert row["hour"] == hour
    assert row["weekday"] == {24: 2, -24: 0, 23.75: 2, -0.5: 1}[offset]


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_field_of_another_type_is_refused(kind):
    with pytest.raises(ConfigError, match="needs a timestamp in the field 'event_time'"):
        TimeFields(fields=("hour",)).output_schema(pa.schema({"event_time": kind}))
    with pytest.raises(ConfigError, match="needs a timestamp in the field 'pickup'"):
        TimeFields(fields=("hour",), time="pickup").output_schema(pa.schema({"event_time": TIMESTAMP, "pickup": kind}))


def test_missing_time_field_is_refused():
    task = TimeFields(fields=("hour",), time="pickup")
    assert task.requires() == {"pickup": "any"}
    with pytest.raises(ConfigError, match="time_fields reads the field 'pickup', which its input lacks"):
        task.output_schema(pa.schema({"event_time": TIMESTAMP}))
    assert task.output_schema(pa.schema({"pickup": pa.null()})).names == ["pickup", "hour"]


def test_writes_names_the_fields():
    assert TimeFields(fields=("weekend", "hour")).writes() == {"weekend", "hour"}
