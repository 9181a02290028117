"""``riot-ops run flow.json``: a dataflow's JSON file over generated messages and files."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from tests.cli.commands import call, csv_file, failure
from tests.samples import expected


@pytest.fixture
def descriptor(tmp_path):
    flow = ro.Dataflow("averages")
    obs = flow.source("lines").to(ro.tasks.ParseSenML(schema="city"), id="parse")
    flow.sink("out", obs.to(ro.tasks.MovingAverage(by=("sensor_id", "obs_type"), window=2), id="avg"))
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json(), encoding="utf-8")
    return path


@pytest.mark.long
def test_json_file_runs_over_files_and_generated_messages(descriptor, tmp_path, sample_data):
    given = str(sample_data / "riotbench" / "SYS_sample_data_senml.csv")
    options = ("--runner", "local", "--out", str(tmp_path / "out"))
    messages = expected(sample_data, made=50, papers=1000)
    assert f"averages: {messages:,} messages" in call("run", str(descriptor), "--input", given, *options)
    rows = pq.read_table(tmp_path / "out" / "avg").num_rows
    flow = ro.Dataflow.from_json(descriptor.read_text())
    assert rows == flow.run(ro.streams.replay(given))["avg"].num_rows > 0
    text = call("run", str(descriptor), "--stream", "city", "--messages", "300", *options, "--overwrite")
    assert "averages: 300 messages" in text


def test_exit_code_is_1_if_all_records_are_rejected(descriptor, tmp_path):
    path = csv_file(tmp_path / "readings.csv")
    out = tmp_path / "out"
    code, text, _ = failure("run", str(descriptor), "--runner", "local", "--input", str(path), "--out", str(out))
    assert code == 1
    assert "no results: all records were rejected" in text
    assert "'time,device,temperature,note" in text, "what the input looked like"
    assert f"{out}/errors/*.parquet" in text
    assert "41 of 41" in text
    assert "the step 'parse' rejected 41 of 41 records (malformed 41)" in text
    assert pq.read_table(out / "errors").num_rows == 41


def test_exit_code_is_0_if_some_records_are_accepted(descriptor, tmp_path, sample_data):
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


@pytest.mark.parametrize("name", ["../../evil", "/absolute", "a [/bold] [red]x", "x\x1b[31m\ny", "."])
def test_name_in_a_descriptor_is_neither_a_path_nor_markup(name, descriptor, tmp_path, monkeypatch):
    work = tmp_path / "deep" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    descriptor.write_text(json.dumps(json.loads(descriptor.read_text()) | {"name": name}))
    text = call("run", str(descriptor), "--runner", "local", "--stream", "city", "--messages", "20")
    assert [path.name for path in work.iterdir()] == ["out"] and len(list((work / "out").iterdir())) == 1
    assert {path.name for path in tmp_path.rglob("*") if path.parent in (tmp_path, tmp_path / "deep")} == {
        "deep",
        "flow.json",
        "work",
    }
    shown = name.replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert f"{shown}: 20 messages" in text and "\x1b" not in text


def test_changed_dataflow_continues_with_restart_compatible(descriptor, tmp_path):
    places = ("--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "kept"))
    options = ("--stream", "city", "--messages", "60", "--runner", "local", *places)
    call("run", str(descriptor), *options)
    flow = ro.Dataflow.from_json(descriptor.read_text())
    flow.sink("more", flow.stream("parse").to(ro.tasks.MovingAverage(by="obs_type", window=5), id="by_type"))
    descriptor.write_text(flow.to_json(), encoding="utf-8")
    code, _, error = failure("run", str(descriptor), *options)
    assert code == 1 and "--restart compatible keeps the state of unchanged steps" in str(error)
    text = call("run", str(descriptor), *options, "--restart", "compatible")
    assert "keeps the state of 'avg'" in text and "starts 'by_type' empty: it is new" in text
    code, _, error = failure("run", str(descriptor), *options, "--restart", "other")
    assert code == 1 and "restart must be 'same' or 'compatible', got 'other'" in str(error)
