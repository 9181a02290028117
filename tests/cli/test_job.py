"""``riot-ops run`` of RIoTBench's applications: results, options, folders, checkpoints and Ctrl-C.

Ctrl-C on Spark: tests/recovery/test_command_restart.py.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import signal
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops.cli import main as cli
from tests.cli.commands import STREAMS, call, csv_file, failure, results, stats
from tests.drawn_images import decode, shows
from tests.samples import expected
from tests.sessions import used_by_the_command


@pytest.mark.long
@pytest.mark.parametrize(
    ("cores", "number"),
    [
        pytest.param("2", signal.SIGINT, id="two-cores"),
        pytest.param("1", signal.SIGTERM, id="terminated"),
    ],
)
def test_results_before_ctrl_c_are_kept(tmp_path, cores, number):
    command = [sys.executable, "-m", "riot_ops", "run", "stats", "--stream", "grid", "--sensors", "50"]
    options = ["--runner", "local", "--cores", cores, "--rate", "2000", "--messages", "500000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    before = []
    for line in process.stdout:
        before.append(line)
        found = re.search(r"([\d,]+) messages .*/s", line)
        if found and int(found[1].replace(",", "")) > 500:
            break
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    text = "".join(before) + rest
    assert process.returncode == (143 if number == signal.SIGTERM else 130), text
    assert re.search(r"interrupted: the results of [\d,]+ messages are kept", text)
    shown = {name: int(n.replace(",", "")) for name, n in re.findall(r"records in (\w+) *│ *([\d,]+)", rest)}
    files = {name: sorted((tmp_path / name).glob("*.parquet")) for name in shown}
    assert shown["dac"] > 500
    assert shown == {name: sum(pq.read_metadata(f).num_rows for f in found) for name, found in files.items()}


@pytest.mark.long
@pytest.mark.parametrize(("number", "messages"), [(signal.SIGINT, 1), (signal.SIGTERM, 3000)])
def test_interrupted_run_reports_only_committed_records(tmp_path, number, messages):
    flow = ro.Dataflow("kept")
    flow.sink("out", flow.source("raw", schema={"v": "int64"}))
    (tmp_path / "flow.json").write_text(flow.to_json(), encoding="utf-8")
    (tmp_path / "in.csv").write_text("v\n" + "".join(f"{i}\n" for i in range(100_000)), encoding="utf-8")
    command = "run flow.json --input in.csv --out out --runner local --rate 2000 --checkpoint kept"
    process = subprocess.Popen(
        [sys.executable, "-m", "riot_ops", *command.split()],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=tmp_path,
    )  # fmt: skip
    for line in process.stdout:
        found = re.search(r"([\d,]+) messages .*/s", line)
        if found and int(found[1].replace(",", "")) >= messages:
            break
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, text
    interrupted = re.search(r"interrupted: (?:the results of ([\d,]+) messages are kept|no results)", text)
    rows = [
        row["v"] for f in sorted((tmp_path / "out" / "raw").glob("*.parquet")) for row in pq.read_table(f).to_pylist()
    ]
    assert sorted(rows) == list(range(int((interrupted[1] or "0").replace(",", "")))), text


def test_stats_of_city_gives_an_estimate_per_observation(sample_data, tmp_path):
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


@pytest.mark.parametrize(("name", "more"), [("stats", ("--sensors", "5")), ("word_count", ())])
def test_missing_matplotlib_is_a_note_after_the_run(tmp_path, monkeypatch, name, more):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    args = ("run", name, "--runner", "local", "--messages", "300", "--out", str(tmp_path), *more)
    result = CliRunner().invoke(cli.app, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "riot-ops: no plot: drawing a plot needs" in result.stderr and "riot-ops[plot]" in result.stderr
    assert f"{name}: 300 messages" in result.stdout


def test_number_of_cores_reaches_the_run(tmp_path, monkeypatch):
    given = []
    run = ro.Dataflow.run
    monkeypatch.setattr(ro.Dataflow, "run", lambda *a, **o: (given.append(o.get("cores")), run(*a, **o))[1])
    stats(tmp_path, "--runner", "local", "--messages", "300", "--cores", "3", "--no-plot")
    assert given[-1] == 3


def test_latency_is_shown_where_records_arrive_over_time(tmp_path):
    assert "latency p" not in stats(tmp_path / "bulk", "--messages", "300", "--no-plot")
    text = stats(tmp_path / "paced", "--messages", "300", "--rate", "3000", "--no-plot")
    assert re.search(r"latency p99 +│ +[\d,.]+ ms", text)


def test_buffering_reaches_the_run(tmp_path, monkeypatch):
    given = []
    run = ro.Dataflow.run
    monkeypatch.setattr(ro.Dataflow, "run", lambda *a, **o: (given.append(o.get("buffering")), run(*a, **o))[1])
    stats(tmp_path, "--runner", "local", "--messages", "300", "--buffering", "latency", "--no-plot")
    assert given[-1] == "latency"
    code, _, error = failure("run", "stats", "--buffering", "late", "--out", str(tmp_path / "other"))
    assert code
    assert "--buffering must be one of throughput, latency, immediate, got 'late'" in str(error)


@pytest.mark.long
def test_stats_draws_one_sensor(tmp_path):
    text = stats(tmp_path, "--runner", "local", "--messages", "2000", "--sensors", "20")
    assert f"plot: {tmp_path}" in text.replace("\n", "")
    pixels = decode(tmp_path / "stats.png")
    assert all(shows(pixels, colour) for colour in ("#2563eb", "#dc2626")), "the smoothed line and the predictions"


def test_stats_of_taxi_rejects_or_estimates_each_observation(sample_data, tmp_path):
    path = sample_data / "riotbench" / "TAXI_sample_data_senml.csv"
    stats(tmp_path, "--stream", "taxi", "--runner", "local", "--input", str(path))
    lines = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    found = results(tmp_path)
    numeric = 8  # of the ten fields two are texts
    assert found["dac"].num_rows + found["errors"].num_rows == lines * numeric


@pytest.mark.spark
def test_both_runners_give_the_same_records(spark, tmp_path):
    options = ("--messages", "3000", "--sensors", "40", "--no-plot")
    stats(tmp_path / "local", "--runner", "local", *options)
    with used_by_the_command(spark):
        text = stats(tmp_path / "spark", "--runner", "spark", "--cores", "2", *options)
    assert "stats: 3,000 messages" in text
    assert "latency p" not in text, "the messages were all there at the start"
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
def test_variant_with_charts_writes_archives_of_svg(name, form, tmp_path):
    options = ("--stream", "taxi", "--runner", "local", "--messages", "300", "--sensors", "2")
    call("run", name, *options, "--form", form, "--out", str(tmp_path))
    charts = []
    for path in (tmp_path / "charts").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            charts += [archive.read(entry) for entry in archive.namelist()]
    assert charts and all(chart.startswith(b"<svg") for chart in charts)


def test_pred_publishes_by_default(tmp_path):
    call("run", "pred", "--stream", "taxi", "--runner", "local", "--messages", "300", "--out", str(tmp_path))
    assert (tmp_path / "publish_error").exists() and not (tmp_path / "charts").exists()


def test_summary_names_streams_without_records(tmp_path):
    text = stats(tmp_path, "--runner", "local", "--messages", "100", "--sensors", "100", "--no-plot")
    assert re.search(r"records in avg +│ +0 ", text)
    assert re.search(r"records in dac +│ +500 ", text)


def test_stats_reads_plain_csv(tmp_path):
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


def test_etl_reads_csv_with_the_columns_of_the_stream(tmp_path):
    (tmp_path / "grid.csv").write_text("\n".join(f"m{i % 3},{1000 * i},{2.0 + i % 5}" for i in range(30)))
    options = ("--stream", "grid", "--runner", "local", "--input", str(tmp_path / "grid.csv"), "--format", "csv")
    text = call("run", "etl", *options, "--out", str(tmp_path / "out"))
    assert "etl: 30 messages" in text
    assert sum(pq.read_metadata(f).num_rows for f in (tmp_path / "out" / "publish").glob("*.parquet")) == 30


def test_results_of_another_run_need_overwrite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--runner", "local", "--messages", "200", "--no-plot")
    call("run", "stats", *options)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "stats").rglob("*")}
    code, _, error = failure("run", "stats", *options)
    assert code != 0
    assert "holds the results of stats over 1000 city sensors" in str(error)
    code, _, error = failure("run", "micro", "KAL", *options, "--out", "out/stats")
    assert "--overwrite" in str(error)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "stats").rglob("*")} == before
    call("run", "micro", "KAL", *options, "--out", "out/stats", "--overwrite")
    assert not (tmp_path / "out" / "stats" / "dac").exists()
    assert "micro-kal: 200 messages" in call("run", "micro", "KAL", *options)
    assert (tmp_path / "out" / "micro-kal" / "run.json").exists()


def test_run_continues_from_its_checkpoint(tmp_path):
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


def test_folders_may_be_file_uris(tmp_path):
    out, state = tmp_path / "my out", tmp_path / "state"
    options = ("--runner", "local", "--messages", "200", "--no-plot")
    stats(out.as_uri(), *options, "--checkpoint", state.as_uri())
    assert results(out)["dac"].num_rows > 0
    assert any(state.iterdir())
    assert not (tmp_path / "file:").exists()


def test_missing_spark_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, text, error = failure("run", "stats", "--runner", "spark", "--out", str(tmp_path / "out"))
    assert code != 0
    assert "pip install 'riot-ops[spark]'" in str(error)
    assert text == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("form", "marks"), [("csv", b'"seq",'), ("jsonl", b'{"seq":')])
def test_format_of_results(tmp_path, monkeypatch, form, marks):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("kept")
    flow.sink("out", flow.source("raw", schema={"v": "int64"}))
    (tmp_path / "flow.json").write_text(flow.to_json(), encoding="utf-8")
    (tmp_path / "in.csv").write_text("v\n1\n2\nx\n", encoding="utf-8")
    options = ["run", "flow.json", "--input", "in.csv", "--runner", "local", "--checkpoint", "kept"]
    done = CliRunner().invoke(cli.app, [*options, "--out-format", form])
    assert done.exit_code == 0, done.output
    files = sorted((tmp_path / "out").glob("*/*/*.*"))
    assert {path.suffix for path in files} == {f".{form}"} and len(files) == 2
    assert all(path.read_bytes().startswith(marks) for path in files)
    assert f"<stream>/*.{form}" in done.output.replace("\n", "")
    other = CliRunner().invoke(cli.app, options)
    assert other.exit_code != 0 and f"results '{form}', got 'parquet'" in str(other.output) + str(other.exception)


def test_results_of_rejected_records_as_csv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("v\nx\n", encoding="utf-8")
    flow = ro.Dataflow("kept")
    flow.sink("out", flow.source("raw", schema={"v": "int64"}))
    (tmp_path / "flow.json").write_text(flow.to_json(), encoding="utf-8")
    done = CliRunner().invoke(
        cli.app, ["run", "flow.json", "--input", "in.csv", "--runner", "local", "--out-format", "csv"]
    )
    assert done.exit_code == 1 and "the first, by raw: wrong_type" in done.output.replace("\n", " ")


def test_unsupported_output_format_is_refused(tmp_path):
    done = CliRunner().invoke(cli.app, ["run", "stats", "--runner", "local", "--out-format", "xml"])
    assert done.exit_code != 0 and "--out-format must be parquet or csv or jsonl, got 'xml'" in str(done.exception)


@pytest.mark.parametrize("words", [(), ("-v",), ("--verbose",)])
def test_verbose_run_prints_its_log(tmp_path, words):
    (tmp_path / "flow.json").write_text(_kept().to_json())
    (tmp_path / "in.csv").write_text("v\n1\n2\n")
    command = ["run", str(tmp_path / "flow.json"), "--input", str(tmp_path / "in.csv"), "--runner", "local"]
    result = CliRunner().invoke(cli.app, [*command, "--out", str(tmp_path / "out"), *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    logged = "riot-ops: info: the dataflow 'kept' has ended" in result.stderr
    assert logged == bool(words)
    assert logging.getLogger("riot_ops").level == logging.NOTSET


def _kept():
    flow = ro.Dataflow("kept")
    return flow.sink("out", flow.source("raw", schema={"v": "int64"}))
