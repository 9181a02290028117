"""Workloads of RIoTBench's applications, with local stand-ins for the servers that they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc

from riot_bench.harness.workload import Workload
from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.core.sink import MemorySink
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams.catalog import CATALOG
from riot_ops.streams.repeating import RepeatingSource

__all__ = ["application_workload"]

#: Messages that models are trained on, and messages that are searched for sensor ids.
TRAINING_MESSAGES, SENSOR_MESSAGES = 5000, 50_000
#: A broker in memory, which drops messages without a subscriber.
BROKER = "memory://bench"


def application_workload(name: str, stream: str, folder: Path) -> Workload:
    """Set up an application over a generated stream; its stores are below ``folder`` and hold the data it expects."""
    folder.mkdir(parents=True, exist_ok=True)
    services = LocalServices(stream, folder, broker=BROKER)
    if name in _WORKLOADS:
        return _WORKLOADS[name](services)
    return _over_generated(services, dataflows.RIOTBENCH[name](stream))


def _over_generated(services: LocalServices, flow: Dataflow) -> Workload:
    return Workload(flow, {services.stream: CATALOG[services.stream].generator()})


def _sensor_ids(services: LocalServices) -> list[str]:
    flow = Dataflow("sensors")
    flow.sink("out", flow.source("in").to(t.ParseSenML(schema=services.stream, layout="wide"), id="parse"))
    parsed = flow.run(CATALOG[services.stream].generator(messages=SENSOR_MESSAGES))["parse"]
    found: list[str] = pc.unique(parsed["sensor_id"]).drop_null().to_pylist()
    return found


def _etl(services: LocalServices) -> Workload:
    return _over_generated(services, services.etl(_sensor_ids(services)))


def _stats(services: LocalServices) -> Workload:
    return _over_generated(
        services, dataflows.stats(services.stream, known_sensors=services.save_filter(_sensor_ids(services)))
    )


def _train(services: LocalServices) -> Workload:
    """Set up TRAIN over spans of the stored readings, repeated in a loop."""
    ticks = services.load(CATALOG[services.stream].generator(messages=TRAINING_MESSAGES))
    return Workload(services.train(), {"ticks": RepeatingSource(ticks)})


def _pred(services: LocalServices) -> Workload:
    """Set up PRED with models that TRAIN has trained; it receives no updates while it runs."""
    services.train().run(
        services.load(CATALOG[services.stream].generator(messages=TRAINING_MESSAGES)), sinks=MemorySink()
    )
    workload = _over_generated(services, services.pred(1))
    return Workload(workload.flow, workload.sources, {MODELS: MemorySource(UPDATES_SCHEMA.empty_table())})


_WORKLOADS: dict[str, Callable[[LocalServices], Workload]] = {
    "etl": _etl,
    "stats": _stats,
    "train": _train,
    "pred": _pred,
}
