"""Functions of whole batches: arguments, results, and rejected records."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks import BatchFunction

NOW = datetime(2020, 1, 1, tzinfo=UTC)
BATCH = pa.RecordBatch.from_pydict(
    {
        "seq": pa.array([7, 8, 9], pa.int64()),
        "event_time": pa.array([NOW] * 3, TIMESTAMP),
        "device": ["a", "b", "ü"],
        "value": [1.0, 2.0, None],
    }
)


def outcome(task, batch=BATCH):
    session = task.session()
    rows = session.push_batch(batch).to_pylist()
    return rows, [(e["seq"], e["reason"], e["message"]) for e in session.errors]


@pytest.mark.parametrize(
    ("frame", "fn"),
    [
        ("arrow", lambda b: pa.RecordBatch.from_pydict({"double": pc.multiply(b["value"], 2)})),
        ("arrow", lambda b: pa.table({"double": pc.multiply(b["value"], 2)})),
        ("arrow", lambda b: {"double": pc.multiply(b["value"], 2)}),
        ("arrow", lambda b: pc.multiply(b["value"], 2)),
        ("arrow", lambda b: 2 * b["value"].to_numpy(zero_copy_only=False)),
        ("arrow", lambda b: [None if v is None else 2 * v for v in b["value"].to_pylist()]),
        ("pandas", lambda df: pd.DataFrame({"double": 2 * df["value"]}).set_axis(df.index[::-1])),
        ("pandas", lambda df: 2 * df["value"]),
        ("pandas", lambda df: {"double": (2 * df["value"]).to_numpy()}),
    ],
)
def test_added_fields_extend_the_record(frame, fn):
    rows, errors = outcome(ro.map_batches(fn, adds={"double": "float64"}, library=frame))
    assert rows == [{**row, "double": d} for row, d in zip(BATCH.to_pylist(), (2.0, 4.0, None), strict=True)]
    assert errors == []


def test_returned_records_keep_their_order_fields():
    rows, _ = outcome(ro.map_batches(lambda b: {"name": b["device"]}, schema={"name": "string", "n": "int64"}))
    assert rows == [{"seq": s, "event_time": NOW, "name": d, "n": None} for s, d in zip((7, 8, 9), "abü", strict=True)]
    rows, _ = outcome(ro.map_batches(lambda df: df[["value"]] + 1, library="pandas"))
    assert [list(row.values()) for row in rows] == [[7, NOW, None, 2.0], [8, NOW, None, 3.0], [9, NOW, None, None]]
    rows, _ = outcome(ro.map_batches(lambda b: {"seq": [4, 5, 6]}, schema={"seq": "int64"}))
    assert [row["seq"] for row in rows] == [4, 5, 6]


def test_data_frame_may_be_modified():
    def fn(df):
        df["value"] *= 2
        return df

    assert [row["value"] for row in outcome(ro.map_batches(fn, library="pandas"))[0]] == [2.0, 4.0, None]
    assert BATCH["value"].to_pylist() == [1.0, 2.0, None]
    one = pa.RecordBatch.from_pydict({"value": [1.0, 2.0]})  # pandas does not copy a single column
    assert outcome(ro.map_batches(fn, library="pandas"), one) == ([{"value": 2.0}, {"value": 4.0}], [])
    assert one["value"].to_pylist() == [1.0, 2.0]


def test_added_field_may_replace_a_field():
    rows, _ = outcome(ro.map_batches(lambda b: {"value": ["x", "y", None]}, adds={"value": "string"}))
    assert [list(row) for row in rows] == [BATCH.schema.names] * 3
    assert [row["value"] for row in rows] == ["x", "y", None]


def test_unfitting_values_reject_the_record():
    def one(values, kind):
        rows, errors = outcome(ro.map_batches(lambda b: {"x": take(values, b)}, adds={"x": kind}))
        return [row["x"] for row in rows], [reason for _, reason, _ in errors]

    def take(values, batch):
        return values[[seq - 7 for seq in batch["seq"].to_pylist()]]

    assert one(np.array([1.0, np.nan, 3.0]), "float64") == ([1.0, None, 3.0], [])
    assert one(np.array([1, 2, 3], np.int32), "float64") == ([1.0, 2.0, 3.0], [])
    assert one(np.array([1.0, 2.5, 3.0]), "int64") == ([1, 3], ["wrong_type"])
    assert one(np.array(["a", "b", "c"]), "string") == (["a", "b", "c"], [])
    assert one(np.array(["1", "b", "3"], object), "float64") == ([1.0, 3.0], ["wrong_type"])
    assert one(np.arange(6.0).reshape(3, 2), "list<item: double>")[0] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_only_failing_records_are_rejected():
    calls = []

    def fn(batch):
        calls.append(batch.num_rows)
        values = batch["value"].to_pylist()
        if 13 in values:
            raise ValueError("thirteen")
        if 70 in values:
            raise RecordError("too warm", reason="warm")
        return {"double": [2 * v for v in values]}

    batch = pa.RecordBatch.from_pydict({"seq": list(range(100)), "value": list(range(100))})
    rows, errors = outcome(ro.map_batches(fn, adds={"double": "int64"}), batch)
    assert [row["double"] for row in rows] == [2 * v for v in range(100) if v not in (13, 70)]
    line = fn.__code__.co_firstlineno + 4
    assert errors == [
        (13, "function_error", f"ValueError: thirteen (test_batch_function.py, line {line}, in fn)"),
        (70, "warm", "too warm"),
    ]
    assert len(calls) <= 2 * 2 * 7 + 2  # two binary searches for single records, and a call without rows


@pytest.mark.parametrize("at", range(3))
def test_any_single_failing_record_is_rejected(at):
    def fn(batch):
        if 13 in batch["value"].to_pylist():
            raise ValueError("thirteen")
        return {"double": pc.multiply(batch["value"], 2)}

    values = [1, 2, 3]
    values[at] = 13
    batch = pa.RecordBatch.from_pydict({"seq": [0, 1, 2], "value": values})
    rows, errors = outcome(ro.map_batches(fn, adds={"double": "int64"}), batch)
    assert [row["double"] for row in rows] == [2 * v for v in values if v != 13]
    assert [(seq, reason) for seq, reason, _ in errors] == [(at, "function_error")]


def test_function_with_another_error_without_rows_continues():
    """Estimators of scikit-learn refuse an empty matrix."""

    def fn(batch):
        if not batch.num_rows:
            raise ValueError("no records")
        if batch["value"].null_count:
            raise ValueError("null")
        return {"double": pc.multiply(batch["value"], 2)}

    rows, errors = outcome(ro.map_batches(fn, adds={"double": "double"}))
    assert [row["double"] for row in rows] == [2.0, 4.0]
    assert [(seq, reason) for seq, reason, _ in errors] == [(9, "function_error")]


def test_function_with_the_same_error_without_rows_stops_the_run():
    with pytest.raises(KeyError, match="valeu"):
        outcome(ro.map_batches(lambda b: b["valeu"]))
    assert outcome(ro.map_batches(lambda b: b["valeu"]), BATCH.slice(0, 0)) == ([], [])


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, r"returned a NoneType; it must return a record batch.* \(device, value\)"),
        ([1, 2, 3], "returned a list; it must"),
        ({"value": [1.0]}, "returned 1 rows in 'value' for 3"),
        ({"valeu": [1.0] * 3}, "returned the field 'valeu', which its schema lacks.*did you mean"),
    ],
)
def test_result_of_the_wrong_form_stops_the_run(made, text):
    with pytest.raises(ConfigError, match=f"mine: the function {text}"):
        outcome(ro.map_batches(lambda b: made, label="mine"))


def test_output_does_not_depend_on_batches():
    def fn(batch):
        values = batch["value"].to_numpy(zero_copy_only=False)
        if (values == 3).any():
            raise ValueError("three")
        return {"root": np.sqrt(values)}

    flow = ro.Dataflow("roots")
    flow.sink(
        "out", flow.source("in", schema={"value": "float64"}).to(ro.map_batches(fn, adds={"root": "double"}), "r")
    )
    results = [flow.run([{"value": float(v % 5)} for v in range(23)], batch_size=n) for n in (1, 4, 100)]
    for result in results:
        assert result["r"]["root"].to_pylist() == [(v % 5) ** 0.5 for v in range(23) if v % 5 != 3]
        assert result.errors["seq"].to_pylist() == [3, 8, 13, 18]


@pytest.mark.parametrize(
    "options",
    [
        {"library": "polars"},
        {"adds": {"x": "flot"}},
        {"adds": {"x": "double"}, "schema": {"x": "double"}},
        {"adds": {}},
    ],
)
def test_wrong_parameters_are_refused(options):
    with pytest.raises(ConfigError):
        ro.map_batches(len, **options)
    if "library" not in options:
        with pytest.raises(ConfigError):
            ro.map(len, **options)


def test_descriptor_names_the_function():
    task = BatchFunction(function=len, adds={"x": "double"}, library="pandas", label="size")
    data = task.to_dict()
    assert (data["function"], data["adds"], data["library"]) == ("builtins:len", [["x", "double"]], "pandas")
    assert BatchFunction.with_function(data, len) == task
