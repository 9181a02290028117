"""``riot-ops run`` of applications that read lines of their own kind: what it reads, takes and refuses."""

from __future__ import annotations

import gzip
import inspect
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from riot_bench.harness.validation import compare, lines_of
from typer.testing import CliRunner

from riot_ops.cli import main as cli
from riot_ops.cli.application_job import ApplicationJob
from riot_ops.cli.settings import named, setting, settings
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import APPLICATIONS, BUILDERS, application
from riot_ops.streams import generate, replay, write
from riot_ops.streams.catalog import LINES as STREAMS

LINES = [name for name, one in APPLICATIONS.items() if one.suite != "riotbench"]


def call(*args):
    result = CliRunner().invoke(cli.app, [*map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list():
    entries = {entry["code"]: entry for entry in json.loads(call("run", "--list", "--json"))}
    assert entries["wc"] == {
        "code": "wc",
        "name": "word_count",
        "suite": "dspbench",
        "streams": ["counts"],
        "sources": ["lines"],
    }
    assert entries["stats"]["suite"] == "riotbench"
    shown = call("run", "--list")
    assert all(one.code in shown and one.name in shown for one in APPLICATIONS.values())


@pytest.mark.parametrize("name", LINES)
def test_an_application_is_described(name):
    one = application(name)
    assert application(one.code) is one
    assert BUILDERS[one.code] is BUILDERS[name] is one.builder
    flow = one.builder()
    assert {node.id for node in flow.kind("source")} == set(one.inputs)
    assert set(one.inputs.values()) <= set(STREAMS)
    assert set(one.files) <= set(inspect.signature(one.builder).parameters)
    assert one.purpose
    assert "stage 0" in call("plan", one.code)
    assert call("show", one.code).startswith("flowchart")


#: Messages until there is a result of each kind.
LONG = {"equipment_monitoring": 20_000}


@pytest.mark.parametrize("name", LINES)
def test_a_generated_stream_gives_results(name, tmp_path):
    out = tmp_path / "out"
    text = call("run", name, "--runner", "local", "--messages", LONG.get(name, 3000), "--out", out, "--no-plot")
    assert f"{name}: " in text
    flow = application(name).builder()
    for node in flow.kind("sink"):
        for edge in flow.inputs(node.id):
            files = list((out / edge.source).glob("*.parquet"))
            assert sum(pq.read_metadata(file).num_rows for file in files) > 0, edge.source


def counts(out):
    return {row["word"]: row["count"] for row in pq.read_table(out / "counts").sort_by("count").to_pylist()}


def test_a_file_a_parameter_and_a_seed(tmp_path, shared_data):
    books = shared_data / "dspbench/synthetic/books.txt"
    call("run", "WC", "--runner", "local", "--input", books, "--set", "lowercase=true", "--out", tmp_path / "a")
    assert sum(counts(tmp_path / "a").values()) == 3866
    assert len(counts(tmp_path / "a")) == 15
    named_file = f"lines={books}"
    call("run", "word_count", "--runner", "local", "--input", named_file, "--out", tmp_path / "b")
    assert len(counts(tmp_path / "b")) == 30
    for seed in (1, 2):
        call("run", "wc", "--runner", "local", "--messages", 50, "--seed", seed, "--out", tmp_path / f"{seed}")
    assert counts(tmp_path / "1") != counts(tmp_path / "2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"given": ("window",)}, "--set takes NAME=VALUE, got 'window'"),
        ({"given": ("emit=each", "emit=update")}, "--set emit is given twice"),
        ({"given": ("lower=1",)}, 'word_count has no parameter .lower.; .* did you mean "lowercase"'),
        ({"given": ("lowercase=perhaps",)}, "--set lowercase=perhaps: Expected `bool`"),
        ({"given": ("emit=often",)}, "--set emit=often: must be 'each' or 'update'"),
        ({"inputs": ("liens=x",)}, 'has no input .liens.; it has lines; did you mean "lines"'),
        ({"inputs": ("a.txt", "b.txt")}, "--input gives lines twice: a.txt and b.txt"),
        ({"sensors": 7}, "--sensors is not for word_count, got 7; leave it out"),
        ({"time_unit": "s"}, "--time-unit is not for word_count, got 's'"),
        ({"speed": 2.0, "inputs": ("a.txt",)}, "--speed needs records with times"),
        ({"runner": "flink"}, "--runner must be spark or local"),
    ],
)
def test_misuse(options, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(ConfigError, match=said):
        ApplicationJob(name="wc", **{"runner": "local", **options})


def test_a_file_without_a_name_feeds_the_sources_that_there_are_with_these_parameters():
    for given, source in (((), "flows"), (("from_packets=true",), "packets")):
        found = setting(application("threat"), ("a.txt",), given)
        assert list(found.files) == [source]
        assert [node.id for node in found.flow.kind("source")] == [source]
    with pytest.raises(ConfigError, match=r"--input packets: with these parameters threat reads flows"):
        setting(application("threat"), ("packets=a.txt",), ())
    with pytest.raises(ConfigError, match=r"spam_filter reads .*: say which, --input \w+=a.txt"):
        setting(application("sf"), ("a.txt",), ())
    with pytest.raises(ConfigError, match=r"--input analysis=FILE is missing"):
        setting(application("sf"), ("training=a.txt",), ())


def test_an_empty_file_and_options_of_others(tmp_path):
    (tmp_path / "empty").write_text("")
    job = ApplicationJob(name="wc", runner="local", inputs=(str(tmp_path / "empty"),), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="empty is empty"):
        job.run(Console())
    for arguments, said in (
        (["stats", "--set", "a=1"], "--set is for applications of DSPBench"),
        (["stats", "--input", "a", "--input", "b"], "stats has one --input"),
        ([], "say which application to run"),
    ):
        result = CliRunner().invoke(cli.app, ["run", *arguments])
        assert isinstance(result.exception, ConfigError)
        assert said in str(result.exception)


def build(
    *,
    count: int = 1,
    share: float = 0.5,
    name: str | None = None,
    pair: tuple[float, float] = (0, 1),
    pages: tuple[str, ...] = (),
    every: timedelta | None = None,
    mode: Literal["a", "b"] = "a",
): ...


def test_settings_have_the_types_of_the_parameters():
    given = {
        "count": "3",
        "share": "1e-3",
        "name": "7",
        "pair": "1, 2.5",
        "pages": "x,y",
        "every": "1h30m",
        "mode": "b",
    }
    assert settings(build, given) == {
        "count": 3,
        "share": 0.001,
        "name": "7",
        "pair": (1.0, 2.5),
        "pages": ("x", "y"),
        "every": timedelta(minutes=90),
        "mode": "b",
    }
    assert settings(build, {"every": "", "name": "", "pages": ""}) == {"every": None, "name": None, "pages": ()}
    for name, text in (("count", "1.5"), ("share", "x"), ("pair", "1"), ("every", "soon"), ("mode", "c")):
        with pytest.raises(ConfigError, match=f"--set {name}={text}: "):
            settings(build, {name: text})
    assert named(["a=b=c"], "--set") == {"a": "b=c"}


def test_streams_of_lines_are_described(tmp_path):
    text = json.loads(call("streams", "text", "--json"))
    assert text["name"] == "text"
    assert text["bytes"] == pytest.approx(57, rel=0.05)
    assert text["rate"] == 1000
    assert text["parameters"]["vocabulary"] == 10_000
    names = [entry["name"] for entry in json.loads(call("streams", "--json"))]
    assert names == ["city", "taxi", "fit", "grid", *STREAMS]
    assert "vocabulary : int" in call("streams", "text")
    shown = call("streams")
    assert all(name in shown for name in STREAMS)
    call("streams", "text", "--write", tmp_path / "text", "--messages", 70)
    assert len((tmp_path / "text").read_bytes().splitlines()) == 70
    for options in (["--plot", "x.png"], ["--speedup", "2"], ["--write", "x", "--sensors", "2"]):
        result = CliRunner().invoke(cli.app, ["streams", "text", *options])
        assert isinstance(result.exception, ConfigError), options


# -- validation ------------------------------------------------------------------------------------


def generated(one, folder, messages=2000):
    """The arguments of ``--input`` for generated files."""
    found = []
    for source, stream in one.inputs.items():
        path = folder / f"{stream}.txt"
        write(generate(stream, messages=messages, seed=5), path)
        found += ["--input", f"{source}={path}"]
    return found


@pytest.mark.parametrize("name", LINES)
def test_a_run_agrees_with_plain_python(name, tmp_path):
    inputs = generated(application(name), tmp_path, LONG.get(name, 2000))
    call("run", name, "--runner", "local", "--batch", 300, "--out", tmp_path / "out", *inputs)
    lines = call("validate", name, "--out", tmp_path / "out", *inputs, "--json").splitlines()
    found = {entry["stream"]: entry for entry in map(json.loads, lines)}
    assert set(found) == set(application(name).results)
    for entry in found.values():
        assert entry["equal"] is True
        assert entry["wanted"] == entry["found"]
        assert entry["found"] > 0 or name in LONG  # those differ by the seed


def test_a_difference_is_told(tmp_path):
    inputs = generated(application("wc"), tmp_path, 40)
    out = tmp_path / "out"
    call("run", "wc", "--runner", "local", "--out", out, *inputs)
    result = CliRunner().invoke(cli.app, ["validate", "wc", "--out", str(out), *inputs, "--set", "lowercase=true"])
    assert result.exit_code == 1
    assert "counts, missing: ('" in result.output
    (tmp_path / "none").mkdir()
    for arguments, said in (
        (["validate", "wc", "--out", str(tmp_path / "none"), *inputs], "holds no stream 'counts'"),
        (["validate", "stats", "--out", str(out), *inputs], "has no plain-Python counterpart"),
        (["validate", "wc", "--out", str(out), "--input", str(tmp_path / "gone")], "no such file"),
        (["validate", "wc", "--out", str(out), "--input", str(tmp_path / "none")], "holds no files"),
    ):
        result = CliRunner().invoke(cli.app, arguments)
        assert isinstance(result.exception, ConfigError)
        assert said in str(result.exception)


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"a", [b"a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a\n", b"\xef\xbb\xbfb"]),
    ],
)
def test_lines_of_a_file(name, content, lines, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "a.gz" else content)
    assert list(lines_of(tmp_path / name)) == lines


def test_lines_of_a_folder_are_those_of_a_run(tmp_path):
    mark = b"\xef\xbb\xbf"
    for name, content in (("b", mark + b"3\n4"), ("c", b""), ("d", b"5"), (".hidden", b"x"), ("in/e", b"y")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(mark + b"1\n2\n"))
    found = [line.rstrip(b"\n") for line in lines_of(tmp_path)]
    source = replay(tmp_path)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start), 1)
    assert found == [line.rstrip(b"\n") for batch in source.read(split) for line in batch["payload"].to_pylist()]
    assert found == [b"1", b"2", b"3", b"4", b"5"]


def test_a_run_over_a_folder_is_validated(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.txt").write_text("a b\nc")
    (folder / "2.txt").write_text("b b\n")
    for n, given in enumerate((folder, folder / "*.txt")):
        call("run", "wc", "--runner", "local", "--out", tmp_path / str(n), "--input", given)
        (entry,) = map(
            json.loads, call("validate", "wc", "--out", tmp_path / str(n), "--input", given, "--json").splitlines()
        )
        assert (entry["equal"], entry["found"]) == (True, 5)


def test_records_are_compared_as_multisets_with_a_tolerance():
    rows = [("a", 1.0, 2.0), ("a", 1.0, 3.0), ("b", None, 0.5)]
    assert compare("s", rows, [rows[2], rows[1], ("a", 1.0 + 1e-9, 2.0)]).equal
    twice = compare("s", rows, [*rows, rows[0]])
    assert (twice.wanted, twice.found, twice.missing, twice.unexpected, twice.differing) == (3, 4, [], [rows[0]], 1)
    assert not compare("s", [("a", 1.0)], [("a", 1.00001)]).equal
    assert compare("s", [("a", float("nan"))], [("a", float("nan"))]).equal
    assert not compare("s", [("a", 1)], [("a", 2)]).equal
    nulls = compare("s", [("s", None, 5.0)], [("s", 7.0, None)])
    assert (nulls.missing, nulls.unexpected, nulls.differing) == ([("s", None, 5.0)], [("s", 7.0, None)], 2)
    assert compare("s", [("s", None, 5.0), ("s", 7.0, None)], [("s", 7.0, None), ("s", None, 5.0)]).equal
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert compare("s", [(moment,)], [(moment.astimezone(timezone(timedelta(hours=2))),)]).equal
    assert compare("s", [(("a", "b"),)], [(["a", "b"],)]).equal


def test_compressed_lines(tmp_path):
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        file.write(b"a\nb")
    assert list(lines_of(tmp_path / "x.gz")) == [b"a\n", b"b"]
