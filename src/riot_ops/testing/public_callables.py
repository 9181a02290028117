"""The public callables whose parameters :func:`~riot_ops.testing.check_parameter_names` compares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from riot_ops.core.sink import Sink
from riot_ops.core.source import Source, registered_sources
from riot_ops.task import registered_tasks

__all__ = ["public_callables"]

#: Modules whose public functions, sources and sinks belong to them.
MODULES = ("riot_ops", "riot_ops.connectors", "riot_ops.connectors.stores", "riot_ops.streams", "riot_ops.models",
           "riot_ops.ingest.rates")  # fmt: skip
#: By module, the classes that users construct, each with the methods that they call with parameters.
CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "riot_ops": {
        "Buffering": (),
        "Dataflow": ("source", "sink", "add", "run", "start", "transform", "frames"),
        "Probe": (),
    },
    "riot_ops.connectors": {"DeltaSink": ("optimize", "vacuum")},
    "riot_ops.dataflow": {
        "Stream": ("map", "flat_map", "filter", "lookup", "to", "apply", "join", "key_by", "partition_by",
                   "partition_custom"),
        "KeyedStream": ("fold", "window"),
        "WindowedStream": ("agg",),
    },
    "riot_ops.ingest.rates": {"Curve": ("scaled",)},
    "riot_ops.reuse": {"Limits": (), "LocalBackend": (), "ReuseManager": ("submit", "explain"), "Request": ()},
    "riot_ops.sketches": {"BloomFilter": (), "HyperLogLog": ()},
    "riot_ops.streams": {"LineTime": ()},
    "riot_ops.tables": {"CSVTable": (), "KeyFile": (), "Networks": (), "RoadNetwork": (), "StoreTable": ()},
    "riot_ops.windows": {"Calendar": (), "Count": (), "Hopping": (), "Session": (), "Sliding": (), "Tumbling": ()},
}  # fmt: skip
#: The same for Spark, if it is installed.
SPARK_CLASSES: dict[str, dict[str, tuple[str, ...]]] = {"riot_ops.reuse": {"SparkBackend": ()}}


def public_callables() -> list[Callable[..., Any]]:
    """Return what users call by parameters' names.

    These are the tasks, the builders of applications, sources, sinks, tables, sketches, frames, back ends and runners,
    the public functions, and the verbs of dataflows and streams.
    """
    spark = find_spec("pyspark") is not None
    modules = [import_module(name) for name in (*MODULES, *(("riot_ops.spark",) if spark else ()))]
    found: list[Callable[..., Any]] = [*registered_tasks(), *registered_sources()]
    found += [import_module("riot_ops").map, import_module("riot_ops").filter]  # not in __all__, as Python has its own
    found += [one for module in modules for one in _public(module)]
    found += import_module("riot_ops.dataflows").BUILDERS.values()
    found.append(import_module("riot_ops.runtime.binding").ReadableStreams.plot)  # of results, runs and queries
    for classes in (CLASSES, *((SPARK_CLASSES,) if spark else ())):
        for module, methods in classes.items():
            for name, verbs in methods.items():
                cls = getattr(import_module(module), name)
                found += [cls, *(getattr(cls, verb) for verb in verbs)]
    return [one for one in dict.fromkeys(found) if one.__module__.startswith("riot_ops.")]


def _public(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the functions, and the classes of sources and sinks, in ``__all__`` of a module."""
    ones = [getattr(module, name) for name in module.__all__]
    return [one for one in ones if inspect.isfunction(one) or _is_connector(one)]


def _is_connector(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, (Source, Sink)) and not inspect.isabstract(one)
