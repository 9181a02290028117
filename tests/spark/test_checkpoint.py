"""Spark checkpoints: the plan of a continued query, and relative paths."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.spark.checkpoint import SparkCheckpoint

pytestmark = pytest.mark.spark


SCHEMA = {"device": "string", "obs_type": "string", "value": "double"}


def two_keys():
    """Return a dataflow of two tasks whose keys have a field in common."""
    flow = ro.Dataflow("fused")
    fine = flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by=("device", "obs_type")), id="fine")
    flow.sink("out", fine.to(t.KalmanFilter(by=("obs_type",)), id="coarse"))
    return flow


@pytest.mark.parametrize(
    ("partitions", "fuse", "stages"),
    [
        (4, "auto", 2),
        (5, "auto", 3),
        pytest.param(4, "exact", 3, marks=pytest.mark.slow),
        pytest.param(5, "coarse", 2, marks=pytest.mark.slow),
    ],
)
def test_few_partitions_share_a_shuffle(spark, tmp_path, partitions, fuse, stages):
    found, _ = SparkCheckpoint(spark, tmp_path).open(two_keys(), partitions, "arrival", fuse)
    assert len(found.stages) == stages
    again, kept = SparkCheckpoint(spark, tmp_path).open(two_keys(), None, "arrival", "auto")
    assert (len(again.stages), kept) == (stages, partitions), "a continued query keeps its first choice"


def test_relative_checkpoint_is_below_working_directory(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("relative")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by="device"), id="kalman"))
    table = pa.Table.from_pylist([{"device": "a", "obs_type": "t", "value": 1.0}])
    flow.start(spark, table, checkpoint="kept", sinks=ro.MemorySink()).wait(timeout="2min")
    assert (tmp_path / "kept" / "riot_ops.json").is_file()
    assert (tmp_path / "kept" / "commits").is_dir()


def test_identity_of_a_query_is_kept_by_its_checkpoint(spark, tmp_path):
    checkpoint = SparkCheckpoint(spark, tmp_path)
    checkpoint.open(two_keys(), 4, "arrival", "auto", checkpoint.run())
    kept = SparkCheckpoint(spark, tmp_path).run()
    assert kept == json.loads((tmp_path / "riot_ops.json").read_text())["run"] == SparkCheckpoint(spark, tmp_path).run()


def test_manifest_without_an_identity_is_read(spark, tmp_path):
    def run():
        return SparkCheckpoint(spark, tmp_path).run()

    SparkCheckpoint(spark, tmp_path).open(two_keys(), 4, "arrival", "auto")
    path = tmp_path / "riot_ops.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("run") == "", "as an earlier version, whose checksum does not cover it"
    path.write_text(json.dumps(manifest))
    (tmp_path / ".riot_ops.json.crc").unlink()
    assert run() == run() != ""
