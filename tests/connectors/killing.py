"""A run that kills itself at a point of the commit of a batch, in process or on Spark.

usage: killing.py RUNNER SINK FOLDER POINT BATCH [URL]

``POINT`` is ``writing`` (the writers of the batch are finished, its commit has not begun), ``before`` or ``after`` the
commit of the sink, or ``never``. A run with the same ``FOLDER`` continues.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import riot_ops as ro
from riot_ops.connectors import DeltaSink, HTTPSink, IcebergSink, PostgresSink

RECORDS = [{"device": f"d{i % 3}", "value": float(i)} for i in range(60)]
SCHEMA = {"device": "string", "value": "double"}
PASSWORD = "never-shown"


def strike(point: str, batch_id: int) -> None:
    """Kill the run with all its processes, if this is the point."""
    if (os.environ.get("KILL_POINT"), os.environ.get("KILL_BATCH")) == (point, str(batch_id)):
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)  # the driver and its JVM
        os.kill(os.getpid(), signal.SIGKILL)  # Spark's workers have a group of their own


class Killing:
    """Strikes around the commit of a sink."""

    def writer(self, batch_id, partition):
        made = super().writer(batch_id, partition)
        finish = made.finish

        def finish_and_strike():
            found = finish()
            strike("writing", batch_id)
            return found

        made.finish = finish_and_strike
        return made

    def commit(self, batch_id, messages):
        strike("before", batch_id)
        super().commit(batch_id, messages)
        strike("after", batch_id)


class KillingDelta(Killing, DeltaSink):
    """A sink to a Delta table."""


class KillingIceberg(Killing, IcebergSink):
    """A sink to an Iceberg table."""


class KillingPostgres(Killing, PostgresSink):
    """A sink to PostgreSQL."""


class KillingHTTP(Killing, HTTPSink):
    """A sink to an HTTP server."""


class KillingCSV(Killing, ro.CSVSink):
    """A sink to CSV files."""


class KillingJSONLines(Killing, ro.JSONLinesSink):
    """A sink to files of JSON lines."""


def catalog(folder: Path) -> dict[str, str]:
    """Return the settings of the catalogue of Iceberg tables in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}


def sink(name: str, folder: Path, url: str) -> ro.Sink:
    """Return a sink by name."""
    if name == "delta":
        return KillingDelta(folder / "lake")
    if name == "iceberg":
        (folder / "warehouse").mkdir(exist_ok=True)
        return KillingIceberg("ns", catalog=catalog(folder))
    if name in ("postgres", "upsert"):
        more = {"mode": "upsert", "by": "seq"} if name == "upsert" else {}
        return KillingPostgres(url=url, credential=ro.Secret(PASSWORD), **more)
    if name == "http":
        return KillingHTTP(url=url)
    kind = KillingCSV if name.startswith("csv") else KillingJSONLines
    rolled = {"roll_bytes": 300} if name.endswith("rolled") else {}
    return kind(folder / "out", **rolled)


def dataflow() -> ro.Dataflow:
    """Return a dataflow with state, whose stream is ``mean``."""
    flow = ro.Dataflow("killed")
    readings = flow.source("readings", schema=SCHEMA)
    flow.sink("out", readings.to(ro.tasks.MovingAverage(by="device", window=4), id="mean"))
    return flow


def main() -> None:
    runner, name, folder, point, batch, *url = sys.argv[1:]
    os.environ |= {"KILL_POINT": point, "KILL_BATCH": batch, "KILL_GROUP": str(os.getpgid(0))}
    place = Path(folder)
    given = sink(name, place, *url or [""])
    checkpoint = place / "checkpoint"
    if runner == "local":
        dataflow().run(RECORDS, sinks=given, checkpoint=checkpoint, epoch_rows=12, batch_size=12)
        return
    from riot_ops.spark import session

    spark = session(cores=2, memory="1g")
    spark.sparkContext.setLogLevel("FATAL")
    query = dataflow().start(spark, RECORDS, sinks=given, checkpoint=checkpoint, max_records=12, partitions=2)
    query.wait()
    spark.stop()


if __name__ == "__main__":
    main()
