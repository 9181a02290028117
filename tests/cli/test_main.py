"""The command: what it prints and writes, and how it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops.cli import main as cli
from riot_ops.core.source import registered_sources
from riot_ops.dataflows import RIOTBENCH
from riot_ops.task import registered_tasks
from tests.drawn_images import decode, shows
from tests.samples import expected
from tests.sessions import used_by_the_command

STREAMS = ("avg", "slr", "dac", "errors")


def call(*args):
    result = CliRunner().invoke(cli.app, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def results(out):
    """The records of each stream, in order."""
    found = {name: pq.read_table(sorted((out / name).glob("*.parquet"))) for name in STREAMS}
    return {
        name: t.sort_by([(c, "ascending") for c in ("seq", "ordinal") if c in t.column_names])
        for name, t in found.items()
    }


def stats(out, *args):
    return call("run", "stats", *args, "--out", str(out))


def test_stats_of_the_city_sample(sample_data, tmp_path):
    text = stats(tmp_path, "--runner", "local", "--input", str(sample_data / "riotbench" / "SYS_sample_data_senml.csv"))
    messages = expected(sample_data, made=50, papers=1000)
    assert f"stats: {messages:,} messages" in text
    found = results(tmp_path)
    assert found["dac"].num_rows == 5 * messages, "one estimate per observation, five in a message"
    assert found["errors"].num_rows == 0
    for name in ("avg", "slr", "dac"):
        assert {"obs_type", "event_time", "seq", "value"} <= set(found[name].column_names)
    assert {"sensor_id"} <= set(found["avg"].column_names) & set(found["slr"].column_names)
    assert found["slr"].schema.field("predictions").type == pa.list_(pa.float64())
    few = expected(sample_data, made=False, papers=True)  # messages per sensor
    assert ("no plot: no sensor has enough values" in text) == few


def test_the_number_of_cores_reaches_the_run(tmp_path, monkeypatch):
    given = []
    run = ro.Dataflow.run
    monkeypatch.setattr(ro.Dataflow, "run", lambda *a, **o: (given.append(o.get("cores")), run(*a, **o))[1])
    stats(tmp_path, "--runner", "local", "--messages", "300", "--cores", "3", "--no-plot")
    assert given[-1] == 3


def test_the_buffering_reaches_the_run(tmp_path, monkeypatch):
    given = []
    run = ro.Dataflow.run
    monkeypatch.setattr(ro.Dataflow, "run", lambda *a, **o: (given.append(o.get("buffering")), run(*a, **o))[1])
    stats(tmp_path, "--runner", "local", "--messages", "300", "--buffering", "latency", "--no-plot")
    assert given[-1] == "latency"
    code, _, error = failing("run", "stats", "--buffering", "late", "--out", str(tmp_path / "other"))
    assert code
    assert "--buffering must be one of throughput, latency, immediate, got 'late'" in str(error)


@pytest.mark.long
def test_stats_draws_one_sensor(tmp_path):
    text = stats(tmp_path, "--runner", "local", "--messages", "2000", "--sensors", "20")
    assert f"plot: {tmp_path}" in text.replace("\n", "")
    pixels = decode(tmp_path / "stats.png")
    assert all(shows(pixels, colour) for colour in ("#2563eb", "#dc2626")), "the smoothed line and the predictions"


def test_stats_of_the_taxi_sample(sample_data, tmp_path):
    path = sample_data / "riotbench" / "TAXI_sample_data_senml.csv"
    stats(tmp_path, "--stream", "taxi", "--runner", "local", "--input", str(path))
    lines = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    found = results(tmp_path)
    numeric = 8  # of the ten fields two are texts
    assert found["dac"].num_rows + found["errors"].num_rows == lines * numeric


@pytest.mark.spark
def test_stats_gives_the_same_records_with_both_runners(spark, tmp_path):
    options = ("--messages", "3000", "--sensors", "40", "--no-plot")
    stats(tmp_path / "local", "--runner", "local", *options)
    with used_by_the_command(spark):
        text = stats(tmp_path / "spark", "--runner", "spark", "--cores", "2", *options)
    assert "stats: 3,000 messages" in text
    local, spark = results(tmp_path / "local"), results(tmp_path / "spark")
    for name in STREAMS:
        assert spark[name].select(local[name].column_names).equals(local[name]), name


@pytest.mark.long
@pytest.mark.parametrize("name", ["etl", "train", "pred"])
def test_applications_need_no_server(name, tmp_path):
    text = call("run", name, "--stream", "taxi", "--runner", "local", "--messages", "800", "--out", str(tmp_path))
    assert f"{name}: " in text
    assert sum(pq.read_metadata(f).num_rows for f in tmp_path.rglob("publish*/*.parquet")) > 0


@pytest.mark.long
@pytest.mark.parametrize(("name", "form"), [("stats", "plots"), ("pred", "paper")])
def test_the_form_with_charts_leaves_archives_of_them(name, form, tmp_path):
    options = ("--stream", "taxi", "--runner", "local", "--messages", "300", "--sensors", "2")
    call("run", name, *options, "--form", form, "--out", str(tmp_path))
    charts = []
    for path in (tmp_path / "charts").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            charts += [archive.read(entry) for entry in archive.namelist()]
    assert charts and all(chart.startswith(b"<svg") for chart in charts)


def test_pred_is_published_unless_another_form_is_wanted(tmp_path):
    call("run", "pred", "--stream", "taxi", "--runner", "local", "--messages", "300", "--out", str(tmp_path))
    assert (tmp_path / "publish_error").exists() and not (tmp_path / "charts").exists()


def test_a_stream_without_records_is_shown(tmp_path):
    text = stats(tmp_path, "--runner", "local", "--messages", "100", "--sensors", "100", "--no-plot")
    assert re.search(r"records in avg +│ +0 ", text)
    assert re.search(r"records in dac +│ +500 ", text)


def test_micro_runs_a_single_task(tmp_path):
    text = call("run", "micro", "kal", "--runner", "local", "--messages", "500", "--out", str(tmp_path))
    assert "micro-kal: 500 messages" in text
    text = call("run", "micro", "mqs", "--runner", "local", "--messages", "50", "--out", str(tmp_path / "mqs"))
    assert "micro-mqs: 50 messages" in text


def test_the_registry_as_json():
    listed = json.loads(call("tasks", "--json"))
    assert {"KAL", "SML", "MQS", "JON"} <= {entry["code"] for entry in listed}
    assert all(set(entry) == {"code", "name", "category", "pattern", "selectivity", "stateful"} for entry in listed)
    assert {kind.code for kind in registered_tasks()} < {entry["code"] for entry in listed}
    head, *rows = [line.split("\t") for line in call("tasks").splitlines()]
    purposes = {kind.code: kind.__doc__.splitlines()[0] for kind in (*registered_tasks(), *registered_sources())}
    assert {row[0]: row[-1] for row in rows} == purposes, "piped, nothing is cut off"
    assert [dict(zip(head, row, strict=True))["name"] for row in rows] == [entry["name"] for entry in listed]


def test_the_registry_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setattr(cli, "console", Console(force_terminal=True, width=80, no_color=True, highlight=False))
    lines = [re.sub("\x1b[^m]*m", "", line) for line in call("tasks").splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:3] == ["ATR", "read_table_range", "1:1"] for line in lines), "names and rates are not cut"


@pytest.mark.long
def test_a_terminal_that_knows_ascii_alone():
    command = [sys.executable, "-m", "riot_ops", "tasks"]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(registered_tasks()) + len(registered_sources()) + 1


def test_the_version():
    assert call("--version").strip() == ro.__version__


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RIOTBENCH))
@pytest.mark.parametrize("stream", ["city", "grid"])
def test_show_and_plan(name, stream):
    assert call("show", name, "--stream", stream).startswith("flowchart")
    assert call("show", name, "--stream", stream, "--format", "svg").startswith("<svg")
    assert json.loads(call("show", name, "--format", "json"))["name"] == name
    assert "stage 0" in call("plan", name, "--stream", stream, "--fuse", "coarse")


def test_show_and_plan_of_a_single_task():
    assert "KAL" in call("show", "micro", "KAL")
    assert call("show", "micro", "MQS").count("-->") == 1
    assert "stage 1" in call("plan", "micro", "kal")
    assert "Kalman filter" in call("show", "KAL")
    assert "MQTTSource" in call("show", "MQS")


def csv_file(path, rows=40, header="time,device,temperature,note"):
    lines = [f"2024-01-01T00:00:{i:02d}Z,d{i % 2},{20 + i % 7},fine" for i in range(rows)]
    path.write_text("\n".join([header, *lines]))
    return path


def failing(*args):
    result = CliRunner().invoke(cli.app, args)
    return result.exit_code, result.output, result.exception


def test_stats_of_plain_csv(tmp_path):
    path = csv_file(tmp_path / "readings.csv")
    columns = ("--format", "csv", "--time", "time", "--key", "device")
    text = stats(tmp_path / "out", "--runner", "local", "--input", str(path), *columns)
    assert "stats: 40 messages" in text
    found = results(tmp_path / "out")["avg"].to_pylist()
    values = {d: [20 + i % 7 for i in range(40) if i % 2 == d] for d in (0, 1)}
    wanted = {(f"d{d}", n, sum(values[d][n : n + 10]) / 10) for d in (0, 1) for n in range(11)}  # the last ten each
    places = {"d0": iter(range(11)), "d1": iter(range(11))}
    assert {(r["sensor_id"], next(places[r["sensor_id"]]), round(r["value"], 9)) for r in found} == wanted
    assert {r["obs_type"] for r in found} == {"temperature"}
    assert (tmp_path / "out" / "stats.png").exists()


def test_etl_of_csv_with_the_columns_of_the_stream(tmp_path):
    (tmp_path / "grid.csv").write_text("\n".join(f"m{i % 3},{1000 * i},{2.0 + i % 5}" for i in range(30)))
    options = ("--stream", "grid", "--runner", "local", "--input", str(tmp_path / "grid.csv"), "--format", "csv")
    text = call("run", "etl", *options, "--out", str(tmp_path / "out"))
    assert "etl: 30 messages" in text
    assert sum(pq.read_metadata(f).num_rows for f in (tmp_path / "out" / "publish").glob("*.parquet")) == 30


@pytest.fixture
def descriptor(tmp_path):
    flow = ro.Dataflow("averages")
    obs = flow.source("lines").to(ro.tasks.ParseSenML(schema="city"), id="parse")
    flow.sink("out", obs.to(ro.tasks.MovingAverage(by=("sensor_id", "obs_type"), window=2), id="avg"))
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json(), encoding="utf-8")
    return path


@pytest.mark.long
def test_a_dataflow_from_its_descriptor(descriptor, tmp_path, sample_data):
    given = str(sample_data / "riotbench" / "SYS_sample_data_senml.csv")
    options = ("--runner", "local", "--out", str(tmp_path / "out"))
    messages = expected(sample_data, made=50, papers=1000)
    assert f"averages: {messages:,} messages" in call("run", str(descriptor), "--input", given, *options)
    rows = pq.read_table(tmp_path / "out" / "avg").num_rows
    flow = ro.Dataflow.from_json(descriptor.read_text())
    assert rows == flow.run(ro.streams.replay(given))["avg"].num_rows > 0
    text = call("run", str(descriptor), "--stream", "city", "--messages", "300", *options, "--overwrite")
    assert "averages: 300 messages" in text


def test_where_nothing_is_accepted_the_exit_code_says_so(descriptor, tmp_path):
    path = csv_file(tmp_path / "readings.csv")
    out = tmp_path / "out"
    code, text, _ = failing("run", str(descriptor), "--runner", "local", "--input", str(path), "--out", str(out))
    assert code == 1
    assert "no results: all records were rejected" in text
    assert "'time,device,temperature,note" in text, "what the input looked like"
    assert f"{out}/errors/*.parquet" in text
    assert "41 of 41" in text
    assert "the step 'parse' rejected 41 of 41 records (malformed 41)" in text
    assert pq.read_table(out / "errors").num_rows == 41


def test_where_some_is_accepted_it_does_not(descriptor, tmp_path, sample_data):
    lines = (sample_data / "riotbench" / "SYS_sample_data_senml.csv").read_bytes().splitlines(keepends=True)[:50]
    (tmp_path / "mixed.csv").write_bytes(b"nonsense\n" * 60 + b"".join(lines))
    text = call(
        "run",
        str(descriptor),
        "--runner",
        "local",
        "--input",
        str(tmp_path / "mixed.csv"),
        "--out",
        str(tmp_path / "out"),
    )
    assert "no results" not in text


def test_results_of_another_run_are_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--runner", "local", "--messages", "200", "--no-plot")
    call("run", "stats", *options)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "stats").rglob("*")}
    code, _, error = failing("run", "stats", *options)
    assert code != 0
    assert "holds the results of stats over 1000 city sensors" in str(error)
    code, _, error = failing("run", "micro", "KAL", *options, "--out", "out/stats")
    assert "--overwrite" in str(error)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "stats").rglob("*")} == before
    call("run", "micro", "KAL", *options, "--out", "out/stats", "--overwrite")
    assert not (tmp_path / "out" / "stats" / "dac").exists()
    assert "micro-kal: 200 messages" in call("run", "micro", "KAL", *options)
    assert (tmp_path / "out" / "micro-kal" / "run.json").exists()


def test_a_checkpoint_goes_on(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = ("--runner", "local", "--sensors", "20", "--no-plot")
    stats(whole, *options, "--messages", "2000")
    going_on = ("--checkpoint", str(tmp_path / "state"))
    stats(parts, *options, *going_on, "--messages", "900")
    text = stats(parts, *options, *going_on, "--messages", "2000")
    assert "continued" in text
    assert "stats: 1,100 messages" in text
    for name in STREAMS:
        assert results(parts)[name].equals(results(whole)[name]), name


def test_folders_as_uris(tmp_path):
    out, state = tmp_path / "my out", tmp_path / "state"
    options = ("--runner", "local", "--messages", "200", "--no-plot")
    stats(out.as_uri(), *options, "--checkpoint", state.as_uri())
    assert results(out)["dac"].num_rows > 0
    assert any(state.iterdir())
    assert not (tmp_path / "file:").exists()


def test_without_spark_the_command_says_so_first(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, text, error = failing("run", "stats", "--out", str(tmp_path / "out"))
    assert code != 0
    assert "pip install 'riot-ops[spark]'" in str(error)
    assert text == ""
    assert not (tmp_path / "out").exists()


def test_plan_of_a_descriptor(tmp_path):
    (tmp_path / "flow.json").write_text(call("show", "etl", "--format", "json"), encoding="utf-8")
    assert call("plan", str(tmp_path / "flow.json")) == call("plan", "etl")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("run", "stat"), "unknown application 'stat'; known are etl, stats, pred, train, word_count, wc"),
        (("run", "stats", "--runner", "flink"), "--runner must be spark or local, got 'flink'"),
        (("run", "stats", "--stream", "sity"), "sity"),
        (("run", "stats", "KAL"), "stats takes no task, got 'KAL'"),
        (("run", "micro"), "micro needs the code of a task"),
        (("run", "stats", "--runner", "local", "--input", "missing.csv"), "missing.csv"),
        (("run", "stats", "--runner", "local", "--out", "/dev/null"), "--out must be a writable folder"),
        (("run", "stats", "--form", "x"), "--form must be paper or plots for stats, got 'x'"),
        (("run", "pred", "--form", "plots"), "--form must be publish or paper for pred, got 'plots'"),
        (("run", "etl", "--form", "paper"), "--form must be left out for etl, got 'paper'"),
        (("run", "stats", "--out", "s3a://bucket/x"), "--out is an address of the kind s3a:"),
        (("run", "stats", "--checkpoint", "hdfs://host/x"), "--checkpoint is an address of the kind hdfs:"),
        (("show", "KALL"), "unknown task 'KALL'"),
        (("show", "stats", "--format", "png"), "--format must be one of mermaid, svg, json, got 'png'"),
        (("plan", "stats", "--fuse", "x"), "fuse"),
        (("plan", "flow.json"), "no such file: flow.json"),
        (("run", "flow.json"), "no such file: flow.json"),
        (("run", "learn", "--checkpoint", "state"), "learn takes no --checkpoint"),
        (("run", "pred", "--input", "grid.csv", "--format", "csv", "--stream", "grid"), "--format csv is for stats"),
        (("plan", "nothing"), "unknown application 'nothing'"),
    ],
)
def test_misuse_ends_in_one_line(args, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.csv").write_text("m1,1000,2.5\n")
    monkeypatch.setattr(sys, "argv", ["riot-ops", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("riot-ops: ") and text in said[0]


def test_a_stream_written_as_a_file_is_what_the_generator_makes(tmp_path):
    file = tmp_path / "grid.csv"
    options = ("--messages", "300", "--sensors", "7", "--seed", "3")
    assert call("streams", "grid", "--write", str(file), *options) == f"300 messages: {file}\n"
    again = tmp_path / "again.csv"
    ro.streams.write(ro.streams.grid(meters=7, messages=300, seed=3), again)
    assert file.read_bytes() == again.read_bytes()
    call("streams", "grid", "--write", str(file))
    assert len(file.read_bytes().splitlines()) == 10_000


def test_an_error_in_a_run_says_in_which_step(monkeypatch, capsys):
    error = ConfigError("it cannot go on")
    error.add_note("in the step 'avg' (MovingAverage)")

    def fails():
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == "riot-ops: it cannot go on; in the step 'avg' (MovingAverage)\n"
