"""Output and checkpoints in an object store: what counts as committed, after any crash."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError, StateError
from riot_ops.core.manifest import ManifestFolder, StoredPart
from riot_ops.core.storage import Address
from riot_ops.core.text_sinks import CSVSink, JSONLinesSink
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.testing.services import Moto

ROOT = Path(__file__).resolve().parents[2]


def part(name, batch, stream="out"):
    return StoredPart(stream, name, batch, 1, 1, 0)


@pytest.fixture
def place(request):
    return Address.of(f"memory://{re.sub(r'[^a-z0-9]+', '-', request.node.name)}", {})


def names(folder):
    return [one.name for one in folder.parts()]


def manifests(place):
    return [one.name for one in (place / "_riot_ops").files() if one.name.endswith(".json")]


def plain(names):
    """Names of files without the token of their run."""
    return [re.sub(r"-[0-9a-f]{12}(?=\.|$)", "", name) for name in names]


def test_batches_count_once_and_in_order(place):
    folder = ManifestFolder(place, "parquet", {"out"})
    folder.commit(1, [part("b", 1)])
    folder.commit(0, [part("a", 0)])
    folder.commit(1, [part("c", 1)])
    assert names(folder) == ["a", "c"]
    assert names(ManifestFolder(place, "csv", {"out"})) == []
    assert names(ManifestFolder(place, "parquet", {"other"})) == []
    assert names(ManifestFolder(place, "parquet", None)) == ["a", "c"]


def test_one_manifest_replaces_many(place):
    folder = ManifestFolder(place, "parquet", {"out"})
    for batch in range(200):
        folder.commit(batch, [part(f"{batch:03d}", batch)])
    assert names(folder) == [f"{batch:03d}" for batch in range(200)]
    assert len(manifests(place)) == 1 + 200 - 192


@pytest.mark.parametrize("number", [0, 62, 63, 64, 70])
def test_recovery_removes_a_batch_and_later_ones(place, number):
    folder = ManifestFolder(place, "parquet", {"out"})
    for batch in range(70):
        folder.commit(batch, [part(f"{batch:03d}", batch)])
    folder.recover(number)
    assert names(folder) == [f"{batch:03d}" for batch in range(number)]
    folder.commit(number, [part("new", number)])
    assert names(folder)[number:] == ["new"]


def test_recovery_after_a_crash_between_the_new_manifest_and_the_end_of_the_old(place, monkeypatch):
    folder = ManifestFolder(place, "parquet", {"out"})
    for batch in range(63):
        folder.commit(batch, [part(f"{batch:03d}", batch)])
    with monkeypatch.context() as patch:
        patch.setattr(Address, "delete", lambda self: None)
        folder.commit(63, [part("063", 63)])
    assert len(manifests(place)) == 65 and len(names(folder)) == 64
    folder.recover(63)
    assert names(folder) == [f"{batch:03d}" for batch in range(63)]


def test_recovery_leaves_other_streams_of_a_manifest(place):
    before = ManifestFolder(place, "parquet", {"a", "b"})
    before.commit(3, [part("x", 3, "a"), part("y", 3, "b")])
    ManifestFolder(place, "parquet", {"a"}).recover(2)
    assert names(before) == ["y"]


def test_damaged_manifest_is_refused_and_removed_if_its_batch_comes_again(place):
    folder = ManifestFolder(place, "parquet", {"out"})
    folder.commit(0, [part("a", 0)])
    folder.commit(1, [part("b", 1)])
    file = place / "_riot_ops" / manifests(place)[-1]
    file.write(file.read().replace(b'"b"', b'"c"'))
    with pytest.raises(ConnectorError, match=r"manifest .*json is damaged: the checksum does not fit"):
        folder.parts()
    folder.recover(1)
    assert names(folder) == ["a"]


# -- sinks -----------------------------------------------------------------------------------------


def write(sink, batch, values, stream="out", partition=0):
    writer = sink.writer(batch, partition)
    writer.write(stream, pa.RecordBatch.from_pydict({"value": values}))
    return writer.finish()


SCHEMAS = {"out": pa.schema([("value", pa.int64())])}


@pytest.mark.parametrize("kind", [ro.ParquetSink, CSVSink, JSONLinesSink])
def test_only_committed_records_are_read(place, kind):
    sink = kind(str(place)).bind(SCHEMAS)
    sink.begin(False)
    sink.commit(0, [write(sink, 0, [1, 2]), write(sink, 0, [3], partition=1)])
    write(sink, 1, [4])
    assert sink.table("out")["value"].to_pylist() == [1, 2, 3]
    sink.recover(1)
    assert len((place / "out").files()) == 2
    again = kind(str(place)).bind(SCHEMAS)
    with pytest.raises(ConnectorError, match=r"memory://.* holds the output of an earlier run.*overwrite=True"):
        again.begin(False)
    again.begin(True)
    assert not again.files() and not (place / "out").files()
    again.end(SCHEMAS)
    assert again.table("out").num_rows == 0 and again.table("out").schema == SCHEMAS["out"]


def test_files_without_a_manifest_are_not_removed(place):
    (place / "out" / "part-000000-00000.parquet").write(b"of somebody else")
    sink = ro.ParquetSink(str(place)).bind(SCHEMAS)
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        sink.begin(False)
    assert (place / "out").files()


def test_files_are_rolled_and_each_record_counts_once(place):
    sink = ro.ParquetSink(str(place), roll_bytes=1200).bind(SCHEMAS)
    sink.begin(False)
    for batch in range(7):
        sink.commit(batch, [write(sink, batch, [batch])])
        assert sink.table("out")["value"].to_pylist() == list(range(batch + 1))
    files = [one.name for one in (place / "out").files()]
    shown = [name for name in files if not name.startswith(".")]
    assert shown and all("-rolled-" in name for name in shown) and len(files) < 7
    sink.recover(6)
    assert sink.table("out")["value"].to_pylist() == list(range(6))
    sink.commit(6, [write(sink, 6, [60])])
    sink.end(SCHEMAS)
    shown = {one.name for one in (place / "out").files()}
    assert {path.name for _, _, path in sink.files()} == shown and not any(n.startswith(".") for n in shown)
    assert sink.table("out")["value"].to_pylist() == [*range(6), 60]


def test_interval_rolls_and_a_run_without_rolling_shows_what_waits(place):
    sink = ro.ParquetSink(str(place), roll_interval="1h").bind(SCHEMAS)
    sink.begin(False)
    for batch in range(3):
        sink.commit(batch, [write(sink, batch, [batch])])
    assert [one.name[:9] for one in (place / "out").files()] == [".waiting-"] * 3
    unrolled = ro.ParquetSink(str(place)).bind(SCHEMAS)
    unrolled.recover(3)
    found = plain(one.name for one in (place / "out").files())
    assert found == [f"part-00000{n}-00000.parquet" for n in range(3)]
    assert unrolled.table("out")["value"].to_pylist() == [0, 1, 2]
    soon = ro.ParquetSink(str(place), roll_interval="1us").bind(SCHEMAS)
    for batch in range(3, 5):
        soon.commit(batch, [write(soon, batch, [batch])])
    assert "part-000003-rolled.parquet" in plain(one.name for one in (place / "out").files())


# -- runs on S3 ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto():
    with Moto() as service:
        yield service


@pytest.fixture
def bucket(moto, monkeypatch, request):
    for name, value in moto.settings().items():
        monkeypatch.setenv(name, value)
    return moto.create_bucket(f"b{abs(hash(request.node.nodeid)):x}"[:20])


def flow():
    made = ro.Dataflow("small")
    readings = made.source("readings", schema={"device": "string", "value": "double"})
    made.sink("out", readings.to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made


def rows(n):
    return [{"device": f"d{i % 3}", "value": float(i)} for i in range(n)]


@pytest.mark.integration
@pytest.mark.long
def test_run_on_an_object_store_continues_from_its_checkpoint(bucket, moto, tmp_path):
    out, checkpoint = f"{bucket}/a/out", f"{bucket}/a/state"
    options = {"batch_size": 5, "epoch_rows": 5}
    flow().run(rows(10), out=out, checkpoint=checkpoint, **options)
    result = flow().run(rows(25), out=out, checkpoint=checkpoint, **options)
    local = flow().run(rows(25), out=tmp_path / "out", **options)
    assert result["smooth"].equals(local["smooth"]) and result["smooth"].num_rows == 25
    assert result.errors.num_rows == 0
    client = boto3.client("s3", endpoint_url=moto.endpoint, region_name=moto.region)
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket[5:])["Contents"]]
    assert sum(key.startswith("a/out/smooth/part-") for key in keys) == 5
    assert sum(key.startswith("a/state/state-") for key in keys) == 2
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        flow().run(rows(1), out=out)
    assert flow().run(rows(1), out=out, overwrite=True)["smooth"].num_rows == 1


@pytest.mark.integration
@pytest.mark.long
def test_damaged_checkpoint_is_refused_and_the_one_before_continues(bucket):
    out, checkpoint = f"{bucket}/out", f"{bucket}/state"
    flow().run(rows(10), out=out, checkpoint=checkpoint, batch_size=5, epoch_rows=5)
    store = Checkpoint(Address.of(checkpoint, {}))
    newest = store.latest_path()
    data = newest.read()
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1])):
        newest.write(damaged)
        with pytest.raises(StateError, match=r"s3://.*state-.* is damaged: .*; remove it to continue from"):
            flow().run(rows(15), out=out, checkpoint=checkpoint)
    newest.delete()
    assert flow().run(rows(15), out=out, checkpoint=checkpoint)["smooth"]["seq"].to_pylist() == list(range(15))


JOB = """
import os, signal, sys
from riot_ops.core import manifest, storage
from tests.core.test_manifest import flow, rows

when, out, checkpoint = sys.argv[1:]
written = storage.Address.write
seen = []

def write(self, data):
    kind = "claim" if self.url.endswith(".claim") else "manifest" if "_riot_ops/" in self.url else "checkpoint" if "/state-" in self.url else "file"
    seen.append(kind)
    if seen.count(kind) == 3 and when == "before " + kind:
        os.kill(os.getpid(), signal.SIGKILL)
    written(self, data)
    if seen.count(kind) == 3 and when == "after " + kind:
        os.kill(os.getpid(), signal.SIGKILL)

storage.Address.write = write
flow().run(rows(25), out=out, checkpoint=checkpoint, batch_size=5, epoch_rows=5)
"""


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    "when", ["after file", "after manifest", pytest.param("before manifest", marks=pytest.mark.slow)]
)
def test_kill_at_each_step_of_a_commit_loses_and_doubles_nothing(bucket, tmp_path, when):
    out, checkpoint = f"{bucket}/out", f"{bucket}/state"
    command = [sys.executable, "-c", JOB, when, out, checkpoint]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    result = flow().run(rows(25), out=out, checkpoint=checkpoint, batch_size=5, epoch_rows=5)
    local = flow().run(rows(25), out=tmp_path / "out", batch_size=5, epoch_rows=5)
    assert result["smooth"].equals(local["smooth"])
    # readers that know no manifests see each record once
    place = Address.of(f"{out}/smooth", {})
    for file in place.files():
        (tmp_path / file.name).write_bytes((place / file.name).read())
    found = duckdb.sql(f"select seq from '{tmp_path}/part-*.parquet' order by seq").fetchall()
    assert [seq for (seq,) in found] == list(range(25))
    assert pq.read_table([*tmp_path.glob("part-*.parquet")]).num_rows == 25
    for name in manifests(Address.of(out, {})):
        assert "crc32" in json.loads(Address.of(f"{out}/_riot_ops/{name}", {}).read())
