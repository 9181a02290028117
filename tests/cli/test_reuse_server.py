"""The server of a manager: its back end, and the endpoints of its dataflows."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from riot_ops.cli import reuse_endpoints
from riot_ops.cli.reuse_server import ReuseServer
from riot_ops.core.errors import ConfigError, ConnectorError
from tests.reuse.serving import LINES, Serving, flow


@pytest.mark.long
def test_failed_back_end_ends_the_server(tmp_path, readings):
    folder = tmp_path / "shared"
    server = ReuseServer(folder)
    request = {"dataflow": flow().to_dict(), "sources": {"readings": {"file": str(readings)}}, "sinks": {}}
    server.handle({"do": "submit", "dataflows": [request]})
    server.manager.backend.error = ConnectorError("the disk is gone")
    with pytest.raises(ConnectorError, match="disk is gone"):
        server.serve()
    server.close()


def test_folder_keeps_its_back_end(tmp_path):
    with Serving(tmp_path):
        pass
    with pytest.raises(ConfigError, match="run with --backend local, got spark"):
        ReuseServer(tmp_path, "spark")
    ReuseServer(tmp_path, "local").close()
    (tmp_path / "control" / "backend").write_text("spark")
    with pytest.raises(ConfigError, match="run with --backend spark, got local"):
        ReuseServer(tmp_path, "local")
    with pytest.raises(ConfigError, match=r"--epoch is for --backend local, got 1s with spark"):
        ReuseServer(tmp_path, epoch="1s")


def test_name_under_removal_keeps_the_new_endpoints(tmp_path, readings):
    other = tmp_path / "other.csv"
    other.write_text("device,value\n" + LINES[:30])
    with Serving(tmp_path / "m") as server:

        def submit(file):
            what = {"dataflow": flow().to_dict(), "sources": {"readings": {"file": str(file)}}, "sinks": {}}
            return server.handle({"do": "submit", "dataflows": [what]})

        [first] = submit(readings)
        removing, remove, may = threading.Event(), server.manager.remove, threading.Event()

        def slowly(name):
            removing.set()
            assert may.wait(20)
            return remove(name)

        server.manager.remove = slowly
        going = threading.Thread(target=server.handle, args=({"do": "remove", "name": "mean"},))
        going.start()
        assert removing.wait(20)
        threading.Timer(0.2, may.set).start()
        [second] = submit(other)
        going.join()
        assert second["sinks"] != first["sinks"]
        assert server.stored_endpoints("mean") == {
            "name": "mean", "sources": {"readings": {"file": str(other)}}, "written": second["sinks"]
        }  # fmt: skip


def test_slow_source_does_not_block_other_submissions(tmp_path, readings, monkeypatch):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    opening, may, read = threading.Event(), threading.Event(), reuse_endpoints.read

    def slowly(file, **options):
        if Path(file) == other:
            opening.set()
            assert may.wait(20)
        return read(file, **options)

    other = tmp_path / "other.csv"
    other.write_text(readings.read_text())
    monkeypatch.setattr(reuse_endpoints, "read", slowly)
    with Serving(tmp_path / "m") as server:

        def submit(name, file):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(file)}}}
            return server.handle({"do": "submit", "dataflows": [{**what, "sinks": {}}]})

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


def test_damaged_endpoints_hide_no_other_dataflow(tmp_path, readings):
    with Serving(tmp_path / "m") as server:
        for name in ("ada", "bob"):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(readings)}}}
            server.handle({"do": "submit", "dataflows": [{**what, "sinks": {}}]})
        for damaged in ("[]", "{", "{}"):
            server.endpoints_file("ada").write_text(damaged)
            ada, bob = server.handle({"do": "list"})
            assert (ada["name"], ada["sinks"]) == ("ada", {}) and bob["sinks"]["out"]["folder"].endswith("bob")


def test_endpoints_of_removed_dataflows_are_removed_at_the_next_start(tmp_path, readings):
    with Serving(tmp_path / "m") as server:
        for name in ("ada", "bob"):
            what = {"dataflow": flow().to_dict(), "name": name, "sources": {"readings": {"file": str(readings)}}}
            server.handle({"do": "submit", "dataflows": [{**what, "sinks": {}}]})
        server.handle({"do": "remove", "name": "ada"})
    with Serving(tmp_path / "m") as server:
        assert [*(tmp_path / "m" / "control" / "submitted").iterdir()] == [server.endpoints_file("bob")]
        assert server.handle({"do": "list"})[0]["sinks"]
