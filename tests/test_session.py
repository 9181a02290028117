"""A task fed by hand: what the end of a stream gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from riot_ops import tasks as t

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
EVENT = {"seq": 3, "event_time": NOON, "device": "ü", "value": 2.0, "place": [1, 2]}


@pytest.mark.parametrize(
    "window", [{"window": 5}, {"window": 5, "mode": "sliding"}, {"window": None, "duration": timedelta(seconds=1)}]
)
def test_rows_of_the_end_have_the_fields_of_all_rows(window):
    task = t.BlockAverage(**window, by=("device",), partial=True)
    session = task.session()
    assert session.push(EVENT) == []
    (row,) = session.flush()
    names = task.output_schema(pa.RecordBatch.from_pylist([EVENT]).schema).names
    assert list(row) == names
    assert (row["device"], row["value"], row["count"], row["place"]) == ("ü", 2.0, 1, None)

    # after a restart as well, no record having come since
    again = task.session()
    again.restore(session.snapshot())
    assert again.flush() == [row]


def test_rows_of_the_end_before_any_record():
    for task in (t.BlockAverage(partial=True), t.KalmanFilter(), t.Project(fields=("value",))):
        assert task.session().flush() == []
