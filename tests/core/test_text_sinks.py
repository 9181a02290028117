"""Results as CSV and JSON lines: beside pandas, DuckDB and the standard library; reading back; restarts; misuse."""

from __future__ import annotations

import csv
import json
import os
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.text_sinks import FILE_SINKS, CSVSink, JSONLinesSink

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.float64()),
        ("single", pa.float32()),
        ("id", pa.int64()),
        ("wide", pa.uint64()),
        ("flag", pa.bool_()),
        ("money", pa.decimal128(20, 4)),
        ("time", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ns")),
        ("day", pa.date32()),
        ("hour", pa.time64("us")),
        ("span", pa.duration("us")),
        ("list", pa.list_(pa.float64())),
        ("pair", pa.struct([("x", pa.int64()), ("t", pa.string())])),
    ]
)
ROW = {
    "text": 'a,b;"c"\r\nü\u2028😀',
    "number": 0.1 + 0.2,
    "single": 0.5,
    "id": 2**63 - 1,
    "wide": 2**64 - 1,
    "flag": True,
    "money": Decimal("-12345678901234.1000"),
    "time": datetime(2024, 5, 1, 12, 30, 0, 1, tzinfo=UTC),
    "local": datetime.fromisoformat("1969-12-31T23:59:59.999999"),
    "day": date(2024, 2, 29),
    "hour": time(23, 59, 59, 999999),
    "span": timedelta(microseconds=-1),
    "list": [1.5, None],
    "pair": {"x": 1, "t": "ü"},
}
EMPTY = dict.fromkeys(SCHEMA.names) | {"text": ""}
NULLS = dict.fromkeys(SCHEMA.names)


def write(sink, rows, batch=0, schema=SCHEMA):
    bound = sink.bind({"out": schema})
    writer = bound.writer(batch, 0)
    writer.write("out", pa.RecordBatch.from_pylist(rows, schema=schema))
    bound.commit(batch, [writer.finish()])
    return bound


@pytest.mark.parametrize("sink", [CSVSink, JSONLinesSink])
def test_all_types_are_read_back(sink, tmp_path):
    wanted = pa.Table.from_pylist([ROW, EMPTY, NULLS], schema=SCHEMA)
    read = write(sink(tmp_path), wanted.to_pylist()).table("out")
    assert read.schema.equals(SCHEMA)
    assert read.equals(wanted)


def test_csv_as_other_readers_see_it(tmp_path):
    write(CSVSink(tmp_path), [ROW, EMPTY, NULLS])
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "part-000000-00000.csv"
    with path.open(newline="", encoding="utf-8") as file:
        first, empty, nulls = csv.DictReader(file)
    assert first == {
        "text": ROW["text"],
        "number": "0.30000000000000004",
        "single": "0.5",
        "id": "9223372036854775807",
        "wide": "18446744073709551615",
        "flag": "true",
        "money": "-12345678901234.1000",
        "time": "2024-05-01 12:30:00.000001Z",
        "local": "1969-12-31 23:59:59.999999000",
        "day": "2024-02-29",
        "hour": "23:59:59.999999",
        "span": "-1",
        "list": "[1.5,null]",
        "pair": '{"x":1,"t":"ü"}',
    }
    assert set(empty.values()) == set(nulls.values()) == {""}
    assert path.read_bytes().splitlines()[-2:] == [b'""' + b"," * 13, b"," * 13]
    frame = pd.read_csv(path)
    assert frame["id"].iloc[0] == 9.223372036854775807e18 and pd.isna(frame["number"].iloc[1])


def test_delimiter(tmp_path):
    schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
    bound = write(CSVSink(tmp_path, delimiter="\t"), [{"a": "x\ty", "b": 1}], schema=schema)
    (path,) = (tmp_path / "out").iterdir()
    assert path.read_text() == '"a"\t"b"\n"x\ty"\t1\n'
    assert bound.table("out").to_pylist() == [{"a": "x\ty", "b": 1}]


def test_json_lines_as_other_readers_see_them(tmp_path):
    schema = SCHEMA.append(pa.field("raw", pa.binary()))
    write(JSONLinesSink(tmp_path), [ROW | {"raw": b"\x00\xff"}, EMPTY], schema=schema)
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "part-000000-00000.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    first, empty = (json.loads(line, parse_float=Decimal) for line in lines[:-1])
    assert lines[-1] == "" and list(first) == schema.names
    assert first == {
        "text": ROW["text"],
        "number": Decimal("0.30000000000000004"),
        "single": Decimal("0.5"),
        "id": 2**63 - 1,
        "wide": 2**64 - 1,
        "flag": True,
        "money": ROW["money"],
        "time": "2024-05-01T12:30:00.000001Z",
        "local": "1969-12-31 23:59:59.999999000",
        "day": "2024-02-29",
        "hour": "23:59:59.999999",
        "span": -1,
        "list": [Decimal("1.5"), None],
        "pair": {"x": 1, "t": "ü"},
        "raw": "AP8=",
    }
    assert empty == dict.fromkeys(schema.names) | {"text": ""}


def test_non_json_numbers_become_null(tmp_path):
    schema = pa.schema([("v", pa.float64())])
    rows = [{"v": float("nan")}, {"v": float("inf")}, {"v": 1.0}]
    assert write(JSONLinesSink(tmp_path / "j"), rows, schema=schema).table("out")["v"].to_pylist() == [None, None, 1.0]
    read = write(CSVSink(tmp_path / "c"), rows, schema=schema).table("out")["v"].to_pylist()
    assert str(read) == "[nan, inf, 1.0]"


@pytest.mark.parametrize("sink", [CSVSink, JSONLinesSink])
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
                "n": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "t": st.none() | st.datetimes(timezones=st.just(UTC)).filter(lambda t: 1 < t.year < 9999),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_text_number_and_time_is_read_back(sink, rows, tmp_path_factory):
    schema = pa.schema([("text", pa.string()), ("n", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
    bound = write(sink(tmp_path_factory.mktemp("x")), rows, schema=schema)
    assert bound.table("out").equals(pa.Table.from_pylist(rows, schema=schema))


def steps():
    dataflow = ro.Dataflow("texts")
    source = dataflow.source("in", schema={"key": "string", "value": "double"})
    return dataflow.sink("out", source.to(ro.tasks.RunningCount(by="key"), id="counts"))


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_run_continues_from_its_checkpoint(format, tmp_path):
    rows = pa.table({"key": ["a", "b", "ü"] * 4, "value": [float(n) for n in range(12)]})
    options = {"checkpoint": tmp_path / "checkpoint", "batch_size": 3, "epoch_rows": 3}
    seen = []

    def stop(summary):
        seen.append(summary.messages)
        if summary.messages >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps().run(ro.MemorySource(rows), sinks=FILE_SINKS[format](tmp_path / "out"), progress=stop, **options)
    result = steps().run(ro.MemorySource(rows), sinks=FILE_SINKS[format](tmp_path / "out"), **options)
    wanted = steps().run(ro.MemorySource(rows))["counts"]
    assert result["counts"].equals(wanted)
    assert {path.suffix for path in (tmp_path / "out").glob("*/*")} == {f".{format}"}
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        steps().run(ro.MemorySource(rows), sinks=FILE_SINKS[format](tmp_path / "out"))


def test_stream_without_records_has_a_readable_file(tmp_path):
    for format in FILE_SINKS:
        result = steps().run([], sinks=FILE_SINKS[format](tmp_path / format))
        assert result["counts"].num_rows == 0 and result["counts"].schema.equals(steps().schemas()["counts"]), format
        assert (tmp_path / format / "counts" / f"empty.{format}").exists()


@pytest.mark.spark
def test_text_files_on_spark(spark, tmp_path):
    rows = pa.table({"key": ["a", "b", "ü"] * 4, "value": [float(n) for n in range(12)]})
    wanted = steps().run(ro.MemorySource(rows))["counts"].sort_by("seq")
    for format in ("csv", "jsonl"):
        query = steps().start(spark, ro.MemorySource(rows), sinks=FILE_SINKS[format](tmp_path / format), max_records=5)
        query.wait()
        assert query["counts"].sort_by("seq").equals(wanted), format


def test_bytes_in_csv_are_refused_before_the_run(tmp_path):
    dataflow = ro.Dataflow("raw")
    dataflow.sink("out", dataflow.source("in", schema={"raw": "binary"}))
    with pytest.raises(ConfigError, match=r"column 'raw' of stream 'in' has type binary, for which CSV has no form"):
        dataflow.run([], sinks=CSVSink(tmp_path))
    assert dataflow.run([{"raw": b"\xff"}], sinks=JSONLinesSink(tmp_path))["in"]["raw"].to_pylist() == [b"\xff"]


@pytest.mark.parametrize("delimiter", ["", "::", '"', "\n", "é", 1])
def test_impossible_delimiter_is_refused(delimiter, tmp_path):
    with pytest.raises(ConfigError, match="delimiter must be one ASCII character"):
        CSVSink(tmp_path, delimiter=delimiter)


@pytest.mark.parametrize(
    ("sink", "damage"), [(CSVSink, b'"v"\nx\n'), (JSONLinesSink, b'{"v":"x"}\n'), (JSONLinesSink, b"{")]
)
def test_damaged_file_is_named(sink, damage, tmp_path):
    bound = write(sink(tmp_path), [{"v": 1.0}], schema=pa.schema([("v", pa.float64())]))
    (path,) = (tmp_path / "out").iterdir()
    path.write_bytes(damage)
    with pytest.raises(ConnectorError, match=rf"cannot read {path}: "):
        bound.table("out")


# -- rolling -----------------------------------------------------------------------------------------


#: The name of a column may hold what ends a line.
ROLLED = pa.schema([('a "name"\nof two lines', pa.string()), ("value", pa.float64())])


def rolled_rows(batch):
    return [dict(zip(ROLLED.names, (text, float(batch)), strict=True)) for text in ("x,\n", "", None)]


def shown(sink, folder):
    """The values that another program sees, by file."""
    found = {}
    for path in sorted((folder / "out").glob(f"*.{sink.suffix}")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file)) if sink is CSVSink else [json.loads(line) for line in file]
        assert {tuple(row) for row in rows} == {tuple(ROLLED.names)}
        found[path.name] = [float(row["value"]) for row in rows]
    return found


@pytest.mark.parametrize("sink", [CSVSink, JSONLinesSink])
def test_files_are_rolled_by_size(sink, tmp_path):
    size = 0
    for batch in range(30):
        bound = write(sink(tmp_path, roll_bytes=500), rolled_rows(batch), batch, ROLLED)
        waiting = sum(path.stat().st_size for path in (tmp_path / "out").glob(".waiting-*"))
        size = max(size, waiting)
        assert bound.table("out").to_pylist() == [row for n in range(batch + 1) for row in rolled_rows(n)]
    assert 500 <= size < 1000
    assert 2 <= len(shown(sink, tmp_path)) < 15
    bound.end({})
    seen = shown(sink, tmp_path)
    assert [value for values in seen.values() for value in values] == [float(n) for n in range(30) for _ in range(3)]
    assert all(path.name[0] != "." for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("sink", [CSVSink, JSONLinesSink])
def test_files_are_rolled_by_age(sink, tmp_path):
    for batch in range(3):
        write(sink(tmp_path, roll_interval="1h"), rolled_rows(batch), batch, ROLLED)
    assert shown(sink, tmp_path) == {}
    for path in (tmp_path / "out").glob(".waiting-000000-*"):
        os.utime(path, (path.stat().st_mtime - 3601,) * 2)
    bound = write(sink(tmp_path, roll_interval=timedelta(hours=1)), rolled_rows(3), 3, ROLLED)
    assert shown(sink, tmp_path) == {
        f"part-000002-rolled.{sink.suffix}": [float(n) for n in range(3) for _ in range(3)]
    }
    assert bound.table("out").to_pylist() == [row for n in range(4) for row in rolled_rows(n)]


@pytest.mark.parametrize("sink", [CSVSink, JSONLinesSink])
def test_files_of_an_object_store_are_rolled(sink):
    place = f"memory://rolled-{sink.suffix}"
    for batch in range(3):
        bound = write(sink(place, roll_interval="1h"), rolled_rows(batch), batch, ROLLED)
    bound = write(sink(place, roll_bytes=1), rolled_rows(3), 3, ROLLED)
    joined, waiting = (path.name for _, _, path in bound.files())
    assert joined.startswith("part-000002-rolled-") and joined.endswith(f".{sink.suffix}")
    assert waiting.startswith(".waiting-000003-00000-")
    assert bound.table("out").to_pylist() == [row for n in range(4) for row in rolled_rows(n)]


def test_rolled_text_of_a_run_that_continues(tmp_path):
    """A restart of the same dataflow repeats nothing and loses nothing."""
    flow = ro.Dataflow("air")
    source = flow.source("readings", schema={"value": "double"})
    flow.sink("out", source)
    rows = [{"value": float(n)} for n in range(10)]
    options = {"batch_size": 2, "epoch_rows": 2, "checkpoint": tmp_path / "c"}
    for count in (6, 10):
        flow.run(rows[:count], sinks=CSVSink(tmp_path / "out", roll_bytes=1), **options)
    files = sorted((tmp_path / "out" / "readings").iterdir())
    assert any(path.name.endswith("-rolled.csv") for path in files)
    texts = [path.read_text() for path in files]
    found = [float(row["value"]) for text in texts for row in csv.DictReader(text.splitlines())]
    assert found == [float(n) for n in range(10)]


def test_columns_that_changed_are_not_rolled_into_one_csv_file(tmp_path):
    for batch, name in enumerate("ab"):
        write(CSVSink(tmp_path, roll_interval="1h"), [{name: 1}], batch, pa.schema([(name, pa.int64())]))
    with pytest.raises(
        ConnectorError, match=r"cannot roll the files of stream 'out' into .*1-rolled.csv: .*other columns"
    ):
        write(CSVSink(tmp_path, roll_bytes=1), [{"b": 1}], 2, pa.schema([("b", pa.int64())]))


@pytest.mark.parametrize("kind", [ro.CSVSink, ro.JSONLinesSink, ro.ParquetSink])
def test_settings_of_a_store_reach_its_address(kind):
    given = {"aws_region": "eu-central-1", "aws_secret_access_key": ro.Secret("pa55-never-shown")}
    sink = kind("s3://bucket/out", storage_options=given)
    assert dict(sink.folder.options) == given and "pa55" not in repr(sink) + str(vars(sink))
    assert dict(sink.bind({"out": pa.schema([("a", pa.int64())])}).folder.options) == given
