"""``riot-ops reuse``: a manager that serves in a folder, and its commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from riot_ops.cli import reuse as cli_reuse
from riot_ops.cli import reuse_server
from riot_ops.cli.reuse_server import ReuseServer
from riot_ops.cli.reuse_socket import send_request
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact
from tests.reuse.serving import Serving, call, flow, until, written


@pytest.mark.long
def test_dataflow_life_cycle(tmp_path, readings):
    folder = tmp_path / "shared"
    file = written(tmp_path / "mean.json", flow())
    with Serving(folder) as server:
        assert "0 of 3 steps run already" in call(
            folder, "submit", file, "--source", f"readings={readings}", "--explain"
        )
        assert json.loads(call(folder, "list", "--json")) == []
        assert "0 of 3 steps" in call(folder, "submit", file, "--source", f"readings={readings}", "--owner", "ada")
        more = ["--source", f"readings={readings}", "--name", "mean 2", "--json", "--on-slow", "block"]
        answer = json.loads(call(folder, "submit", file, *more, "--on-failure", "stop"))
        assert set(answer["reused"]) == {"readings", "average", "out"} and answer["new"] == {}
        assert server.manager.state()["dataflows"][1]["on_slow"] == "block"
        assert server.manager.state()["dataflows"][1]["on_failure"] == "stop"
        until(lambda: server.manager.stats()["messages"] == 40)
        listed = json.loads(call(folder, "list", "--json"))
        assert [(one["name"], one["steps"], one["failed"], one["dropped"]) for one in listed] == [
            ("mean", 3, None, 0),
            ("mean 2", 3, None, 0),
        ]
        assert listed[0]["owner"] == "ada" and listed[1]["owner"]
        assert call(folder, "list").splitlines()[1].split("\t")[-1] == "running"
        assert "mean, mean 2" in call(folder, "show")
        call(folder, "show", "--format", "svg", "--out", str(tmp_path / "all.svg"))
        assert (tmp_path / "all.svg").read_text().startswith("<svg")
        assert json.loads(call(folder, "stats", "--json"))["steps"] == 3
        assert "steps: 3" in call(folder, "stats")
        usage = json.loads(call(folder, "usage", "--json"))
        assert sum(one["records"] for one in usage["owners"].values()) == 80 and "ada" in usage["owners"]
        assert [one["owners"] for one in usage["steps"]] == [sorted(("ada", listed[1]["owner"]))] * 3
        assert "readings.0: 40 records, ada" in call(folder, "usage")
        assert call(folder, "pause", "mean") == "readings: from message 40 on\n"
        assert json.loads(call(folder, "list", "--json"))[0]["paused"]
        call(folder, "resume", "mean")
        call(folder, "defragment")
        assert "0 steps ended, 3 continue" in call(folder, "remove", "mean")
        assert json.loads(call(folder, "remove", "mean 2", "--json"))["kept"] == []
        call(folder, "stop")
        until(server.stopping.is_set)
    assert pq.read_table(folder / "out" / "mean" / "average").num_rows == 8
    assert answer["sinks"]["out"]["folder"].startswith(str(folder / "out" / "mean_2-"))
    assert "none is running" in call(folder, "list", code=2)


@pytest.mark.long
def test_several_files_are_one_action(tmp_path, readings):
    folder = tmp_path / "shared"
    files = [written(tmp_path / f"{window}.json", flow(f"mean {window}", window)) for window in (2, 4, 5)]
    source = ("--source", f"readings={readings}", "--owner", "ada")
    with Serving(folder) as server:
        output = call(folder, "submit", *files[:2], *source)
        assert [line for line in output.splitlines() if line.startswith("mean")] == [
            "mean 2: 0 of 3 steps run already",
            "mean 4: 1 of 3 steps run already",
        ]
        assert "'mean 4' is running" in call(folder, "submit", files[2], files[1], *source, code=2)
        assert "--name is for one file, got 3" in call(folder, "submit", *files, *source, "--name", "x", code=2)
        assert "--explain is for one file, got 3" in call(folder, "submit", *files, *source, "--explain", code=2)
        assert server.manager.names == ["mean 2", "mean 4"]
        assert (folder / "control" / "log").read_text().count('"state":"intent"') == 1
        again = written(tmp_path / "again.json", flow("mean 10", 10))
        answers = json.loads(call(folder, "submit", files[2], again, *source, "--json"))
        assert [answer["name"] for answer in answers] == ["mean 5", "mean 10"]
        assert [one["owner"] for one in json.loads(call(folder, "list", "--json"))] == ["ada"] * 4
        until(lambda: server.manager.stats()["rows"].get("mean 2") == 20)
    with Serving(folder) as server:
        assert server.manager.names == ["mean 2", "mean 4", "mean 5", "mean 10"]


def test_concurrent_dataflows_get_folders_of_their_own(tmp_path, readings):
    (tmp_path / "m" / "out" / "mean").mkdir(parents=True)
    dataflows = [
        {"dataflow": flow(name, window).to_dict(), "sources": {"readings": {"file": str(readings)}}, "sinks": {}}
        for name, window in (("mean", 2), ("mean-2", 4))
    ]
    with Serving(tmp_path / "m") as server:
        answers = server.handle({"do": "submit", "dataflows": dataflows})
        folders = [Path(answer["sinks"]["out"]["folder"]).name for answer in answers]
        assert folders == ["mean-2", "mean-2-2"]
        until(lambda: server.manager.stats()["rows"] == {"mean": 20, "mean-2": 10})


@pytest.mark.long
def test_refused_request_reports_why_and_changes_nothing(tmp_path, readings):
    folder = tmp_path / "shared"
    file = written(tmp_path / "mean.json", flow())
    source = ("--source", f"readings={readings}")
    with Serving(folder):
        call(folder, "submit", file, *source)
        assert "'mean' is running" in call(folder, "submit", file, *source, code=2)
        assert "no dataflow 'men'" in call(folder, "remove", "men", code=2)
        assert "needs a source for 'readings'" in call(folder, "submit", file, "--name", "b", code=2)
        assert "no source 'x'" in call(folder, "submit", file, "--name", "b", *source, "--source", "x=city", code=2)
        assert "no sink 'x'" in call(folder, "submit", file, "--name", "b", *source, "--sink", "x=discard", code=2)
        assert "on_slow must be" in call(folder, "submit", file, "--name", "b", *source, "--on-slow", "x", code=2)
        assert "--format must be" in call(folder, "show", "--format", "png", code=2)
        assert "cannot be read" in call(folder, "submit", str(tmp_path / "no.json"), code=2)
        (tmp_path / "bad.json").write_text("{")
        assert "is not JSON" in call(folder, "submit", str(tmp_path / "bad.json"), code=2)
        (tmp_path / "bad.json").write_text('{"dataflow": {}, "source": {}}')
        assert "got 'source'" in call(folder, "submit", str(tmp_path / "bad.json"), code=2)
        with pytest.raises(ConfigError, match="'do' must be one of"):
            send_request(folder, {"do": "format"})
        with pytest.raises(ConfigError, match=r"remove: an object with nme: .*name"):
            send_request(folder, {"do": "remove", "nme": "mean"})
        with pytest.raises(ConnectorError, match=r"in use by this process"):
            ReuseServer(folder)
        assert [one["name"] for one in json.loads(call(folder, "list", "--json"))] == ["mean"]
    with pytest.raises(ConfigError, match="--backend must be local or spark, got 'sparc'"):
        ReuseServer(folder, "sparc")


def test_options_override_the_endpoints_of_a_file(tmp_path, readings):
    folder = tmp_path / "shared"
    whole = {"dataflow": flow().to_dict(), "sources": {"readings": str(readings)}, "sinks": {"out": "discard"}}
    file = tmp_path / "whole.json"
    file.write_text(json.dumps(whole))
    with Serving(folder) as server:
        answer = json.loads(call(folder, "submit", str(file), "--json"))
        assert answer["sinks"] == {"out": {"discard": True}}
        sink = ("--sink", f"out={tmp_path / 'mine'}")
        answer = json.loads(call(folder, "submit", str(file), "--name", "b", "--json", *sink))
        assert answer["sinks"] == {"out": {"folder": str(tmp_path / "mine")}}
        bare = written(tmp_path / "bare.json", flow("c"))
        out = ("--source", f"readings={readings}", "--out", str(tmp_path / "all"))
        assert json.loads(call(folder, "submit", bare, "--json", *out))["sinks"]["out"] == {
            "folder": str(tmp_path / "all")
        }
        until(lambda: server.manager.stats()["rows"]["mean"] == 8)
    assert (tmp_path / "mine" / "average").is_dir() and not (folder / "out").exists()


def test_ten_concurrent_submissions(tmp_path, readings):
    folder = tmp_path / "shared"
    with Serving(folder) as server:
        errors = []

        def submit(i):
            try:
                sources, sinks = {"readings": str(readings)}, {"out": {"discard": True}}
                request = {"dataflow": flow().to_dict(), "sources": sources, "sinks": sinks}
                send_request(folder, {"do": "submit", "dataflows": [{**request, "name": f"user {i // 2}"}]})
            except ConfigError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=submit, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(server.manager.names) == sorted(f"user {i}" for i in range(10))
        assert len(errors) == 10 and all("is running" in error for error in errors)
        assert server.manager.stats()["steps"] == 3


def serving(folder, options=("--epoch", "0s")):
    process = subprocess.Popen(
        [sys.executable, "-m", "riot_ops", "reuse", "serve", "--dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    first = next(
        (line for line in process.stdout if line.startswith("serving in")), ""
    )  # Spark may print lines before it
    return process, first


@pytest.mark.long
def test_killed_manager_continues_and_interrupt_ends_it(tmp_path, readings):
    folder = tmp_path / "shared"
    process, first = serving(folder)
    assert first.startswith("serving in") and "resume" not in first
    source, seen = {"file": str(readings), "rate": 40}, {}
    for name in ("a", "b", "ä/ö"):
        request = {"dataflow": flow(name).to_dict(), "sources": {"readings": source}, "sinks": {}}
        [answer] = send_request(folder, {"do": "submit", "dataflows": [request]})
        seen[name] = answer["first"]["readings"]
    send_request(folder, {"do": "remove", "name": "b"})
    before = {one["name"]: one["sinks"]["out"]["folder"] for one in send_request(folder, {"do": "list"})}
    with pytest.raises(ConnectorError, match=f"process {process.pid}"):
        ReuseServer(folder)
    process.kill()
    process.wait()
    process, first = serving(folder)
    assert "2 dataflows resume" in first
    listed = {one["name"]: one["sinks"]["out"]["folder"] for one in send_request(folder, {"do": "list"})}
    assert listed == before and set(listed) == {"a", "ä/ö"}
    until(lambda: send_request(folder, {"do": "stats"})["messages"] == 40)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert not (folder / "control" / "socket").exists()
    alone = flow().run(ro.read(readings))["average"].to_pylist()
    assert len(alone) == 8 and seen["a"] == 0
    for name, path in listed.items():
        got = [row for file in Path(path).glob("average/part-*") for row in pq.read_table(file).to_pylist()]
        wanted = [row for row in alone if row["seq"] >= seen[name]]
        assert sorted(map(exact, got)) == sorted(map(exact, wanted))


@pytest.mark.slow
@pytest.mark.spark
def test_killed_manager_on_spark_continues(tmp_path):
    folder, messages = tmp_path / "shared", 1000
    made = ro.Dataflow("kept")
    parsed = made.source("city").to(t.ParseSenML(schema="city"), id="parse")
    made.sink("out", parsed.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman"))
    city = {"stream": "city", "sensors": 90, "messages": messages, "rate": 200}
    request = {"dataflow": made.to_dict(), "sources": {"city": city}, "sinks": {}}
    process, first = serving(folder, ("--backend", "spark", "--cores", "1"))
    try:
        send_request(folder, {"do": "submit", "dataflows": [request]})
        until(lambda: send_request(folder, {"do": "stats"})["rows"]["kept"], 60)
        process.kill()
        process.wait()
        process, first = serving(folder, ("--backend", "spark", "--cores", "1"))
        assert "1 dataflows resume" in first
        out = folder / "out" / "kept" / "kalman"
        until(lambda: sum(pq.read_metadata(f).num_rows for f in out.glob("part-*")) >= 5 * messages, 90)
        send_request(folder, {"do": "stop"})
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
    alone = made.run(CitySource(90, messages=messages))["kalman"]
    got = pq.read_table([*out.glob("part-*")]).select(alone.schema.names)
    assert sorted(map(exact, got.to_pylist())) == sorted(map(exact, alone.to_pylist()))


@pytest.mark.long
def test_serve_reports_a_failed_back_end(tmp_path, monkeypatch):
    made = LocalBackend()
    monkeypatch.setattr(reuse_server, "_create_backend", lambda *given: made)
    monkeypatch.setattr(made, "start", lambda: setattr(made, "error", ConnectorError("the disk is gone")))
    monkeypatch.setattr(cli_reuse.signal, "signal", lambda *given: None)
    result = CliRunner().invoke(cli.app, ["reuse", "serve", "--dir", str(tmp_path)])
    assert result.exit_code == 1 and "the disk is gone" in result.output


@pytest.mark.slow
@pytest.mark.spark
def test_server_on_spark_ends_with_the_jvm(tmp_path):
    process, first = serving(tmp_path / "shared", ("--backend", "spark", "--cores", "1"))
    try:
        assert first.startswith("serving in")
        made = ro.Dataflow("kept")
        made.sink("out", made.source("city").to(t.ParseSenML(schema="city"), id="parse"))
        request = {"dataflow": made.to_dict(), "sources": {"city": {"stream": "city", "rate": 50}}, "sinks": {}}
        send_request(tmp_path / "shared", {"do": "submit", "dataflows": [request]})
        until(lambda: send_request(tmp_path / "shared", {"do": "stats"})["rows"]["kept"], 60)
        [jvm] = [p for p in psutil.Process(process.pid).children(recursive=True) if "java" in p.name()]
        jvm.kill()
        text, _ = process.communicate(timeout=60)
        assert process.returncode == 1 and "Spark is gone" in text
    finally:
        process.kill()


@pytest.mark.long
def test_stop_waits_until_another_manager_may_serve(tmp_path, monkeypatch):
    may = threading.Event()
    with Serving(tmp_path) as server:
        close = server.manager.backend.close
        monkeypatch.setattr(server.manager.backend, "close", lambda: may.wait(20) and close())
        monkeypatch.setattr(cli_reuse, "STOP_SECONDS", 0.1)
        result = CliRunner().invoke(cli.app, ["reuse", "stop", "--dir", str(tmp_path)])
        assert result.exit_code == 1 and "has not ended within 0.1 s" in result.output
        may.set()
    monkeypatch.undo()
    with Serving(tmp_path) as server:
        close = server.manager.backend.close
        monkeypatch.setattr(server.manager.backend, "close", lambda: time.sleep(0.3) or close())
        call(tmp_path, "stop")
        ReuseServer(tmp_path).close()


# -- sources and sinks -----------------------------------------------------------------------------
