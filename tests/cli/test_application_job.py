"""``riot-ops run`` of applications that read lines in a format of their own: inputs, parameters and misuse."""

from __future__ import annotations

import inspect

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from riot_ops.cli import main as cli
from riot_ops.cli.application_job import ApplicationJob
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import APPLICATIONS, BUILDERS, application
from riot_ops.streams.catalog import LINES as STREAMS
from tests.cli.commands import call
from tests.samples import expected

LINES = [name for name, one in APPLICATIONS.items() if one.suite != "riotbench"]


@pytest.mark.long
@pytest.mark.parametrize("name", LINES)
def test_application_is_described(name):
    one = application(name)
    assert application(one.code) is one
    assert BUILDERS[one.code] is BUILDERS[name] is one.builder
    flow = one.builder()
    assert {node.id for node in flow.nodes_of_kind("source")} == set(one.inputs)
    assert set(one.inputs.values()) <= set(STREAMS)
    assert set(one.files) <= set(inspect.signature(one.builder).parameters)
    assert one.purpose
    assert "stage 0" in call("plan", one.code)
    assert call("show", one.code).startswith("flowchart")


#: Messages until there is a result of each kind.
LONG = {"equipment_monitoring": 20_000}


@pytest.mark.long
@pytest.mark.parametrize("name", LINES)
def test_generated_stream_gives_results(name, tmp_path):
    out = tmp_path / "out"
    text = call("run", name, "--runner", "local", "--messages", LONG.get(name, 3000), "--out", out, "--no-plot")
    assert f"{name}: " in text
    flow = application(name).builder()
    for node in flow.nodes_of_kind("sink"):
        for edge in flow.inputs(node.id):
            files = list((out / edge.source).glob("*.parquet"))
            assert sum(pq.read_metadata(file).num_rows for file in files) > 0, edge.source


def counts(out):
    return {row["word"]: row["count"] for row in pq.read_table(out / "counts").sort_by("count").to_pylist()}


@pytest.mark.long
def test_file_parameter_and_seed_change_results(tmp_path, sample_data):
    books = sample_data / "dspbench/synthetic/books.txt"
    call("run", "WC", "--runner", "local", "--input", books, "--set", "lowercase=true", "--out", tmp_path / "a")
    assert sum(counts(tmp_path / "a").values()) == expected(sample_data, made=927, papers=3866)
    assert len(counts(tmp_path / "a")) == expected(sample_data, made=31, papers=15)
    named_file = f"lines={books}"
    call("run", "word_count", "--runner", "local", "--input", named_file, "--out", tmp_path / "b")
    assert len(counts(tmp_path / "b")) == expected(sample_data, made=51, papers=30)
    for seed in (1, 2):
        call("run", "wc", "--runner", "local", "--messages", 50, "--seed", seed, "--out", tmp_path / f"{seed}")
    assert counts(tmp_path / "1") != counts(tmp_path / "2")


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"settings": ("window",)}, "--set takes NAME=VALUE, got 'window'"),
        ({"settings": ("emit=each", "emit=update")}, "--set emit is given twice"),
        ({"settings": ("lower=1",)}, 'word_count has no parameter .lower.; .* did you mean "lowercase"'),
        ({"settings": ("lowercase=perhaps",)}, "--set lowercase=perhaps: Expected `bool`"),
        ({"settings": ("emit=often",)}, "--set emit=often: must be 'each' or 'update'"),
        ({"inputs": ("liens=x",)}, 'has no input .liens.; it has lines; did you mean "lines"'),
        ({"inputs": ("a.txt", "b.txt")}, "--input gives lines twice: a.txt and b.txt"),
        ({"sensors": 7}, "--sensors is not for word_count, got 7; leave it out"),
        ({"time_unit": "s"}, "--time-unit is not for word_count, got 's'"),
        ({"speed": 2.0, "inputs": ("a.txt",)}, "--speed needs event times"),
        ({"runner": "flink"}, "--runner must be auto, spark or local"),
    ],
)
def test_misuse_is_refused(options, error_text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(ConfigError, match=error_text):
        ApplicationJob(name="wc", **{"runner": "local", **options})


def test_empty_file_and_foreign_options_are_refused(tmp_path):
    (tmp_path / "empty").write_text("")
    job = ApplicationJob(name="wc", runner="local", inputs=(str(tmp_path / "empty"),), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="empty is empty"):
        job.run(Console())
    for arguments, error_text in (
        (["stats", "--set", "a=1"], "--set is not for stats, got 'a=1'"),
        (["stats", "--input", "a", "--input", "b"], "stats takes one --input"),
        ([], "name an application"),
    ):
        result = CliRunner().invoke(cli.app, ["run", *arguments])
        assert isinstance(result.exception, ConfigError)
        assert error_text in str(result.exception)


def test_lines_of_another_encoding_are_read(tmp_path):
    (tmp_path / "books.txt").write_bytes("café tea\n".encode("latin-1"))
    for more in (
        ("--encoding", "latin-1", "--set", "unicode=true"),
        ("--set", "encoding=latin-1", "--set", "unicode=true"),
    ):
        call("run", "wc", "--runner", "local", "--no-plot", "--input", tmp_path / "books.txt", "--out", tmp_path / "out",
             "--overwrite", *more)  # fmt: skip
        (file,) = (tmp_path / "out" / "counts").glob("*.parquet")
        assert pq.read_table(file)["word"].to_pylist() == ["café", "tea"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--encoding", "utf-9"), "--encoding must be one of text"),
        (("--encoding", "utf-16"), "--encoding must have the line break of ASCII"),
    ],
)
def test_unknown_encodings_are_refused(more, text, tmp_path):
    (tmp_path / "books.txt").write_text("tea")
    result = CliRunner().invoke(
        cli.app, ["run", "wc", "--runner", "local", "--input", str(tmp_path / "books.txt"), *more]
    )
    assert result.exit_code != 0
    assert text in f"{result.exception} {result.output}"
    with pytest.raises(ConfigError, match="--encoding needs --input"):
        ApplicationJob(name="wc", runner="local", encoding="latin-1")
