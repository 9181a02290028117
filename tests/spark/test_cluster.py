"""Workers that cannot see the driver's disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.sink import MemorySink
from riot_ops.spark import driver_sink
from riot_ops.testing.machines import can_isolate_folders

pytestmark = pytest.mark.spark


def run(tmp_path, *scenarios, **environment):
    """Run scenarios on a cluster in a process of its own, as this one may have a Spark."""
    with open(tmp_path / "log.txt", "wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.cluster_job", str(tmp_path), *scenarios],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "log.txt").read_text(errors="replace")[-3000:]


needs_separate_disks = pytest.mark.skipif(
    not can_isolate_folders(), reason="this system has no mount namespaces for processes"
)


@needs_separate_disks
@pytest.mark.long
def test_executor_is_lost_on_a_cluster_with_separate_disks(tmp_path):
    run(tmp_path, "executor", NUMBA_DISABLE_JIT="1")


@needs_separate_disks
@pytest.mark.slow
def test_drivers_disk_is_refused(tmp_path):
    run(tmp_path, "refusals", NUMBA_DISABLE_JIT="1")


@needs_separate_disks
@pytest.mark.slow
def test_master_returns_and_a_worker_is_added(tmp_path):
    run(tmp_path, "master", NUMBA_DISABLE_JIT="1")


@needs_separate_disks
@pytest.mark.slow
def test_prediction_of_plan(tmp_path):
    """CPU per message and stored state of three sizes, within a factor that other work on the machine explains."""
    command = [sys.executable, "-m", "riot_ops", "plan", "stats", "--rate", "7000", "--keys", "2000"]
    root = Path(__file__).resolve().parents[2]
    with open(tmp_path / "plan.json", "wb") as file:
        options = ["--runner", "spark", "--json"]
        subprocess.run([*command, *options], cwd=root, stdout=file, timeout=300, check=True)
    run = [sys.executable, "-m", "tests.spark.cluster_sizes", str(tmp_path), str(tmp_path / "plan.json")]
    done = subprocess.run(run, cwd=root, stdout=subprocess.PIPE, timeout=900, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["cores"], line["keys"]) for line in lines] == [(1, 2000), (2, 2000), (2, 8000)]
    for line in lines:
        for name in ("cpu_us", "stored"):
            assert 1 / 3 < line["measured"][name] / line["predicted"][name] < 3, line


@needs_separate_disks
@pytest.mark.slow
def test_job_brings_riot_ops(tmp_path):
    run(tmp_path, "shipped", NUMBA_DISABLE_JIT="1")


@needs_separate_disks
@pytest.mark.slow
def test_applications_lose_nothing(tmp_path):
    """STATS loses an executor and a worker, PRED an executor and the broker; another application has windows."""
    run(tmp_path, "stats", "windows", "pred")


def test_output_invisible_to_driver_fails_query(spark, tmp_path):
    class Elsewhere(ParquetSink):
        """Like a worker with another disk: the files of a finished writer are missing."""

        def writer(self, batch_id, partition):
            writer = super().writer(batch_id, partition)
            finish = writer.finish

            def vanish():
                message = finish()
                for _, path, _, _ in message["files"]:
                    Path(path).unlink()
                return message

            writer.finish = vanish
            return writer

    flow = ro.Dataflow("elsewhere")
    flow.sink("out", flow.source("city") >> t.ParseSenML(schema="city"))
    query = flow.start(spark, ro.streams.city(sensors=5, messages=10), sinks=Elsewhere(tmp_path / "out"))
    with pytest.raises(ConnectorError, match=rf"{tmp_path}/out must be a folder that the driver and all workers share"):
        query.wait("2min")
    assert query.summary.rows == {}
    assert not list(tmp_path.rglob("*.parquet"))


# -- records for the user's process ------------------------------------------------------


def batch(*values):
    return pa.RecordBatch.from_pydict({"value": values})


def send(to, batch_id, *partitions):
    """Commit the messages of independent writers of some partitions."""
    messages = []
    for partition, batches in partitions:
        writer = to.writer(batch_id, partition)
        for stream, one in batches:
            writer.write(stream, one)
        messages.append(writer.finish())
    to.commit(batch_id, messages)


def test_records_cross_in_the_messages(tmp_path):
    there = driver_sink.DriverSink(tmp_path)
    send(there, 0, (1, [("a", batch(3.0)), ("b", batch(9.0))]), (0, [("a", batch(1.0)), ("a", batch(2.0))]))
    send(there, 1, (0, []))
    send(there, 10, (0, [("a", batch(5.0))]))
    send(there, 2, (0, [("a", batch(7.0))]))
    send(there, 2, (0, [("a", batch(4.0))]))  # committed again, it replaces itself
    sink = MemorySink()
    there.drain(sink, 2)
    assert sink.table("a")["value"].to_pylist() == [1.0, 2.0, 3.0, 4.0]
    there.drain(sink, None)
    there.drain(sink, None)
    assert sink.table("a")["value"].to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert sink.table("b")["value"].to_pylist() == [9.0]
    assert not list(tmp_path.iterdir())


def test_too_many_bytes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_sink, "MAX_BYTES", 1000)
    with pytest.raises(ConnectorError, match=r"max_records=.*out="):
        send(driver_sink.DriverSink(tmp_path), 0, (0, [("a", batch(*range(1000)))]))
