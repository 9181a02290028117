"""Paths and file: URIs, wherever a path is taken; other addresses make no folder of their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli.job import Job
from riot_ops.cli.single_jobs import MicroJob
from riot_ops.connectors.mqtt.folder import folder_of
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.connectors.stores import open_blobs
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import local_path
from riot_ops.core.sink import ParquetSink
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.streams import city, replay
from riot_ops.streams.writer import write


@pytest.mark.parametrize(
    ("given", "path"),
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
def test_what_a_path_names(given, path):
    assert local_path(given) == Path(path)


@pytest.mark.parametrize("given", ["file://host/x", "file://", "file:///x?y", "file:///x#y", b"/x", 7, None])
def test_what_is_no_path(given):
    with pytest.raises(ConfigError, match=r"^out must be "):
        local_path(given, "out")


def flow():
    made = ro.Dataflow("paths")
    made.sink("out", made.source("readings", schema={"value": "double"}).to(t.KalmanFilter(), id="smooth"))
    return made


#: How to name a place, and what comes to be there.
PLACES = {
    "out": lambda place: flow().run([{"value": 1.0}], out=place),
    "checkpoint": lambda place: flow().run([{"value": 1.0}], checkpoint=place),
    "sink": lambda place: flow().run([{"value": 1.0}], sinks=ParquetSink(place)),
    "spool": lambda place: os.makedirs(MQTTSource(url="memory://x", topics=["#"], client_id="a", spool=place).spool),
    "blobs": lambda place: FolderBlobs(place).write("a", b""),
    "store": lambda place: open_blobs(str(place)).write("a", b""),
    "bloom": lambda place: (BloomFilter.of(["a"], 0.01).save(place), BloomFilter.load(place)),
    "filter": lambda place: (
        BloomFilter.of(["a"], 0.01).save(place),
        t.CheckBloomFilter(model=str(place)).session().push({"sensor_id": "a", "value": 1.0}),
    ),
    "zip": lambda place: t.ZipToFolder(directory=str(place), size=1).session().push({"name": "a", "data": b""}),
    "probe": lambda place: ro.Probe(folder=place),
    "write": lambda place: (write(city(sensors=2, messages=3), place), replay(place)),
    "command": lambda place: Job("stats", out=place).out.mkdir(),
    "micro": lambda place: MicroJob("micro", out=place).out.mkdir(),
}


@pytest.mark.parametrize("kind", PLACES)
def test_wherever_a_path_is_taken(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    PLACES[kind](f"file://{tmp_path}/a%20b")
    assert (tmp_path / "a b").exists()
    before = sorted(tmp_path.rglob("*"))
    for scheme in ("s3a", "hdfs"):
        with pytest.raises(ConfigError, match=f"{scheme}") as caught:
            PLACES[kind](f"{scheme}://user:pa55@host/x")
        assert "pa55" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_broker_in_a_folder(tmp_path):
    assert folder_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    for url in ("file:///", "/tmp/x", "file://host/x"):
        with pytest.raises(ConfigError, match="url must be"):
            folder_of(url)
