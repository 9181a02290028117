"""Rejected rows in a column of a DataFrame, without Spark."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import ERRORS
from riot_ops.dataflows.riotbench.operators import PiViete
from riot_ops.runtime.error_column import (
    ERROR_COLUMN,
    AcceptedFilter,
    RejectedFilter,
    apply_to_accepted,
    drop_error_column,
    passed_through,
    rejected_rows,
    result_schema,
    to_rejected_records,
)

PLAIN = pa.schema([("seq", pa.int64()), ("value", pa.float64())])
WITH_ERRORS = PLAIN.append(pa.field(ERROR_COLUMN, pa.string()))
ROWS = pa.RecordBatch.from_pylist(
    [
        {"seq": 1, "value": 1.0},
        {"seq": 2, "value": 2.0, ERROR_COLUMN: '{"task": "a"}'},
        {"seq": 3, "value": 3.0},
    ],
    schema=WITH_ERRORS,
)


def test_accepted_and_rejected_rows_are_separated():
    assert drop_error_column(PLAIN) is PLAIN
    assert drop_error_column(WITH_ERRORS) == PLAIN == AcceptedFilter().output_schema(WITH_ERRORS)
    assert drop_error_column(pa.schema([WITH_ERRORS.field(ERROR_COLUMN), *PLAIN])) == PLAIN
    assert AcceptedFilter().apply(ROWS, RejectedRecords("x")).to_pylist() == [
        {"seq": 1, "value": 1.0},
        {"seq": 3, "value": 3.0},
    ]
    assert RejectedFilter().apply(ROWS, RejectedRecords("x"))["seq"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (PLAIN.append(pa.field(ERROR_COLUMN, pa.int64())), "int64"),
        (WITH_ERRORS.append(pa.field(ERROR_COLUMN, pa.string())), "there more than once"),
    ],
    ids=["type", "twice"],
)
def test_conflicting_column_is_refused(schema, what):
    with pytest.raises(ConfigError, match=f"but here it is {what}; rename it"):
        drop_error_column(schema)


def test_result_schema():
    task = t.NoOp()
    assert result_schema(task, PLAIN, True).names == ["seq", "value", ERROR_COLUMN]
    assert result_schema(task, WITH_ERRORS, True).names == ["seq", "value", ERROR_COLUMN]
    assert result_schema(task, WITH_ERRORS, False).names == ["seq", "value"]
    strict = pa.schema([pa.field("value", pa.float64(), nullable=False)])
    assert result_schema(task, strict, True).field("value").nullable
    writes = PiViete(iterations=1, output=ERROR_COLUMN)
    with pytest.raises(ConfigError, match=f"must not write the field '{ERROR_COLUMN}'"):
        result_schema(writes, PLAIN, True)


def around(batch, result):
    """Return the output for rows where a task accepts 1.0 and rejects everything else."""

    def run(rows, rejects):
        keep = pa.array([value == 1.0 for value in rows.column("value").to_pylist()])
        rejects.reject(rows, ~keep.to_numpy(zero_copy_only=False), "picky", "not 1")
        yield rows.filter(keep)

    return [row for out in apply_to_accepted(run, batch, RejectedRecords("picky"), result) for row in out.to_pylist()]


@pytest.mark.parametrize("result", [WITH_ERRORS, None], ids=["given", "inferred"])
def test_rejected_rows_bypass_task(result):
    first, second, third = around(ROWS, result)
    assert first == {"seq": 2, "value": 2.0, ERROR_COLUMN: '{"task": "a"}'}
    assert second == {"seq": 1, "value": 1.0, ERROR_COLUMN: None}
    assert (third["seq"], third["value"]) == (3, None)
    error = json.loads(third[ERROR_COLUMN])
    assert list(error) == ["task", "reason", "message", "raw"]
    assert (error["task"], error["reason"], error["message"]) == ("picky", "picky", "not 1")
    assert json.loads(error["raw"])["value"] == 3.0


def test_dropped_rows_are_logged(caplog):
    caplog.set_level(logging.WARNING, "riot_ops")
    assert around(ROWS, PLAIN) == [{"seq": 1, "value": 1.0}]
    assert [r.getMessage() for r in caplog.records] == [
        "1 records that an earlier task rejected were dropped",
        "picky rejected 1 records, first: not 1",
    ]
    caplog.clear()
    assert list(passed_through(ROWS.slice(0, 0), PLAIN)) == []
    assert list(rejected_rows([], PLAIN)) == []
    assert not caplog.records


def test_field_of_other_type_is_not_passed_on():
    result = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.float64()), (ERROR_COLUMN, pa.string())])
    schema = pa.schema([("a", pa.int16()), ("b", pa.string()), ("c", pa.int64()), (ERROR_COLUMN, pa.string())])
    rows = pa.RecordBatch.from_pylist([{"a": 1, "b": "x", "c": 2, ERROR_COLUMN: "{}"}], schema=schema)
    assert next(passed_through(rows, result)).to_pylist() == [{"a": 1, "b": None, "c": None, ERROR_COLUMN: "{}"}]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"task": "a", "reason": "b", "message": "c", "raw": "d"}', ("a", "b", "c", "d")),
        ('{"task": "a", "message": null, "raw": {"x": 1}}', ("a", "rejected", None, '{"x": 1}')),
        ("of the user's own", ("", "rejected", "of the user's own", None)),
        ("[1, 2]", ("", "rejected", "[1, 2]", None)),
    ],
)
def test_error_texts_become_rejected_records(text, wanted):
    rows = pa.RecordBatch.from_pylist([{"seq": 5, "value": 1.0, ERROR_COLUMN: text}], schema=WITH_ERRORS)
    found = to_rejected_records(rows)
    assert found.schema == ERRORS
    (row,) = found.to_pylist()
    assert (row["seq"], row["event_time"]) == (5, None)
    assert tuple(row[name] for name in ("task", "reason", "message", "raw")) == wanted
