"""``riot-ops run`` over files of records, for a dataflow whose source declares their fields."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops.cli import main as cli
from riot_ops.cli.flow_job import FlowJob
from riot_ops.cli.record_feed import RecordFeed
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.ingest.file_formats import CSVFormat

START = datetime(2026, 1, 1, tzinfo=UTC)
#: The last record has a bad cell.
RECORDS = [("a", 0, "1.5"), ("b", 1, "10"), ("a", 2, "2.5"), ("b", 3, "20.0"), ("a", 4, "warm")]
TIMES = [(START + timedelta(seconds=s)).isoformat() for _, s, _ in RECORDS]
WANTED = [("a", 2, 2.0), ("b", 3, 15.0)]


@pytest.fixture
def flow(tmp_path):
    """A descriptor of averages over two values."""
    dataflow = ro.Dataflow("averages")
    schema = {"device": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double"}
    dataflow.sink(
        "out", dataflow.source("readings", schema=schema).to(ro.tasks.MovingAverage(by="device", window=2), id="avg")
    )
    path = tmp_path / "flow.json"
    path.write_text(dataflow.to_json(), encoding="utf-8")
    return path


def csv(delimiter=",", name="event_time", times=TIMES):
    rows = [(device, time, value) for (device, _, value), time in zip(RECORDS, times, strict=True)]
    return "\n".join(delimiter.join(row) for row in [("device", name, "value"), *rows])


def jsonl(_=None):
    """Write values as numbers, except the bad one."""
    values = [value if value[0].isdigit() else f'"{value}"' for _, _, value in RECORDS]
    parts = zip(RECORDS, TIMES, values, strict=True)
    return "\n".join(f'{{"device":"{d}","event_time":"{t}","value":{v}}}' for (d, _, _), t, v in parts)


def seconds(unit):
    """The times as numbers of a unit since 1970."""
    return [f"{(START + timedelta(seconds=s)).timestamp() * unit:.0f}" for _, s, _ in RECORDS]


def run(flow, path, *options):
    out = path.parent / "out"
    result = CliRunner().invoke(
        cli.app, ["run", str(flow), "--input", str(path), "--runner", "local", "--out", str(out), *options]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return pq.read_table(out / "avg"), pq.read_table(out / "errors"), result.output


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("r.csv", csv(), ()),
        ("r.csv", csv(";"), ()),
        ("r.csv.gz", csv("\t"), ()),
        ("r.dat", csv(), ("--format", "csv")),
        ("r.csv", csv(name="at"), ("--time", "at")),
        ("r.csv", csv(name="at", times=seconds(1)), ("--time", "at", "--time-unit", "s")),
        ("r.csv", csv(name="at", times=seconds(1000)), ("--time", "at", "--time-unit", "ms")),
        ("r.jsonl", jsonl(), ()),
        ("r.txt", jsonl(), ("--format", "jsonl")),
    ],
    ids=["csv", "semicolons", "packed", "format", "time", "seconds", "milliseconds", "json", "json-format"],
)
def test_cells_are_cast_to_the_declared_types_or_rejected(flow, tmp_path, name, content, options):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    averages, errors, _ = run(flow, path, *options)
    assert averages.schema.field("value").type == pa.float64()
    assert averages.schema.field("event_time").type == pa.timestamp("us", "UTC")
    rows = [(r["device"], r["event_time"], r["value"]) for r in averages.to_pylist()]
    assert sorted(rows) == [(device, START + timedelta(seconds=s), value) for device, s, value in WANTED]
    (error,) = errors.to_pylist()
    assert (error["seq"], error["reason"]) == (4, "wrong_type")
    assert error["message"] == "value = 'warm' (str) is not of type double"


def test_header_is_parsed_once_and_with_the_guessed_delimiter(tmp_path, monkeypatch):
    path, parsed = tmp_path / "r.csv", []
    path.write_text(csv(";"))
    fields = CSVFormat.fields
    monkeypatch.setattr(CSVFormat, "fields", lambda form, path: parsed.append(form.delimiter) or fields(form, path))
    schema = pa.schema([("device", pa.string()), ("value", pa.float64())])
    feed = RecordFeed("city", 1, 1, input=path, source_id="readings", fields=schema)
    source = feed.source(paced=False)
    assert source.schema.names[-3:] == ["device", "event_time", "value"]
    assert parsed[:1] == [";"] and set(parsed) == {";"}


def test_parquet_files(flow, tmp_path):
    times = [START + timedelta(seconds=s) for _, s, _ in RECORDS[:4]]
    table = {"device": ["a", "b", "a", "b"], "event_time": times, "value": [1.5, 10.0, 2.5, 20.0], "other": [None] * 4}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    averages, errors, _ = run(flow, tmp_path / "r.parquet")
    assert (sorted(averages["value"].to_pylist()), errors.num_rows) == ([2.0, 15.0], 0)


@pytest.mark.long
def test_pace_and_checkpoint_apply_to_record_files(flow, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(csv())
    again = ("--checkpoint", str(tmp_path / "checkpoint"))
    _, _, output = run(flow, path, "--rate", "10", *again)
    took = float(re.search(r"5 messages in ([\d.]+) s", output)[1])
    assert took >= 0.4, "four records after the first, 0.1 s each"
    with path.open("a") as file:
        file.write(f"\na,{TIMES[4]},3.5\na,{TIMES[4]},4.5\n")
    averages, _, output = run(flow, path, *again)
    assert "2 messages" in output
    assert sorted(averages["value"].to_pylist()) == [2.0, 4.0, 15.0]


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (csv(), {"key": "device"}, "--key is for applications"),
        (csv(), {"speed": 2.0}, "--speed needs messages that begin with their time; with files of records use --rate"),
        (csv(), {"rate": 2.0, "curve": "city"}, "--curve city and --rate 2 both set the pace"),
        (csv(), {"format": "senml"}, "format must be csv, parquet or jsonl, got 'senml'"),
        (csv(), {"time_unit": "ms"}, "time_unit applies to the column named by time"),
        (csv(name="at"), {}, "lacks the field 'event_time'; it has seq, device, at, value; --time names the column"),
        (csv().replace("value", "valeu"), {}, "lacks the field 'value'.* did you mean \"valeu\"?"),
        ("device,event_time,value\n", {}, "has no records"),
        ("", {}, "r.csv: Empty CSV file"),
        (None, {}, "declares the fields device, event_time, value: --input must name a file with them"),
    ],
    ids=["key", "speed", "pace", "format", "unit", "time", "field", "empty", "bare", "generated"],
)
def test_unreadable_files_are_refused_before_the_run(flow, tmp_path, content, options, text):
    given = None
    if content is not None:
        given = tmp_path / "r.csv"
        given.write_text(content)
    with pytest.raises((ConfigError, ConnectorError), match=text):
        FlowJob(str(flow), input=given, runner="local", out=tmp_path / "out", **options).check()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["time", "time-unit"])
def test_run_continues_only_with_the_same_time_options(flow, tmp_path, name):
    path = tmp_path / "r.csv"
    path.write_text("device,value,at,since\n" + "".join(f"a,{i},{i},{i}\n" for i in range(9)))
    given = {"time": "at", "time-unit": "s", "checkpoint": str(tmp_path / "checkpoint")}
    run(flow, path, *(word for option, value in given.items() for word in (f"--{option}", value)))
    other = {**given, name: {"time": "since", "time-unit": "ms"}[name]}
    again = (word for option, value in other.items() for word in (f"--{option}", value))
    with pytest.raises(AssertionError, match=f"holds a run with {name.replace('-', '_')} '{given[name]}'"):
        run(flow, path, *again)


def test_time_unit_is_refused_for_messages(tmp_path):
    lines = ro.Dataflow("lines")
    lines.sink("out", lines.source("lines"))
    (tmp_path / "flow.json").write_text(lines.to_json(), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"--time-unit is for a dataflow's JSON file"):
        FlowJob(str(tmp_path / "flow.json"), runner="local", time_unit="ms")


def test_options_of_read_reach_the_files(flow, tmp_path):
    path = tmp_path / "export.csv"
    rows = ["a;1.1.2026 0:00;1,5", "a;1.1.2026 0:00:02;-", "a;01.01.2026 01:00;2,5", "x;25.10.2026 02:30;1,0"]
    path.write_text("Export, made, by, hand\n# units\n" + "\n".join(rows) + "\n")
    options = {
        "header": "device,at,value", "delimiter": ";", "skip_rows": 1, "comment": "#", "decimal": ",", "tz": "Europe/Berlin",
        "time_format": "%d.%m.%Y %H:%M", "ambiguous": "latest",
    }  # fmt: skip
    given = [f"--read={name}={value}" for name, value in options.items()]
    run(flow, path, "--time", "at", *given, "--read=null_values=-", "--read=null_values=")
    found = pq.read_table(tmp_path / "out" / "avg").to_pylist()
    assert [(row["event_time"].hour, row["value"]) for row in found] == [(0, 2.0)]
    errors = pq.read_table(tmp_path / "out" / "errors")
    assert errors["reason"].to_pylist() == ["wrong_type"]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("decimals=,", '--read must be NAME=VALUE with a NAME of header, delimiter, .* did you mean "decimal"'),
        ("decimal", "got 'decimal'"),
        ("skip_rows=two", "skip_rows must be a whole number >= 0, got 'two'"),
        ("quoted_nulls=yes", "quoted_nulls must be True or False, got 'yes'"),
    ],
)
def test_wrong_options_of_read_are_refused(flow, tmp_path, option, text):
    path = tmp_path / "readings.csv"
    path.write_text(csv())
    with pytest.raises(ConfigError, match=text):
        FlowJob(str(flow), runner="local", input=path, read=(option,)).check()


def test_options_of_read_are_refused_for_messages(tmp_path):
    lines = ro.Dataflow("lines")
    lines.sink("out", lines.source("messages"))
    (tmp_path / "flow.json").write_text(lines.to_json())
    with pytest.raises(ConfigError, match="--read is for a dataflow's JSON file"):
        FlowJob(str(tmp_path / "flow.json"), runner="local", read=("skip_rows=1",))
