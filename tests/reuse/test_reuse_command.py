"""``riot-ops reuse``: a manager that serves in a folder, and those who ask it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
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
from riot_ops.cli import reuse_endpoints as reuse_ends
from riot_ops.cli import reuse_server
from riot_ops.cli.reuse_endpoints import end, made_sink, made_source
from riot_ops.cli.reuse_server import ReuseServer
from riot_ops.cli.reuse_socket import asked, control_folder
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact

SCHEMA = {"device": "string", "value": "double"}
LINES = "".join(f"{'ab'[i % 2]},{i}.5\n" for i in range(40))


def flow(name="mean", window=5):
    made = ro.Dataflow(name)
    stream = made.source("readings", schema=SCHEMA).to(t.MovingAverage(by=("device",), window=window), id="average")
    return made.sink("out", stream)


@pytest.fixture
def readings(tmp_path):
    file = tmp_path / "readings.csv"
    file.write_text("device,value\n" + LINES)
    return file


def written(path, flow):
    path.write_text(flow.to_json(), encoding="utf-8")
    return str(path)


class Serving:
    """A manager that serves in this process."""

    def __init__(self, folder, **options):
        self.server = ReuseServer(folder, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.server.serve()
        finally:
            self.server.close()

    def __enter__(self):
        return self.server

    def __exit__(self, *error):
        self.server.over.set()
        self._thread.join(20)


def call(folder, *args, code=0):
    result = CliRunner().invoke(cli.app, ["reuse", *args, "--dir", str(folder)])
    if code == 0:
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output
    assert isinstance(result.exception, ro.RiotError)  # which the program turns into exit code 2
    return str(result.exception)


def until(what, seconds=30):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_dataflow_comes_and_goes(tmp_path, readings):
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
        assert call(folder, "list").splitlines()[1].split("\t")[-1] == "runs"
        assert "mean, mean 2" in call(folder, "show")
        call(folder, "show", "--format", "svg", "--out", str(tmp_path / "all.svg"))
        assert (tmp_path / "all.svg").read_text().startswith("<svg")
        assert json.loads(call(folder, "stats", "--json"))["steps"] == 3
        assert "steps: 3" in call(folder, "stats")
        assert call(folder, "pause", "mean") == "readings: from message 40 on\n"
        assert json.loads(call(folder, "list", "--json"))[0]["paused"]
        call(folder, "resume", "mean")
        call(folder, "defragment")
        assert "0 steps end, 3 go on" in call(folder, "remove", "mean")
        assert json.loads(call(folder, "remove", "mean 2", "--json"))["kept"] == []
        call(folder, "stop")
        until(server.over.is_set)
    assert pq.read_table(folder / "out" / "mean" / "average").num_rows == 8
    assert answer["sinks"]["out"]["folder"].startswith(str(folder / "out" / "mean_2-"))
    assert "none is there" in call(folder, "list", code=2)


def test_several_come_as_one_action_or_not_at_all(tmp_path, readings):
    folder = tmp_path / "shared"
    files = [written(tmp_path / f"{window}.json", flow(f"mean {window}", window)) for window in (2, 4, 5)]
    source = ("--source", f"readings={readings}", "--owner", "ada")
    with Serving(folder) as server:
        told = call(folder, "submit", *files[:2], *source)
        assert [line for line in told.splitlines() if line.startswith("mean")] == [
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


def test_two_that_come_together_do_not_write_into_one_folder(tmp_path, readings):
    (tmp_path / "m" / "out" / "mean").mkdir(parents=True)
    dataflows = [
        {"dataflow": flow(name, window).to_dict(), "sources": {"readings": {"file": str(readings)}}, "sinks": {}}
        for name, window in (("mean", 2), ("mean-2", 4))
    ]
    with Serving(tmp_path / "m") as server:
        answers = server.answer({"do": "submit", "dataflows": dataflows})
        folders = [Path(answer["sinks"]["out"]["folder"]).name for answer in answers]
        assert folders == ["mean-2", "mean-2-2"]
        until(lambda: server.manager.stats()["rows"] == {"mean": 20, "mean-2": 10})


def test_what_is_refused_is_told_and_changes_nothing(tmp_path, readings):
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
        assert "is no JSON" in call(folder, "submit", str(tmp_path / "bad.json"), code=2)
        (tmp_path / "bad.json").write_text('{"dataflow": {}, "source": {}}')
        assert "got 'source'" in call(folder, "submit", str(tmp_path / "bad.json"), code=2)
        with pytest.raises(ConfigError, match="'do' must be one of"):
            asked(folder, {"do": "format"})
        with pytest.raises(ConfigError, match=r"remove: an object with nme: .*name"):
            asked(folder, {"do": "remove", "nme": "mean"})
        with pytest.raises(ConnectorError, match=r"in use by this process"):
            ReuseServer(folder)
        assert [one["name"] for one in json.loads(call(folder, "list", "--json"))] == ["mean"]
    with pytest.raises(ConfigError, match="--backend must be local or spark, got 'sparc'"):
        ReuseServer(folder, "sparc")


def test_a_file_tells_its_sources_and_sinks_and_options_come_before_it(tmp_path, readings):
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


def test_ten_submit_at_once(tmp_path, readings):
    folder = tmp_path / "shared"
    with Serving(folder) as server:
        errors = []

        def submit(i):
            try:
                sources, sinks = {"readings": str(readings)}, {"out": {"discard": True}}
                request = {"dataflow": flow().to_dict(), "sources": sources, "sinks": sinks}
                asked(folder, {"do": "submit", "dataflows": [{**request, "name": f"user {i // 2}"}]})
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


def test_only_its_user_may_open_it_however_far_below_it_stands(tmp_path):
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    assert len(str(folder)) > 140
    with Serving(folder):
        control = folder / "control"
        assert stat.S_IMODE(control.stat().st_mode) == 0o700
        assert stat.S_IMODE((control / "socket").stat().st_mode) == 0o600
        assert asked(folder, {"do": "list"}) == []
        assert "control" not in os.getcwd()
    assert not (control / "socket").exists()


def test_a_folder_that_is_open_to_others_is_closed_and_one_of_somebody_else_refused(tmp_path):
    (tmp_path / "a" / "control").mkdir(parents=True, mode=0o777)
    assert stat.S_IMODE(control_folder(tmp_path / "a").stat().st_mode) == 0o700
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "control").symlink_to(tmp_path / "a" / "control")
    with pytest.raises(ConnectorError, match="no folder of this user"):
        control_folder(tmp_path / "b")


def test_what_is_no_request_is_answered_or_ends(tmp_path):
    folder = tmp_path / "shared"
    with Serving(folder):
        for line, wanted in ((b"{\n", "must be a line of JSON"), (b"[]\n", "a request is a JSON object"), (b"{", None)):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(folder / "control" / "socket"))
                raw.sendall(line)
                raw.shutdown(socket.SHUT_WR)
                answer = raw.makefile("rb").readline()
            assert (wanted is None and answer == b"") or wanted in json.loads(answer)["error"]
        assert asked(folder, {"do": "list"}) == []


def serving(folder, options=("--epoch", "0")):
    process = subprocess.Popen(
        [sys.executable, "-m", "riot_ops", "reuse", "serve", "--dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    first = next((line for line in process.stdout if line.startswith("serving in")), "")  # Spark says things before
    return process, first


def test_one_that_was_killed_goes_on_and_ctrl_c_ends_it(tmp_path, readings):
    folder = tmp_path / "shared"
    process, first = serving(folder)
    assert first.startswith("serving in") and "go on" not in first
    source, seen = {"file": str(readings), "rate": 40}, {}
    for name in ("a", "b", "ä/ö"):
        request = {"dataflow": flow(name).to_dict(), "sources": {"readings": source}, "sinks": {}}
        [answer] = asked(folder, {"do": "submit", "dataflows": [request]})
        seen[name] = answer["first"]["readings"]
    asked(folder, {"do": "remove", "name": "b"})
    before = {one["name"]: one["sinks"]["out"]["folder"] for one in asked(folder, {"do": "list"})}
    with pytest.raises(ConnectorError, match=f"process {process.pid}"):
        ReuseServer(folder)
    process.kill()
    process.wait()
    process, first = serving(folder)
    assert "2 dataflows go on" in first
    listed = {one["name"]: one["sinks"]["out"]["folder"] for one in asked(folder, {"do": "list"})}
    assert listed == before and set(listed) == {"a", "ä/ö"}
    until(lambda: asked(folder, {"do": "stats"})["messages"] == 40)
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
def test_on_spark_one_that_was_killed_goes_on_where_it_was(tmp_path):
    folder, messages = tmp_path / "shared", 1000
    made = ro.Dataflow("kept")
    parsed = made.source("city").to(t.ParseSenML(schema="city"), id="parse")
    made.sink("out", parsed.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman"))
    city = {"stream": "city", "sensors": 90, "messages": messages, "rate": 200}
    request = {"dataflow": made.to_dict(), "sources": {"city": city}, "sinks": {}}
    process, first = serving(folder, ("--backend", "spark", "--cores", "1"))
    try:
        asked(folder, {"do": "submit", "dataflows": [request]})
        until(lambda: asked(folder, {"do": "stats"})["rows"]["kept"], 60)
        process.kill()
        process.wait()
        process, first = serving(folder, ("--backend", "spark", "--cores", "1"))
        assert "1 dataflows go on" in first
        out = folder / "out" / "kept" / "kalman"
        until(lambda: sum(pq.read_metadata(f).num_rows for f in out.glob("part-*")) >= 5 * messages, 90)
        asked(folder, {"do": "stop"})
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
    alone = made.run(CitySource(90, messages=messages))["kalman"]
    got = pq.read_table([*out.glob("part-*")]).select(alone.schema.names)
    assert sorted(map(exact, got.to_pylist())) == sorted(map(exact, alone.to_pylist()))


def test_what_fails_for_all_ends_it(tmp_path, readings):
    folder = tmp_path / "shared"
    server = ReuseServer(folder)
    request = {"dataflow": flow().to_dict(), "sources": {"readings": {"file": str(readings)}}, "sinks": {}}
    server.answer({"do": "submit", "dataflows": [request]})
    server.manager.backend._broken = ConnectorError("the disk is gone")
    with pytest.raises(ConnectorError, match="disk is gone"):
        server.serve()
    server.close()


def test_serve_tells_that_what_serves_has_failed(tmp_path, monkeypatch):
    made = LocalBackend()
    monkeypatch.setattr(reuse_server, "_backend", lambda *given: made)
    monkeypatch.setattr(made, "start", lambda: setattr(made, "_broken", ConnectorError("the disk is gone")))
    monkeypatch.setattr(cli_reuse.signal, "signal", lambda *given: None)
    result = CliRunner().invoke(cli.app, ["reuse", "serve", "--dir", str(tmp_path)])
    assert result.exit_code == 1 and "the disk is gone" in result.output


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_it_ends_when_the_jvm_has(tmp_path):
    process, first = serving(tmp_path / "shared", ("--backend", "spark", "--cores", "1"))
    try:
        assert first.startswith("serving in")
        made = ro.Dataflow("kept")
        made.sink("out", made.source("city").to(t.ParseSenML(schema="city"), id="parse"))
        request = {"dataflow": made.to_dict(), "sources": {"city": {"stream": "city", "rate": 50}}, "sinks": {}}
        asked(tmp_path / "shared", {"do": "submit", "dataflows": [request]})
        until(lambda: asked(tmp_path / "shared", {"do": "stats"})["rows"]["kept"], 60)
        [jvm] = [p for p in psutil.Process(process.pid).children(recursive=True) if "java" in p.name()]
        jvm.kill()
        text, _ = process.communicate(timeout=60)
        assert process.returncode == 1 and "Spark is gone" in text
    finally:
        process.kill()


def test_stop_waits_until_another_may_serve(tmp_path, monkeypatch):
    may = threading.Event()
    with Serving(tmp_path) as server:
        close = server.manager.backend.close
        monkeypatch.setattr(server.manager.backend, "close", lambda: may.wait(20) and close())
        monkeypatch.setattr(cli_reuse, "STOP_SECONDS", 0.1)
        result = CliRunner().invoke(cli.app, ["reuse", "stop", "--dir", str(tmp_path)])
        assert result.exit_code == 1 and "has not ended after 0.1 s" in result.output
        may.set()
    monkeypatch.undo()
    with Serving(tmp_path) as server:
        close = server.manager.backend.close
        monkeypatch.setattr(server.manager.backend, "close", lambda: time.sleep(0.3) or close())
        call(tmp_path, "stop")
        ReuseServer(tmp_path).close()


def test_a_folder_keeps_its_back_end(tmp_path):
    with Serving(tmp_path):
        pass
    with pytest.raises(ConfigError, match="runs with --backend local, got spark"):
        ReuseServer(tmp_path, "spark")
    ReuseServer(tmp_path, "local").close()
    (tmp_path / "control" / "backend").write_text("spark")
    with pytest.raises(ConfigError, match="runs with --backend spark, got local"):
        ReuseServer(tmp_path, "local")
    with pytest.raises(ConfigError, match=r"--epoch is for --backend local, got 1\.0 with spark"):
        ReuseServer(tmp_path, epoch_s=1.0)


# -- sources and sinks -----------------------------------------------------------------------------


def test_sources_are_streams_files_and_brokers(tmp_path, readings):
    raw, own = ro.Dataflow("a"), ro.Dataflow("b")
    raw.source("city")
    own.source("readings", schema=SCHEMA)
    lines, fields = raw.nodes["city"].schema, own.nodes["readings"].schema
    made = made_source(
        "s", end('{"stream": "city", "sensors": 7, "rate": 5, "messages": 3}', "s", "source"), lines, tmp_path
    )
    assert made.rate == 5 and made.source.sensors == 7 and made.source.messages == 3
    assert type(made_source("s", {"file": str(readings)}, fields, tmp_path)).__name__ == "FileSource"
    assert type(made_source("s", {"file": str(readings), "header": True}, lines, tmp_path)).__name__ == "ReplaySource"
    mqtt = {"mqtt": {"url": "memory://ends", "topics": ["a/#"], "password": {"env": "PASS"}, "username": "u"}}
    one, other = (made_source("s", mqtt, lines, tmp_path) for _ in range(2))
    assert one == other and one.spool.startswith(str(tmp_path)) and one.password.variable == "PASS"
    assert made_source("s", {"mqtt": {**mqtt["mqtt"], "qos": 2}}, lines, tmp_path).spool != one.spool


def test_sinks_are_folders_brokers_and_nothing(tmp_path):
    assert end("out", "s", "sink") == {"folder": os.path.abspath("out")}
    assert made_sink("s", {"folder": str(tmp_path), "compression": "zstd"}).compression == "zstd"
    session = MemoryBroker.of("memory://sinks").session("me", ["#"])
    sink = made_sink("s", {"mqtt": {"url": "memory://sinks", "topic": "out/{stream}"}})
    batch = ro.MemorySource([{"value": 1.0}])
    [split] = batch.splits({"row": 0}, {"row": 1}, 1)
    for one in batch.read(split):
        sink.writer(0, 0).write("a", one)
        made_sink("s", end("discard", "s", "sink")).writer(0, 0).write("a", one)
    assert session[0].topic == "out/a"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "must have one of stream, file, mqtt, got nothing"),
        ({"strem": "city"}, 'did you mean "stream"'),
        ({"stream": "city", "file": "x"}, "must have one of"),
        ({"stream": "citty"}, "no generated stream 'citty'"),
        ({"stream": "city", "sensor": 3}, "sensor"),
        ({"file": "/dev/zero"}, "file must be a file or a folder, got '/dev/zero'"),
        ({"mqtt": "x"}, "mqtt must be an object, got str"),
        ({"mqtt": {"url": "memory://a", "topics": ["a"], "password": "hunter2"}}, '{"env": NAME}'),
        ({"mqtt": {"url": "mqtt://me:hunter2@host", "topics": ["a"]}}, "url must not hold user or password"),
    ],
)
def test_a_wrong_source_is_refused_without_its_secrets(tmp_path, given, text):
    flow = ro.Dataflow("a")
    flow.source("city")
    with pytest.raises(ConfigError) as caught:
        made_source("in", given, flow.nodes["city"].schema, tmp_path)
    assert text in str(caught.value) and "hunter2" not in str(caught.value) and "source in" in str(caught.value)


def test_text_that_is_no_json_is_refused_without_it():
    with pytest.raises(ConfigError, match="source in: not JSON") as caught:
        end('{"password": hunter2}', "in", "source")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="must be a text or an object, got int"):
        end(3, "in", "source")


def test_a_name_that_is_just_going_is_kept_with_what_comes(tmp_path, readings):
    other = tmp_path / "other.csv"
    other.write_text("device,value\n" + LINES[:30])
    with Serving(tmp_path / "m") as server:

        def submit(file):
            what = {"dataflow": flow().to_dict(), "sources": {"readings": {"file": str(file)}}, "sinks": {}}
            return server.answer({"do": "submit", "dataflows": [what]})

        [first] = submit(readings)
        removing, remove, may = threading.Event(), server.manager.remove, threading.Event()

        def slowly(name):
            removing.set()
            assert may.wait(20)
            return remove(name)

        server.manager.remove = slowly
        going = threading.Thread(target=server.answer, args=({"do": "remove", "name": "mean"},))
        going.start()
        assert removing.wait(20)
        threading.Timer(0.2, may.set).start()
        [second] = submit(other)
        going.join()
        assert second["sinks"] != first["sinks"]
        assert server._known("mean") == {
            "name": "mean", "sources": {"readings": {"file": str(other)}}, "written": second["sinks"]
        }  # fmt: skip


def test_a_source_that_takes_long_to_open_or_never_does_keeps_nobody_from_coming(tmp_path, readings, monkeypatch):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    opening, may, read = threading.Event(), threading.Event(), reuse_ends.read

    def slowly(file, **options):
        if Path(file) == other:
            opening.set()
            assert may.wait(20)
        return read(file, **options)

    other = tmp_path / "other.csv"
    other.write_text(readings.read_text())
    monkeypatch.setattr(reuse_ends, "read", slowly)
    with Serving(tmp_path / "m") as server:

        def submit(name, file):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(file)}}}
            return server.answer({"do": "submit", "dataflows": [{**what, "sinks": {}}]})

        with pytest.raises(ConfigError, match="file must be a file or a folder"):
            submit("pipe", pipe)
        waits = threading.Thread(target=submit, args=("slow", other))
        waits.start()
        assert opening.wait(20)
        submit("quick", readings)
        assert server.manager.names == ["quick"]
        may.set()
        waits.join()
        assert server.manager.names == ["quick", "slow"]


def test_what_cannot_be_read_of_one_dataflow_keeps_nobody_from_seeing_the_others(tmp_path, readings):
    with Serving(tmp_path / "m") as server:
        for name in ("ada", "bob"):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(readings)}}}
            server.answer({"do": "submit", "dataflows": [{**what, "sinks": {}}]})
        for damaged in ("[]", "{", "{}"):
            server._path("ada").write_text(damaged)
            ada, bob = server.answer({"do": "list"})
            assert (ada["name"], ada["sinks"]) == ("ada", {}) and bob["sinks"]["out"]["folder"].endswith("bob")


def test_what_was_kept_of_who_has_gone_goes_with_the_next_start(tmp_path, readings):
    with Serving(tmp_path / "m") as server:
        for name in ("ada", "bob"):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(readings)}}}
            server.answer({"do": "submit", "dataflows": [{**what, "sinks": {}}]})
        server.answer({"do": "remove", "name": "ada"})
    with Serving(tmp_path / "m") as server:
        assert [*(tmp_path / "m" / "control" / "submitted").iterdir()] == [server._path("bob")]
        assert server.answer({"do": "list"})[0]["sinks"]
