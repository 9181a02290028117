"""The live page of ``riot-ops run``, and what it keeps as a file."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from tests.cli.commands import call, failure
from tests.runtime.test_background_run import until
from tests.sessions import used_by_the_command

LIVE = ("--live", "--live-report", "last.html")


def kept(file):
    """The state in a report."""
    found = re.search(r'id="kept">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found.group(1))


def get(url, path, **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def rows(folder):
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


@pytest.fixture
def flow_file(tmp_path):
    flow = ro.Dataflow("halls")
    readings = flow.source("readings", schema={"hall": "string", "value": "double"})
    flow.sink("out", readings.to(t.KalmanFilter(by="hall"), id="smooth"))
    (tmp_path / "in.csv").write_text("hall,value\n" + "".join(f"h{i % 3},{i}\n" for i in range(600)), encoding="utf-8")
    path = tmp_path / "halls.json"
    path.write_text(flow.to_json(), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "dataflow"),
    [
        (["stats", "--messages", 500, "--no-plot"], "stats"),
        (["micro", "KAL", "--messages", 500], "micro-kal"),
        (["wc", "--messages", 500, "--no-plot"], "word_count"),
        (["halls.json", "--input", "in.csv"], "halls"),
    ],
    ids=["application", "micro", "lines", "file"],
)
def test_report_has_the_counts_of_each_kind_of_run(flow_file, monkeypatch, words, dataflow):
    folder = flow_file.parent
    monkeypatch.chdir(folder)
    text = call("run", *words, "--runner", "local", "--out", "out", "--live-report", "last.html", "--live")
    assert re.search(r"^live page: http://127\.0\.0\.1:\d+/$", text, re.MULTILINE) and "live report: last.html" in text
    state = kept(folder / "last.html")
    assert state["status"]["dataflow"] == dataflow and not state["status"]["active"]
    written = {path.name: rows(path) for path in (folder / "out").iterdir() if path.is_dir()}
    assert {name: n for name, n in state["status"]["records"].items() if n} == {k: n for k, n in written.items() if n}
    assert sum(written.values()) > 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_page_is_served_during_the_run_and_kept_at_a_signal(flow_file, number):
    folder = flow_file.parent
    words = f"{flow_file.name} --input in.csv --rate 20 --out out --runner local --live --live-report last.html"
    process = subprocess.Popen(
        [sys.executable, "-m", "riot_ops", "run", *words.split()],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=folder,
    )  # fmt: skip
    url = next(found[1] for line in process.stdout if (found := re.search(r"live page: (\S+)", line)))
    until(lambda: get(url, "/state.json")[0] == 200, 60)
    until(lambda: json.loads(get(url, "/state.json")[1])["status"]["messages"] > 0, 60)
    assert b"<h1" in get(url, "/")[1] and get(url, "/state.json", Host="evil.example")[0] == 403
    process.send_signal(number)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number and "Traceback" not in text, text
    state = kept(folder / "last.html")
    assert state["status"]["records"]["smooth"] == rows(folder / "out" / "smooth") > 0
    assert not state["status"]["active"] and state["points"]


def test_failed_run_keeps_its_report(flow_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fail(self, stream, batch):
        raise OSError("no space left")

    monkeypatch.setattr("riot_ops.core.sink.FanOutWriter.write", fail)
    code, _, error = failure(
        *("run", flow_file.name, "--input", "in.csv", "--out", "out", "--runner", "local", "--live-report", "last.html")
    )
    assert code == 1 and isinstance(error, OSError)
    assert kept(tmp_path / "last.html")["status"]["error"] == "OSError"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--live=http://0.0.0.0"], "--live='http://0.0.0.0' can be reached from other machines: set RIOT_OPS_LIVE_TOKEN "
         "to a token, or leave the address out"),
        (["--live=70000"], "--live must be a port from 1 to 65535, or an address, got 70000"),
        (["--live=here"], "--live must be like 'http://127.0.0.1:8080' or 'http://0.0.0.0', got 'here'"),
        (["--live-report", "no/such/last.html"], "--live-report must be a file in a folder that exists, got no/such/last.html"),
    ],
)  # fmt: skip
def test_misuse_is_refused_before_anything_is_written(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    _, _, error = failure("run", "stats", "--runner", "local", "--messages", 100, *words)
    assert isinstance(error, ConfigError) and str(error) == message
    assert not [*tmp_path.iterdir()]


def test_port_in_use_is_one_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, error = failure("run", "stats", "--runner", "local", "--messages", 100, f"--live={port}")
    assert code == 1 and isinstance(error, ConnectorError)
    assert str(error) == f"the live page cannot be served on 127.0.0.1:{port}: Address already in use"
    assert not [*tmp_path.iterdir()]


def post(url, path, body, **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.long
def test_manager_serves_its_page(flow_file):
    folder = flow_file.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "riot_ops", "reuse", "serve", "--dir", "kept", "--live", "--allow-actions",
         "--live-report", "last.html"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=folder,
    )  # fmt: skip
    url, token = next(m.groups() for x in process.stdout if (m := re.search(r"live page: (\S+)\?token=(\S+)", x)))
    assert process.stdout.readline().startswith("serving in")
    assert get(url, "/state.json")[0] == 401, "other users of the machine reach the address, too"
    bearer = {"Authorization": f"Bearer {token}"}
    flow = json.loads(flow_file.read_text(encoding="utf-8"))
    one = {"dataflow": flow, "sources": {"readings": {"file": str(folder / "in.csv")}}}
    two = {**one, "name": "again", "owner": "ada"}
    status, answer = post(url, "/actions", {"do": "submit", "dataflows": [one, two]}, **bearer)
    assert status == 200 and [each["name"] for each in answer["result"]] == ["halls", "again"]

    def state():
        return json.loads(get(url, "/state.json", **bearer)[1])

    until(lambda: [row["rows"] for row in state()["dataflows"]] == [600, 600], 60)
    found = state()
    assert (found["status"]["steps"], found["status"]["steps_alone"]) == (3, 6)
    assert found["status"]["saved_records"] == 1200 and set(found["owners"]) == {"", "ada"}
    assert post(url, "/actions", {"do": "remove", "name": "again"}, **bearer)[0] == 200
    status, answer = post(url, "/actions", {"do": "remove", "name": "again"}, **bearer)
    assert status == 400 and "again" in answer["error"]
    status, answer = post(url, "/actions", {"do": "stop"}, **bearer)
    assert status == 400 and answer["error"] == "'do' must be one of submit, explain, remove, got 'stop'"
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 0, text
    assert [row["name"] for row in kept(folder / "last.html")["dataflows"]] == ["halls"]


class Provider:
    """A meter provider that keeps the callbacks of its instruments."""

    def __init__(self):
        self.callbacks = {}

    def get_meter(self, name):
        return self

    def create_observable_counter(self, name, callbacks, **_):
        self.callbacks[name] = callbacks[0]

    create_observable_gauge = create_observable_counter


def test_metrics_are_offered_to_opentelemetry(flow_file, monkeypatch):
    monkeypatch.chdir(flow_file.parent)
    metrics = types.ModuleType("opentelemetry.metrics")
    provider = Provider()
    metrics.get_meter_provider = lambda: provider
    metrics.Observation = lambda value, labels: (labels, value)
    package = types.ModuleType("opentelemetry")
    package.metrics = metrics
    monkeypatch.setitem(sys.modules, "opentelemetry", package)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", metrics)
    shown = []
    monkeypatch.setattr("riot_ops.monitoring.watcher.Watcher.stop", lambda self: shown.append(
        {name: list(callback(None)) for name, callback in provider.callbacks.items()}
    ))  # fmt: skip
    call("run", flow_file.name, "--input", "in.csv", "--out", "out", "--runner", "local", "--otel")
    (found,) = shown
    assert [labels["dataflow"] for labels, _ in found["riot_ops.messages"]] == ["halls"]
    monkeypatch.setattr("riot_ops.cli.reuse_server.ReuseServer.serve", lambda self: None)
    call("reuse", "serve", "--dir", "kept", "--otel")
    assert [value for _, value in shown[1]["riot_ops.shared_dataflows"]] == [0]
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    _, _, error = failure("run", flow_file.name, "--input", "in.csv", "--out", "more", "--runner", "local", "--otel")
    assert "riot-ops[otel]" in str(error) and not Path("more").exists()


@pytest.mark.slow  # starts a session
@pytest.mark.spark
def test_report_of_a_run_on_spark(flow_file, monkeypatch, spark):
    monkeypatch.chdir(flow_file.parent)
    with used_by_the_command(spark):
        call("run", flow_file.name, "--input", "in.csv", "--out", "out", "--runner", "spark", *LIVE)
    state = kept(flow_file.parent / "last.html")
    assert state["status"]["runner"] == "spark" and state["status"]["records"]["smooth"] == 600
    assert state["points"][-1]["parts_ms"]["addBatch"] >= 0
