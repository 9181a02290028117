"""How the command recognises files by their first lines."""

from __future__ import annotations

import gzip
import json
import logging
import time

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from riot_ops import streams
from riot_ops.cli import main as cli
from riot_ops.cli.feed import Feed
from riot_ops.cli.job import Job
from riot_ops.cli.micro_job import MicroJob
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.ingest.pace import PacedSource
from riot_ops.streams import CitySource, ReplaySource, write
from riot_ops.streams.catalog import catalog_entry
from tests.streams.records import table

HEADER = "when,device,temperature,note,humidity"
ROWS = [f"2024-01-01T00:00:{i:02d}Z,d{i % 3},{20 + i},fine,{50 - i}" for i in range(40)]


@pytest.fixture
def file(tmp_path):
    def write(content, name="readings.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def feed(path, **options):
    return Feed("city", 1, 1, input=path, **options)


def csv_feed(path, **options):
    return feed(path, format="csv", **({"time": "when", "key": "device"} | options))


def refusal(path, **options):
    with pytest.raises((ConfigError, ConnectorError)) as refused:
        feed(path, **options).check()
    return str(refused.value)


def test_plain_csv_is_refused_with_the_right_command(file):
    path = file("\n".join([HEADER, *ROWS]))
    message = refusal(path)
    assert "none of the first 41 lines" in message
    assert f"the first line: '{HEADER}'" in message
    assert "such as 1422748800000," in message
    assert f"riot-ops run stats --input {path} --format csv --time when --key device" in message


def test_example_in_a_refusal_is_readable(file):
    message = refusal(file("a,b\n1,2\n"))
    example = message.partition("such as ")[2].splitlines()[0]
    feed(file(example, "example.csv")).check()


@pytest.mark.parametrize(
    ("header", "rows", "time", "key"),
    [
        ("value,ts,station", ["1,2024-01-01,x"], "ts", "station"),
        ("Date,humid,Sensor ID,v", ["2024-01-01,2,a,3"], "Date", "Sensor ID"),
        ("a,b,colour", ["1,2,red"], "COLUMN", "colour"),
        ("a,b,c", ["x,1422748800000,2"], "b", "a"),
        ("a,b,c", ["x,2,2024-01-01 10:00"], "c", "a"),
        ("a,b", ["1,2"], "COLUMN", "COLUMN"),
    ],
)
def test_columns_are_guessed(file, header, rows, time, key):
    assert f"--time {time} --key {key}" in refusal(file("\n".join([header, *rows])))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"\x00\x01\xff\x00", "is not text"),
        (gzip.compress(b"1,{}\n", mtime=0), "its name must end in .gz"),
        (b"some words\nand more\n", "--stream must name the stream"),
        (b'{"a": 1}\n{"a": 2}\n', "--stream must name the stream"),
        (b"1,2,3\n4,5,6\n", "--stream must name the stream"),
    ],
)
def test_refusal_describes_the_file(file, content, text):
    assert text in refusal(file(content))


def test_missing_file_and_empty_folder_are_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "missing.csv")
    assert "holds no files" in refusal(tmp_path)


def test_one_readable_line_is_enough(file):
    entries = [{"n": "source", "sv": "s1"}, {"n": "temperature", "v": 20.5}]
    good = "1000," + json.dumps({"e": entries, "bt": 1000})
    feed(file("\n".join(["# recorded in Geneva", good]))).check()


def observations(source):
    from riot_ops import tasks as t

    parse = t.ParseSenML(schema=source.schema, fields=source.schema.numeric)
    rows = [row for batch in source.parsed(parse) for row in batch.to_pylist()]
    return [(r["event_time"].isoformat(), r["sensor_id"], r["obs_type"], r["value"]) for r in rows]


EXPECTED = [
    (f"2024-01-01T00:00:{i:02d}+00:00", f"d{i % 3}", name, value)
    for i in range(40)
    for name, value in (("temperature", 20.0 + i), ("humidity", 50.0 - i))
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_with_its_own_columns_is_read(file, end, last, mark, delimiter):
    text = mark + end.join([HEADER, *ROWS]) + (end if last else "")
    source = csv_feed(file(text.replace(",", delimiter)))
    source.check()
    assert observations(source) == EXPECTED
    assert source.total() == 40
    assert source.has_custom_columns


def test_columns_of_the_stream_need_no_names(file):
    lines = ["s1,1000,2.5", "s2,2000,3.5"]
    for text in ("\n".join(lines), "\n".join(["meterid,timestamp,energyconsumed", *lines])):
        source = Feed("grid", 1, 1, input=file(text), format="csv")
        source.check()
        assert [row[1:] for row in observations(source)] == [
            ("s1", "energyconsumed", 2.5),
            ("s2", "energyconsumed", 3.5),
        ]
        assert not source.has_custom_columns


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format": "xml"}, "--format must be senml or csv, got 'xml'"),
        ({"time": "when"}, "--time and --key name columns and need --format csv"),
        ({"format": "csv", "time": "when"}, "--time and --key must be given together"),
        ({"format": "csv", "time": "whem", "key": "device"}, "--time whem: {path} has the columns when, device"),
        ({"format": "csv", "time": "when", "key": "devise"}, 'did you mean "device"?'),
        ({"format": "csv", "time": "when", "key": "device", "speed": 2.0}, "--speed needs messages that begin"),
        ({"format": "csv", "time": "note", "key": "device"}, "bad_time"),
        ({"format": "csv"}, "expected columns: timestamp, source"),
    ],
)
def test_misuse_of_file_options_is_refused(file, options, text):
    path = file("\n".join([HEADER, *ROWS]))
    assert text.format(path=path) in refusal(path, **options)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("when,device,device\n1,a,2\n", "must have a different name for each column"),
        ("when,device,note\n1,a,x\n", "has no numeric column"),
        ("", "is empty"),
    ],
)
def test_unusable_tables_are_refused(file, content, text):
    with pytest.raises(ConfigError, match=text):
        csv_feed(file(content))


def test_csv_needs_a_file():
    with pytest.raises(ConfigError, match="--format csv needs --input"):
        Feed("city", 1, 1, format="csv")


@pytest.mark.parametrize(("first", "warns"), [("1704067200", True), ("1704067200000", False)])
def test_times_in_seconds_give_a_warning(file, caplog, first, warns):
    caplog.set_level(logging.WARNING)
    csv_feed(file(f"when,device,v\n{first},a,1\n"))
    assert ("looks like seconds" in caplog.text) == warns


def test_generated_messages_follow_the_seed():
    for options, seed in (({}, 0), ({"seed": 3}, 3)):
        made = table(Feed("grid", 50, 10, **options).source(paced=False))
        assert made.equals(table(streams.generate("grid", 10, messages=50, seed=seed)))
    assert not made.equals(table(streams.generate("grid", 10, messages=50)))


def test_curve_sets_the_pace():
    plain = Feed("grid", 50, 10)
    assert type(plain.source(paced=True)) is type(plain.source(paced=False)), "as fast as possible"
    paced = Feed("grid", 50, 10, curve="taxi", speed=200.0).source(paced=True)
    assert paced.curve.mean == pytest.approx(catalog_entry("taxi").curve(200.0).mean)
    usual = Feed("grid", 50, 10, curve="taxi").source(paced=True)
    assert usual.curve.mean == pytest.approx(catalog_entry("taxi").curve(1000).mean)


def due_after(job, seconds):
    """Number of messages that are due a number of seconds after the first."""
    source = job.source(paced=True)
    assert isinstance(source, PacedSource)
    now = [0.0]
    source.clock = lambda: now[0]
    offset = source.latest(source.initial())
    now[0] = seconds
    end = source.latest(offset)
    return source.count(source.initial(), end)


@pytest.mark.parametrize(
    ("options", "seconds", "messages"),
    [
        ({"curve": "city"}, 100, 640_000),
        ({"curve": "taxi"}, 86.4 + 3 * 3.6 + 1, (2640 * 86.4) + 1.9e4),  # a day, and a night's beginning
        ({"curve": "fit"}, 10, 5000),
        ({"curve": "fit", "speed": 3.0}, 10, 15_000),
        ({"curve": "city", "speed": 500.0}, 100, 320_000),
    ],
)
def test_messages_are_due_along_the_curve(options, seconds, messages):
    for job in (Job(name="stats", messages=10**7, **options), MicroJob(name="micro", messages=10**7, **options)):
        assert due_after(job, seconds) == pytest.approx(messages, rel=0.03)


def test_file_is_replayed_along_the_curve(tmp_path):
    path = tmp_path / "city.csv"
    write(CitySource(20, messages=900), path)
    job = Job(name="stats", input=path, curve="fit")
    assert isinstance(job.source(paced=False), ReplaySource)
    assert due_after(job, 0.5) in (250, 251)


@pytest.mark.long
def test_command_follows_the_curve(tmp_path):
    begun = time.monotonic()
    options = ("--runner", "local", "--stream", "fit", "--sensors", "2", "--messages", "500", "--no-plot")
    result = CliRunner().invoke(cli.app, ["run", "stats", *options, "--curve", "fit", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert time.monotonic() - begun > 499 / 500


def test_unknown_curve_and_two_paces_are_refused():
    with pytest.raises(ConfigError, match=r"no generated stream 'citty'.*did you mean \"city\""):
        Job(name="stats", curve="citty")
    with pytest.raises(ConfigError, match="--curve city and --rate 5 both set the pace"):
        Job(name="stats", curve="city", rate=5.0)


@pytest.mark.parametrize("cell", ["n/a", "-", "unavailable"])
def test_column_with_some_non_numeric_cells_is_read(file, tmp_path, cell, caplog):
    rows = [f"2024-05-01T12:00:{i}Z,a,{cell if i == 12 else i},{i},on" for i in range(10, 41)]
    path = file("\n".join(["time,device,v,w,state", *rows]))
    out = tmp_path / "out"
    arguments = ["--input", path, "--format", "csv", "--time", "time", "--key", "device", "--runner", "local"]
    result = CliRunner().invoke(cli.app, ["run", "stats", *map(str, [*arguments, "--out", out])])
    assert result.exit_code == 0, result.output
    kinds = pq.read_table(sorted((out / "dac").glob("*.parquet")))["obs_type"].to_pylist()
    assert (kinds.count("v"), kinds.count("w"), "state" in kinds) == (30, 31, False)
    errors = pq.read_table(sorted((out / "errors").glob("*.parquet")))
    assert errors["reason"].to_pylist() == ["not_a_number"]
    assert f"the column v has no number (n/a) but {cell!r} in 1 of its first 31 rows" in caplog.text


def test_headers_of_all_files_of_a_folder_are_skipped(tmp_path, caplog):
    folder = tmp_path / "days"
    folder.mkdir()
    for day in (1, 2):
        rows = [f"2024-05-0{day}T12:00:{i}Z,a,{i}" for i in range(10, 41)]
        (folder / f"{day}.csv").write_text("\n".join(["time,device,v", *rows, ""]))
    out = tmp_path / "out"
    arguments = ["--input", folder, "--format", "csv", "--time", "time", "--key", "device", "--runner", "local"]
    result = CliRunner().invoke(cli.app, ["run", "stats", *map(str, [*arguments, "--out", out])])
    assert result.exit_code == 0, result.output
    assert pq.read_table(sorted((out / "dac").glob("*.parquet"))).num_rows == 62
    assert not caplog.records, "a header is no row"
    assert pq.read_table(sorted((out / "errors").glob("*.parquet"))).num_rows == 0
