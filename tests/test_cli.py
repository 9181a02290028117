"""The command: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from riot_ops import cli
from riot_ops.dataflows import BUILDERS
from riot_ops.task import tasks

STREAMS = ("avg", "slr", "dac", "errors")


def call(*args):
    result = CliRunner().invoke(cli.app, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def results(out):
    """The records of each stream, in order."""
    found = {name: pq.read_table(sorted((out / name).glob("*.parquet"))) for name in STREAMS}
    return {
        name: t.sort_by([(c, "ascending") for c in ("seq", "sub") if c in t.column_names]) for name, t in found.items()
    }


def stats(out, *args):
    return call("run", "stats", *args, "--out", str(out))


def test_stats_of_the_real_city_sample(shared_data, tmp_path):
    text = stats(tmp_path, "--runner", "local", "--input", str(shared_data / "riotbench" / "SYS_sample_data_senml.csv"))
    assert "stats: 1,000 messages" in text
    found = results(tmp_path)
    assert found["dac"].num_rows == 5_000, "one estimate per observation, five in a message"
    assert found["errors"].num_rows == 0
    for name in ("avg", "slr", "dac"):
        assert {"obs_type", "event_time", "seq", "value"} <= set(found[name].column_names)
    assert {"sensor_id"} <= set(found["avg"].column_names) & set(found["slr"].column_names)
    assert found["slr"].schema.field("predictions").type == pa.list_(pa.float64())
    assert "no picture: no sensor has enough values" in text, "the sample has a few messages per sensor"


def test_stats_draws_one_sensor(tmp_path):
    text = stats(tmp_path, "--runner", "local", "--messages", "2000", "--sensors", "20")
    assert f"picture: {tmp_path}" in text.replace("\n", "")
    assert (tmp_path / "stats.png").read_bytes().startswith(b"\x89PNG")


def test_stats_of_the_real_taxi_sample(shared_data, tmp_path):
    path = shared_data / "riotbench" / "TAXI_sample_data_senml.csv"
    stats(tmp_path, "--stream", "taxi", "--runner", "local", "--input", str(path))
    lines = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    found = results(tmp_path)
    numeric = 8  # of the ten fields two are texts
    assert found["dac"].num_rows + found["errors"].num_rows == lines * numeric


@pytest.mark.spark
def test_stats_gives_the_same_records_with_both_runners(tmp_path):
    options = ("--messages", "3000", "--sensors", "40", "--no-plot")
    stats(tmp_path / "local", "--runner", "local", *options)
    # a process of its own: the command stops the session that it started
    command = [sys.executable, "-m", "riot_ops", "run", "stats", "--runner", "spark", "--cores", "2"]
    done = subprocess.run(
        [*command, *options, "--out", str(tmp_path / "spark")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "stats: 3,000 messages" in done.stdout
    local, spark = results(tmp_path / "local"), results(tmp_path / "spark")
    for name in STREAMS:
        assert spark[name].select(local[name].column_names).equals(local[name]), name


@pytest.mark.parametrize("name", ["etl", "train", "pred"])
def test_applications_need_no_server(name, tmp_path):
    text = call("run", name, "--stream", "taxi", "--runner", "local", "--messages", "800", "--out", str(tmp_path))
    assert f"{name}: " in text
    assert sum(pq.read_metadata(f).num_rows for f in tmp_path.rglob("publish*/*.parquet")) > 0


@pytest.mark.parametrize("name", ["stats", "pred"])
def test_the_form_with_plots_leaves_charts(name, tmp_path):
    options = ("--stream", "taxi", "--runner", "local", "--messages", "300", "--sensors", "2")
    call("run", name, *options, "--form", "plots", "--out", str(tmp_path))
    charts = []
    for path in (p for p in (tmp_path / "charts").rglob("*") if p.is_file()):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                charts += [archive.read(entry) for entry in archive.namelist()]
        else:
            charts.append(path.read_bytes())
    assert charts and all(chart.startswith(b"<svg") for chart in charts)


def test_micro_runs_a_single_task(tmp_path):
    text = call("run", "micro", "kal", "--runner", "local", "--messages", "500", "--out", str(tmp_path))
    assert "micro-kal: 500 messages" in text


def test_the_registry_as_json():
    listed = json.loads(call("tasks", "--json"))
    assert {"KAL", "SML", "MQS", "JON"} <= {entry["code"] for entry in listed}
    assert all(set(entry) == {"code", "name", "category", "pattern", "selectivity", "stateful"} for entry in listed)
    assert {kind.code for kind in tasks()} < {entry["code"] for entry in listed}
    table = call("tasks")
    assert all(entry["code"] in table for entry in listed)


@pytest.mark.parametrize("name", sorted(BUILDERS))
@pytest.mark.parametrize("stream", ["city", "grid"])
def test_show_and_plan(name, stream):
    assert call("show", name, "--stream", stream).startswith("flowchart")
    assert call("show", name, "--stream", stream, "--format", "svg").startswith("<svg")
    assert json.loads(call("show", name, "--format", "json"))["name"] == name
    assert "stage 0" in call("plan", name, "--stream", stream, "--fuse", "coarse")


def test_show_and_plan_of_a_single_task():
    assert "KAL" in call("show", "micro", "KAL")
    assert "stage 1" in call("plan", "micro", "kal")
    assert "Kalman filter" in call("show", "KAL")
    assert "MqttSource" in call("show", "MQS")


def test_plan_of_a_descriptor(tmp_path):
    (tmp_path / "flow.json").write_text(call("show", "etl", "--format", "json"), encoding="utf-8")
    assert call("plan", str(tmp_path / "flow.json")) == call("plan", "etl")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("run", "stat"), "unknown application 'stat'; known are etl, stats, pred, train, learn, micro"),
        (("run", "stats", "--runner", "flink"), "--runner must be spark or local, got 'flink'"),
        (("run", "stats", "--stream", "sity"), "sity"),
        (("run", "stats", "KAL"), "stats takes no task, got 'KAL'"),
        (("run", "micro"), "micro needs the code of a task"),
        (("run", "stats", "--runner", "local", "--input", "missing.csv"), "missing.csv"),
        (("run", "stats", "--runner", "local", "--out", "/dev/null"), "--out must be a folder that can be written"),
        (("run", "stats", "--form", "x"), "--form must be paper or plots, got 'x'"),
        (("show", "KALL"), "unknown task 'KALL'"),
        (("show", "stats", "--format", "png"), "--format must be mermaid, svg, json, got 'png'"),
        (("plan", "stats", "--fuse", "x"), "fuse"),
        (("plan", "flow.json"), "no file flow.json"),
        (("plan", "nothing"), "unknown application 'nothing'"),
        (("bench", "nothing"), "nothing"),
    ],
)
def test_misuse_ends_in_one_line(args, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["riot-ops", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("riot-ops: ") and text in said[0]
