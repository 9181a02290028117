"""Output of queries in an object store, written by Python workers and committed by the driver."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.storage import Address
from riot_ops.testing.services import Moto

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def moto():
    with Moto() as service:
        yield service


def flow():
    made = ro.Dataflow("small")
    readings = made.source("readings", schema={"device": "string", "value": "double"})
    made.sink("out", readings.to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made


def rows(n):
    return [{"device": f"d{i % 3}", "value": float(i)} for i in range(n)]


def test_workers_write_to_the_store_and_a_restart_continues(spark, moto, tmp_path):
    out = moto.create_bucket("spark-output") + "/out"
    # workers have the environment of the JVM's start
    settings = {name.lower(): value for name, value in moto.settings().items()}
    settings["aws_secret_access_key"] = ro.Secret(moto.secret_key)
    folder = Address.of(f"{out}/smooth", settings)

    def run(n, checkpoint="checkpoint"):
        sink = ro.ParquetSink(out, storage_options=settings)
        query = flow().start(spark, rows(n), sinks=sink, checkpoint=tmp_path / checkpoint, max_records=10)
        query.wait("3min")
        return query["smooth"].sort_by("seq")

    run(20)
    before = {file.name for file in folder.files()}
    (folder / "part-000002-00007.parquet").write(b"left by a worker that was lost")
    (folder / "part-000009-00000.parquet").write(b"left by a worker that was lost")
    found = run(30)
    assert found["seq"].to_pylist() == list(range(30))
    assert found.equals(flow().run(rows(30), out=tmp_path / "out")["smooth"].sort_by("seq").select(found.column_names))
    names = {file.name for file in folder.files()}
    assert before < names and not names & {"part-000002-00007.parquet", "part-000009-00000.parquet"}
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        run(5, "another")


def test_checkpoint_without_a_file_system_is_refused_at_start(spark, tmp_path):
    with pytest.raises(ConfigError, match=r"checkpoint has the scheme s3:.*hadoop-aws"):
        flow().start(spark, rows(1), out=tmp_path, checkpoint="s3://bucket/state")
