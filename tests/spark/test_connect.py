"""Spark Connect: the client has no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import Row

from riot_ops.spark import connect, features
from riot_ops.spark import session_check as check
from tests.spark import connect_job, restricted_job

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
pipeline_job = Path(__file__).with_name("pipeline_job.py")


@pytest.fixture(scope="module")
def server(spark):
    """Return the environment to connect to a server in this process's JVM: a separate one would take half a minute."""
    pytest.importorskip("grpc_status", reason="the dev extra has what Spark Connect needs")
    service = spark.sparkContext._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    context = spark.sparkContext._jsc.sc()
    token = uuid.uuid4().hex
    for name, value in (
        ("grpc.binding.address", "localhost"),
        ("grpc.binding.port", "0"),
        ("authenticate.token", token),
    ):
        context.conf().set(f"spark.connect.{name}", value)
    service.start(context)
    port = getattr(getattr(spark.sparkContext._jvm, f"{service._fqn}$"), "MODULE$").localPort()
    return {
        "SPARK_REMOTE": f"sc://localhost:{port}",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "NUMBA_DISABLE_JIT": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _run(tmp_path, environment, *arguments, cwd=ROOT, done=None):
    """Run Python; it ends well, or has written the text ``done``."""
    with open(tmp_path / "log.txt", "wb") as log:
        process = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            timeout=300,
            check=False,
        )
    text = (tmp_path / "log.txt").read_text(errors="replace")
    assert process.returncode == 0 or (done and done in text), text[-6000:]


def test_spark_connect(server, tmp_path):
    _run(tmp_path, server, "-m", connect_job.__name__, str(tmp_path))


@pytest.mark.slow  # another JVM, and kernels that nothing caches
@pytest.mark.skipif(not features.READ_LIMITS, reason="sources of riot_ops with this trigger from Spark 4.2 on")
def test_platform_with_one_trigger_no_settings_and_no_cache(tmp_path):
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "XDG_CACHE_HOME": "/dev/null/cache",
        "NUMBA_CACHE_DIR": "",
    }
    _run(tmp_path, environment, "-m", restricted_job.__name__, str(tmp_path))


@pytest.mark.skipif(not features.has("declarative pipelines"), reason="from Spark 4.1 on")
def test_declarative_pipeline(spark, server, tmp_path):
    """The streams are from outside the pipeline, as Spark 4.3 supports no state over the pipeline's own data sets."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(connect_job.ROWS), tmp_path / "in" / "0.parquet")
    (tmp_path / "defs.py").write_text(pipeline_job.read_text(encoding="utf-8"), encoding="utf-8")
    spark.sql(f"create database pipeline location '{tmp_path / 'tables'}'")
    (tmp_path / "spark-pipeline.yml").write_text(
        f"""
name: riot
storage: file://{tmp_path}/storage
database: pipeline
libraries:
  - glob:
      include: defs.py
configuration:
  {check.PROVIDER}: {check.ROCKSDB}
  spark.sql.shuffle.partitions: "2"
"""
    )
    environment = {**server, "PIPELINE_INPUT": str(tmp_path / "in")}
    command = ("-m", "pyspark.pipelines.cli", "run", "--spec", "spark-pipeline.yml")
    # the client of 4.3 raises for counters of a writer in Python, after the run
    _run(tmp_path, environment, *command, cwd=tmp_path, done="Run is COMPLETED")
    wanted = connect_job.dataflow().run(connect_job.ROWS)
    for table, stream in (("smooth", "smooth"), ("batch", "smooth"), ("means", "mean")):
        found = pq.read_table(tmp_path / "tables" / table).to_pylist()
        assert connect_job.values(found) == connect_job.values(wanted[stream].to_pylist()), table
    assert len(wanted["mean"]) > 5
    written = DeltaTable(f"{tmp_path}/in-delta").to_pyarrow_table().to_pylist()
    assert connect_job.values(written) == connect_job.values(connect_job.ROWS)
    spark.sql("drop database pipeline cascade")


def test_session_without_readable_settings():
    class Silent:
        """A session of Spark Connect of a vendor that does not reveal its settings."""

        is_stopped = False

        @property
        def conf(self):
            return self

        def get(self, *_):
            raise PySparkException("not available")

    check.check_session(Silent(), keeps_state=True)


@pytest.mark.parametrize("form", [dict, lambda named: Row(**named)], ids=["names", "row"])
def test_metrics_of_progress_in_each_form(form):
    named = {"records": 4, "rejected": 1}
    schema = {"fields": [{"name": name} for name in named]}
    for found, wanted in ((named, named), ({"values": [4, 1], "schema": schema}, named), (None, {})):
        given = None if found is None else form(found)
        assert connect._metrics({"observedMetrics": {"riot_ops": given}}) == wanted
    assert connect._metrics({}) == {}
