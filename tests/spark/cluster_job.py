"""A driver and a cluster of one worker with a separate disk: ``cluster_job.py <folder>``.

In the worker's mount namespace the folder is empty and private, as on another machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.testing import exact

#: Replaces java, and gives executors a separate disk.
JAVA = """#!/bin/bash
case "$*" in
  *CoarseGrainedExecutorBackend*)
    exec unshare -mr bash -c 'mount -t tmpfs none "$0" && exec "$@"' '{folder}' '{java}' "$@" ;;
  *) exec '{java}' "$@" ;;
esac
"""


def possible() -> bool:
    """Whether this system has mount namespaces for processes."""
    command = ["unshare", "-mr", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.call(command, stderr=subprocess.DEVNULL) == 0


def dataflow() -> ro.Dataflow:
    flow = ro.Dataflow("cluster")
    city = flow.source("city") >> t.ParseSenML(schema="city")
    flow.sink("out", city.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="smooth"))
    return flow


def main(folder: Path) -> None:
    from riot_ops.spark import session
    from riot_ops.spark.launcher import find_java

    find_java()
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else shutil.which("java")
    home, disk = folder / "home", folder / "disk"
    (home / "bin").mkdir(parents=True)
    disk.mkdir()
    (home / "bin" / "java").write_text(JAVA.format(folder=disk, java=java))
    (home / "bin" / "java").chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
    spark = session(
        cores=2,
        memory="1g",
        settings={
            "spark.master": "local-cluster[1,2,2048]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    tempfile.tempdir = str(disk)  # the driver's own files are on its own disk
    source = ro.streams.city(sensors=5, messages=300)
    wanted = sorted(map(exact, dataflow().run(source)["smooth"].to_pylist()))
    query = dataflow().start(spark, source, max_records=100)
    summary = query.wait("4min")
    assert sorted(map(exact, query["smooth"].to_pylist())) == wanted
    assert (summary.messages, summary.rows, summary.batches) == (300, {"smooth": len(wanted)}, 3)
    try:
        dataflow().start(spark, source, out=disk / "out").wait("4min")
    except ConnectorError as error:
        assert f"{disk}/out must be a folder that the driver and all workers share" in str(error), error
    else:
        raise AssertionError("a run succeeded whose output cannot be read")
    assert not list((disk / "out").rglob("*.parquet"))
    frame = spark.createDataFrame([(1.0,), (2.0,)], "value double")
    plain = ro.Dataflow("plain")
    plain.sink("out", plain.source("rows", schema={"value": "double"}).to(t.NoOp(), id="kept"))
    for flow, given in ((dataflow(), source), (plain, frame)):
        try:
            flow.start(spark, given, checkpoint=disk / "checkpoint", out=disk / "kept")
        except ConfigError as error:
            assert f"workers of this cluster do not see the checkpoint {disk}/checkpoint" in str(error), error
        else:
            raise AssertionError("a query started whose checkpoint cannot be continued")
        assert not (disk / "checkpoint").exists() and not (disk / "kept").exists()
    counted = ro.Dataflow("counted")
    rows = counted.source("rows", schema={"value": "int64"})
    counted.sink("out", rows.to(t.RunningCount(), id="count"))
    endless = counted.frames(spark.readStream.format("rate").load().select("value"))
    try:
        endless.write_each(lambda *_: None, checkpoint=disk / "each")
    except ConfigError as error:
        assert f"do not see the checkpoint {disk}/each" in str(error), error
    else:
        raise AssertionError("a query started whose checkpoint cannot be continued")
    shared = folder / "shared"  # is not hidden from the worker
    summary = dataflow().start(spark, source, checkpoint=shared).wait("4min")
    assert summary.messages == 300
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
