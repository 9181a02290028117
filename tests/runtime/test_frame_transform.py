"""Tasks on pandas, Polars and Arrow tables: results against plain Python and pandas."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

ROWS = {"device": ["a", "b", "a", "a", "b"], "value": [1.0, 10.0, 3.0, 8.0, 20.0]}
KINDS = {
    "pandas": (pd.DataFrame, pd.DataFrame, lambda frame: frame.to_dict("list")),
    "polars": (pl.DataFrame, pl.DataFrame, lambda frame: frame.to_dict(as_series=False)),
    "table": (pa.table, pa.Table, pa.Table.to_pydict),
    "batch": (pa.RecordBatch.from_pydict, pa.RecordBatch, pa.RecordBatch.to_pydict),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def start(minutes):
    return datetime(2024, 5, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes)


def test_result_has_the_type_of_the_input_frame(kind):
    make, cls, read = kind
    out = t.RunningCount(by="device").transform(make(ROWS))
    assert isinstance(out, cls)
    assert read(out) == {**ROWS, "count": [1, 1, 2, 3, 2], "_error": [None] * 5}
    assert read(t.RunningCount(by="device").transform(make(ROWS), on_error="drop")) == {
        **ROWS,
        "count": [1, 1, 2, 3, 2],
    }


def test_stateless_and_running_results_equal_those_of_pandas():
    frame = pd.DataFrame(ROWS)
    kept = t.Filter("device == 'a'").transform(frame, on_error="drop")
    pd.testing.assert_frame_equal(kept, frame[frame.device == "a"].reset_index(drop=True))
    mean = t.ExponentialAverage(by="device", span=3, warmup=0).transform(frame, on_error="drop")
    wanted = frame.groupby("device").value.transform(lambda values: values.ewm(span=3, adjust=False).mean())
    pd.testing.assert_frame_equal(mean, frame.assign(value=wanted))


def test_order_columns_of_the_library_do_not_leak(kind):
    make, _, read = kind
    words = t.Tokenize(field="text").transform(make({"text": ["a b", "c"]}), on_error="drop")
    assert read(words) == {"word": ["a", "b", "c"]}
    times = make({"event_time": [start(0), start(0.5), start(3)], "value": [1.0, 2.0, 5.0]})
    sums = read(t.Window(frame="1min", aggregates={"sum": ("value", "sum")}).transform(times, on_error="drop"))
    assert sums["sum"] == [3.0, 5.0] and not {"seq", "ordinal", "ordinal_2", "ordinal_3"} & set(sums)


def test_order_columns_of_the_user_stay(kind):
    make, _, read = kind
    out = t.Tokenize(field="text").transform(make({"seq": [4, 9], "ordinal": [0, 0], "text": ["a b", "c"]}))
    found = read(out)
    assert (found["seq"], found["ordinal"], found["word"]) == ([4, 4, 9], [0, 0, 0], ["a", "b", "c"])
    assert "ordinal_2" not in found


def test_rejected_rows_are_texts_in_a_column_or_dropped(kind):
    make, _, read = kind
    task = t.KalmanFilter(by="device")
    bad = make({"device": ["a", "a"], "value": [1.0, float("inf")]})
    texts = read(task.transform(bad))["_error"]
    assert texts[0] is None and json.loads(texts[1])["reason"] == "not_finite"
    assert read(task.transform(bad, on_error="drop"))["device"] == ["a"]
    again = read(t.RunningCount(by="device").transform(task.transform(bad)))
    assert again["_error"] == texts and again["count"][0] == 1


def test_rows_are_in_the_requested_order(kind):
    make, _, read = kind
    late = make({"event_time": [start(2), start(1)], "value": [2.0, 1.0]})
    count = t.RunningCount()
    assert read(count.transform(late, on_error="drop"))["value"] == [1.0, 2.0]
    assert read(count.transform(late, on_error="drop", order="arrival"))["value"] == [2.0, 1.0]
    numbered = make({"seq": [2, 1], "event_time": [start(1), start(2)], "value": [2.0, 1.0]})
    assert read(count.transform(numbered, on_error="drop"))["value"] == [1.0, 2.0]
    assert read(count.transform(numbered, on_error="drop", order="event_time"))["value"] == [2.0, 1.0]


def test_seq_of_any_type_of_number_is_an_order():
    for seq in (pl.Series([1, 0], dtype=pl.UInt32), pl.Series([1.0, 0.0])):
        out = t.RunningCount().transform(pl.DataFrame({"seq": seq, "x": ["b", "a"]}), on_error="drop")
        assert out.to_dict(as_series=False) == {"seq": [0, 1], "x": ["a", "b"], "count": [1, 2]}
    out = t.RunningCount().transform(pd.DataFrame({"seq": [1, 0.5, 0], "x": list("abc")}))
    assert out.x.dropna().tolist() == ["c", "a"]
    assert [json.loads(text)["reason"] for text in out["_error"].dropna()] == ["wrong_type"]


def test_empty_frame_has_the_fields_of_the_result():
    empty = pa.table({"device": pa.array([], pa.string())})
    assert t.RunningCount(by="device").transform(empty).schema.names == ["device", "count", "_error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "raise"}, "on_error must be 'column' or 'drop', got 'raise'"),
        ({"order": "random"}, "order must be 'auto', .*, got 'random'"),
        ({"partitions": 0}, "partitions"),
        ({"buffering": "huge"}, "buffering"),
        ({"streaming": True}, "streaming must not be True"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        t.RunningCount(by="device").transform(pa.table(ROWS), **options)
