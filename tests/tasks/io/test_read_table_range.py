"""Reads of row ranges from all stores."""

import datetime as dt

import pyarrow as pa
import pytest

from riot_ops import ConfigError
from riot_ops.tasks import InsertTable, ReadTableRange
from tests.tasks.io.test_insert_table import _batch, _time, place

__all__ = ["place"]

START = 1422748800000


@pytest.fixture
def filled(place):
    insert = InsertTable(**place, partition="city", row="{event_time:ms}|{sensor_id}")
    rows = [(i, _time(START + i * 1000), f"s{i % 7}", None if i % 50 == 0 else i / 4) for i in range(250)]
    insert.session().push_batch(_batch(rows))
    return rows


def _ranges(place, spans, kind=None, **options):
    task = ReadTableRange(**place, partition="city", schema={"value": "double", "sensor_id": "string"}, **options)
    session = task.session()
    kind = kind or pa.int64()
    batch = pa.RecordBatch.from_pydict(
        {"start": pa.array([s for s, _ in spans], kind), "end": pa.array([e for _, e in spans], kind)}
    )
    out = session.push_batch(batch)
    assert out.schema.equals(task.output_schema(batch.schema))
    return out.to_pylist(), [e["reason"] for e in session.errors]


def test_range_is_one_record_with_lists(place, filled):
    spans = [(START, START + 250_000), (START + 10_000, START + 12_001), (5, 6), (START + 9, START), (None, 5)]
    rows, errors = _ranges(place, spans)
    assert errors == ["missing_key"]
    assert [r["rows"] for r in rows] == [250, 3, 0, 0]
    assert rows[0]["value"] == [r[3] for r in filled] and rows[0]["sensor_id"] == [r[2] for r in filled]
    assert rows[1]["value"] == [2.5, 2.75, 3.0] and rows[2]["value"] == []


def test_ranges_of_time(place, filled):
    spans = [(_time(START), _time(START + 3000))]
    rows, errors = _ranges(place, spans, pa.timestamp("us", tz="UTC"), start="{start:ms}", end="{end:ms}")
    assert rows[0]["value"] == [None, 0.25, 0.5] and not errors
    assert rows[0]["start"] == dt.datetime(2015, 2, 1, tzinfo=dt.UTC)


def test_ranges_with_too_many_rows_are_rejected(place, filled):
    rows, errors = _ranges(place, [(START, START + 5000), (START, START + 6000)], max_rows=5)
    assert [r["rows"] for r in rows] == [5] and errors == ["too_large"]


def test_training_task_learns_from_a_range(place, filled):
    from riot_ops.tasks import TrainLinearRegression

    insert = InsertTable(**place, partition="line", row="{x}")
    insert.session().push_batch(
        pa.RecordBatch.from_pydict({"x": list(range(40)), "y": [2.0 * x + 1 for x in range(40)]})
    )
    spans = ReadTableRange(**place, partition="line", schema={"x": "double", "y": "double"}).session()
    sets = spans.push_batch(pa.RecordBatch.from_pydict({"start": [0], "end": [40]}))
    train = TrainLinearRegression(inputs=("x",), target="y", size=None, start_field="start", end_field="end").session()
    (model,) = train.push_batch(sets).to_pylist()
    assert (model["rows"], model["start_ms"], model["end_ms"]) == (40, 0, 40), train.errors


@pytest.mark.parametrize("wrong", [{"start": ""}, {"end": "a/{end}"}, {"schema": {"rows": "int64"}}, {"max_rows": 0}])
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ReadTableRange(**{"store": "memory", "table": "rows", "partition": "p", "schema": {"x": "double"}, **wrong})
