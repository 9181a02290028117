"""Formats of files: the inference of fields from JSON lines, rows of CSV of any size, and many fields."""

from __future__ import annotations

import csv
import json
from time import process_time

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.ingest.file_formats import JSONLinesFormat


def test_json_fields_are_inferred_from_limited_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.ingest.file_formats.BATCH_BYTES", 40)
    path = tmp_path / "large.jsonl"
    path.write_text('{"text": "0123456789", "a": 1}\n{"b": 2, "text": "0123456789"}\n{"c": 3}\n')
    assert JSONLinesFormat().schema(str(path)).names == ["text", "a", "b"]


LONG = "x" * 5000
ROWS = {
    "first": [["1", LONG], ["2", "a"]],
    "last": [*([str(i), "a"] for i in range(300)), ["300", LONG]],
    "several": [["1", "a"], ["2", LONG], ["3"], ["4", "b"], ["5", LONG * 3], ["6", "c"], ["7", "a", "b"]],
    "line breaks": [["1", "a\nb" * 2000], ["2", "c"]],
}


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_rows_of_csv_may_be_larger_than_a_block(tmp_path, monkeypatch, rows, header):
    monkeypatch.setattr("riot_ops.ingest.file_formats.BLOCK_BYTES", 1024)
    path = tmp_path / "long.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["n", "text"], *rows] if header else rows)
    flow = ro.Dataflow("long")
    flow.sink("out", flow.source("rows", schema={"n": "int64", "text": "string"}))
    result = flow.run(ro.read(path, header=None if header else ["n", "text"]))
    good = [row for row in rows if len(row) == 2]
    assert [[str(r["n"]), r["text"]] for r in result["rows"].to_pylist()] == good
    assert result.errors["seq"].to_pylist() == [i for i, row in enumerate(rows) if len(row) != 2]


def test_row_of_csv_beyond_the_limit_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.ingest.file_formats.BLOCK_BYTES", 1024)
    monkeypatch.setattr("riot_ops.ingest.file_formats.MAX_ROW_BYTES", 1 << 20)
    path = tmp_path / "open.csv"
    path.write_text('n\n"1\n' + "2\n" * (1 << 20))
    flow = ro.Dataflow("long")
    flow.sink("out", flow.source("rows", schema={"n": "int64"}))
    with pytest.raises(ConnectorError, match=r"open\.csv: a row has more than 1 MiB, or lacks a closing quote"):
        flow.run(ro.read(path))


@pytest.mark.long
def test_cost_grows_with_the_fields_and_not_with_their_square(tmp_path):
    names = [f"f{i}" for i in range(2000)]
    records = [dict.fromkeys(names, 1.0)] * 3
    table = pa.Table.from_pylist(records)
    parquet.write_table(table, tmp_path / "wide.parquet")
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    (tmp_path / "wide.jsonl").write_text(json.dumps(records[0]) + "\n")
    files = [ro.read(tmp_path / f"wide.{end}") for end in ("parquet", "csv", "jsonl")]
    flow = ro.Dataflow("wide")
    rows = flow.source("rows", schema=dict.fromkeys(names, "double")).to(t.MovingAverage(value="f0", window=1))
    flow.sink("out", rows)
    flow.run(records[:1])
    for data in (records, table, pd.DataFrame(records), iter(records), *files):
        start = process_time()
        assert flow.run(data).errors.num_rows == 0
        assert process_time() - start < 1.5, data  # with the square of the fields it takes many seconds
