"""Paths and file: URIs in every path that accepts a path; a URI of another scheme never creates a folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli.job import Job
from riot_ops.cli.micro_job import MicroJob
from riot_ops.connectors.mqtt.folder import folder_of
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.connectors.stores import open_blobs
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.core.errors import ConfigError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.paths import local_path, temporary_folder
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.streams import city, replay
from riot_ops.streams.files import write


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/tmp/x", "/tmp/x"),
        ("x/y", "x/y"),
        ("file:///tmp/a%20b%23", "/tmp/a b#"),
        ("file:/tmp/x", "/tmp/x"),
        ("FILE://localhost/tmp/x", "/tmp/x"),
        (Path("file:///tmp/x%25"), "/tmp/x%"),  # pathlib makes file:/tmp of it
        ("/tmp/a%20b", "/tmp/a%20b"),
        ("./s3a:/x", "s3a:/x"),
        ("12:30", "12:30"),
        ("C:/x", "C:/x"),
    ],
)
def test_local_path_of_paths_and_uris(value, path):
    assert local_path(value) == Path(path)


@pytest.mark.parametrize("value", ["file://host/x", "file://", "file:///x?y", "file:///x#y", b"/x", 7, None])
def test_other_hosts_and_objects_are_not_paths(value):
    with pytest.raises(ConfigError, match=r"^out must be "):
        local_path(value, "out")


@pytest.mark.parametrize("value", ["a\x00b", Path("a\x00b"), "file:///tmp/a%00b", "file:/tmp/a\x00b"])
def test_nul_in_a_path_is_refused_by_name(value):
    with pytest.raises(ConfigError, match=r"^out must be a path without NUL characters, got '.*a\\x00b'"):
        local_path(value, "out")


def flow():
    dataflow = ro.Dataflow("paths")
    dataflow.sink("out", dataflow.source("readings", schema={"value": "double"}).to(t.KalmanFilter(), id="smooth"))
    return dataflow


#: By API, a function that creates files at a path.
PLACES = {
    "out": lambda path: flow().run([{"value": 1.0}], out=path),
    "checkpoint": lambda path: flow().run([{"value": 1.0}], checkpoint=path),
    "sink": lambda path: flow().run([{"value": 1.0}], sinks=ParquetSink(path)),
    "spool": lambda path: os.makedirs(MQTTSource(url="memory://x", topics=["#"], client_id="a", spool=path).spool),
    "blobs": lambda path: FolderBlobs(path).write("a", b""),
    "store": lambda path: open_blobs(str(path)).write("a", b""),
    "bloom": lambda path: (BloomFilter.of(["a"], 0.01).save(path), BloomFilter.load(path)),
    "filter": lambda path: (
        BloomFilter.of(["a"], 0.01).save(path),
        t.CheckBloomFilter(models={"sensor_id": str(path)}).session().push({"sensor_id": "a", "value": 1.0}),
    ),
    "zip": lambda path: t.Zip(to=str(path), size=1).session().push({"name": "a", "data": b""}),
    "probe": lambda path: ro.Probe(folder=path),
    "write": lambda path: (write(city(sensors=2, messages=3), path), replay(path)),
    "command": lambda path: Job("stats", out=path).out.mkdir(),
    "micro": lambda path: MicroJob("micro", out=path).out.mkdir(),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", PLACES)
def test_every_api_accepts_file_uris_and_refuses_others(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    PLACES[kind](f"file://{tmp_path}/a%20b")
    assert (tmp_path / "a b").exists()
    before = sorted(tmp_path.rglob("*"))
    for scheme in ("s3a", "hdfs"):
        with pytest.raises(ConfigError, match=f"{scheme}") as caught:
            PLACES[kind](f"{scheme}://user:pa55@host/x")
        assert "pa55" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_folder_of_a_broker_url(tmp_path):
    assert folder_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    for url in ("file:///", "/tmp/x", "file://host/x"):
        with pytest.raises(ConfigError, match="url must be"):
            folder_of(url)


LEAVE = """
import os, sys
from riot_ops.core.paths import temporary_folder
print(temporary_folder("riot_ops-test-"), flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_temporary_folders_of_killed_processes_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    foreign = tmp_path / "riot_ops-foreign"
    foreign.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LEAVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as left:
        folder = Path(left.stdout.readline().strip())
        (folder / "data").write_text("x")
        os.utime(folder / ".in-use", (0, 0))
        mine = temporary_folder("riot_ops-test-")
        assert folder.exists(), "its process runs"
        left.stdin.close()
        left.wait(20)
    os.utime(mine / ".in-use", (0, 0))
    again = temporary_folder("riot_ops-test-")
    assert {*tmp_path.iterdir()} == {mine, again, foreign} and stat.S_IMODE(again.stat().st_mode) == 0o700
