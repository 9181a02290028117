"""What goes into each application, with stand-ins for the servers that it needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc

from riot_bench.harness.trial import Feed
from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.core.sink import MemorySink
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams.catalog import CATALOG
from riot_ops.streams.loop import Loop

__all__ = ["feed"]

#: Messages to learn models from, and to know the sensors by.
STORED, KNOWN = 5000, 50_000
#: A broker that forgets what nobody subscribed to.
BROKER = "memory://bench"


def feed(name: str, stream: str, folder: Path) -> Feed:
    """An application over a generated stream, its stores below the folder and filled as it expects them."""
    folder.mkdir(parents=True, exist_ok=True)
    around = LocalServices(stream, folder, broker=BROKER)
    if name in _FEEDS:
        return _FEEDS[name](around)
    return _messages(around, dataflows.RIOTBENCH[name](stream))


def _messages(around: LocalServices, flow: Dataflow) -> Feed:
    return Feed(flow, {around.stream: CATALOG[around.stream].generator()})


def _sensors(around: LocalServices) -> list[str]:
    flow = Dataflow("sensors")
    flow.sink("out", flow.source("in").to(t.ParseSenML(schema=around.stream, layout="wide"), id="parse"))
    parsed = flow.run(CATALOG[around.stream].generator(messages=KNOWN))["parse"]
    found: list[str] = pc.unique(parsed["sensor_id"]).drop_null().to_pylist()
    return found


def _etl(around: LocalServices) -> Feed:
    return _messages(around, around.etl(_sensors(around)))


def _stats(around: LocalServices) -> Feed:
    return _messages(around, dataflows.stats(around.stream, known_sensors=around.filter_of(_sensors(around))))


def _train(around: LocalServices) -> Feed:
    """Spans of the stored readings, one after the other and again."""
    ticks = around.load(CATALOG[around.stream].generator(messages=STORED))
    return Feed(around.train(), {"ticks": Loop(ticks)})


def _pred(around: LocalServices) -> Feed:
    """Models that TRAIN has learnt; no others come while it runs."""
    around.train().run(around.load(CATALOG[around.stream].generator(messages=STORED)), sinks=MemorySink())
    given = _messages(around, around.pred(1))
    return Feed(given.flow, given.sources, {MODELS: MemorySource(UPDATES_SCHEMA.empty_table())})


_FEEDS: dict[str, Callable[[LocalServices], Feed]] = {"etl": _etl, "stats": _stats, "train": _train, "pred": _pred}
