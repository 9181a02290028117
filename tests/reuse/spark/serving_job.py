"""A manager over Spark, in a process of its own that a test kills: python -m tests.reuse.spark.serving_job FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager, SparkBackend
from riot_ops.streams.riotbench.city import CitySource

MESSAGES = 6000
KEY = ("sensor_id", "obs_type")
FLOWS = {
    "ada": (t.KalmanFilter(by=KEY),),
    "bob": (t.KalmanFilter(by=KEY), t.MovingAverage(by=KEY, window=5)),
}


def dataflow(name: str) -> ro.Dataflow:
    """Make the dataflow of that name."""
    flow = ro.Dataflow(name)
    stream = flow.source("city").to(t.ParseSenML(schema="city"), id="parse").to(t.RangeFilter(bounds="city"), id="kept")
    for place, task in enumerate(FLOWS[name]):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def bound(folder: Path, name: str) -> tuple[Any, Any]:
    """Return a dataflow's source and sink."""
    return CitySource(90, messages=MESSAGES), ro.ParquetSink(folder / name)


def opened(spark: Any, folder: Path) -> ReuseManager:
    """Open the manager over a folder."""
    backend = SparkBackend(spark, folder / "back", max_records=200)
    return ReuseManager(backend, log=folder / "log.jsonl", rebind=lambda name, flow: bound(folder, name))


if __name__ == "__main__":
    from riot_ops.spark import session

    where = Path(sys.argv[1])
    manager = opened(session(cores=2, memory="1g"), where)
    for one in FLOWS:
        print(one, manager.submit(dataflow(one), *bound(where, one)).first, flush=True)
    manager.backend.wait()  # type: ignore[attr-defined]
