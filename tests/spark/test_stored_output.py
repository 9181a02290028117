"""Files in an object store as input and output of queries: workers read and write them, the driver commits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.storage import Address
from riot_ops.testing.services import Moto
from tests.simulated_query import SimulatedQuery

ROOT = Path(__file__).parents[2]


def flow(task):
    made = ro.Dataflow("small")
    readings = made.source("readings", schema={"device": "string", "value": "double"})
    made.sink("out", readings.to(task, id="kept"))
    return made


def plausible():
    return flow(t.RangeFilter(bounds={"value": (0, 25)}, by=None))


def parquet_bytes(start, stop):
    sink = pa.BufferOutputStream()
    numbers = range(start, stop)
    pq.write_table(pa.table({"device": [f"d{i % 3}" for i in numbers], "value": map(float, numbers)}), sink)
    return sink.getvalue().to_pybytes()


def in_order(table):
    return table.sort_by("seq").select(sorted(table.column_names))


@pytest.mark.parametrize("seed", range(3))
def test_repeated_tasks_replace_their_files(seed):
    days = Address.of(f"memory://stored-output/{seed}/days", {})
    (days / "a.parquet").write(parquet_bytes(0, 25))
    (days / "b.parquet").write(parquet_bytes(25, 40))
    smooth, source = flow(t.KalmanFilter(by=("device",))), ro.read(str(days))
    sink = ro.ParquetSink(f"memory://stored-output/{seed}/out")
    query = SimulatedQuery(smooth, source, random.Random(seed), max_records=10, sinks=sink)
    assert query.repeated
    assert in_order(query["kept"]).equals(in_order(smooth.run(ro.read(str(days)))["kept"]))


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.slow
def test_workers_read_and_write_the_store_and_a_restart_continues(spark, tmp_path):
    with Moto() as moto:
        # the workers of this session do not have them in their environment
        settings = moto.storage_options()
        bucket = moto.create_bucket("spark-output")
        days, kept = (Address.of(f"{bucket}/{name}", settings) for name in ("days", "out/kept"))

        def run():
            query = plausible().start(
                spark,
                ro.read(str(days), storage_options=settings),
                sinks=ro.ParquetSink(f"{bucket}/out", storage_options=settings),
                checkpoint=tmp_path / "checkpoint",
            )
            query.wait("3min")
            return query["kept"]

        (days / "a.parquet").write(parquet_bytes(0, 20))
        assert sorted(run()["seq"].to_pylist()) == list(range(20))
        before = {file.name for file in kept.files()}
        (kept / "part-000001-00007.parquet").write(b"left by a worker that was lost")
        (kept / "part-000009-00000.parquet").write(b"left by a worker that was lost")
        (days / "b.parquet").write(parquet_bytes(20, 30))
        found = run()
        local = plausible().run(ro.read(str(days), storage_options=settings))["kept"]
        assert in_order(found).equals(in_order(local))
        names = {file.name for file in kept.files()}
        assert before < names
        assert not names & {"part-000001-00007.parquet", "part-000009-00000.parquet"}
        for path in (tmp_path / "checkpoint").rglob("*"):
            assert not path.is_file() or moto.secret_key.encode() not in path.read_bytes()


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.slow
def test_workers_on_this_machine_have_the_environment_of_the_session(tmp_path):
    script = """if True:
        import sys
        import riot_ops as ro
        from tests.spark.test_stored_output import plausible

        bucket, checkpoint = sys.argv[1:]
        spark = ro.spark.session(cores=2)
        query = plausible().start(spark, ro.read(f"{bucket}/days"), out=f"{bucket}/out", checkpoint=checkpoint)
        query.wait("3min")
        print(query["kept"].num_rows)
    """
    with Moto() as moto:
        bucket = moto.create_bucket("inherited")
        settings = moto.storage_options()
        (Address.of(f"{bucket}/days", settings) / "a.parquet").write(parquet_bytes(0, 20))
        done = subprocess.run(
            [sys.executable, "-c", script, bucket, str(tmp_path / "checkpoint")],
            cwd=ROOT,
            env={**os.environ, **moto.settings()},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "20"


@pytest.mark.spark
@pytest.mark.long
def test_checkpoint_without_a_file_system_is_refused_at_start(spark, tmp_path):
    with pytest.raises(ConfigError, match=r"checkpoint has the scheme s3:.*hadoop-aws"):
        plausible().start(spark, [{"device": "a", "value": 1.0}], out=tmp_path, checkpoint="s3://bucket/state")
