"""Dataflows and tasks on Spark Structured Streaming."""

from riot_ops.runtime.spark.session import configure, session

__all__ = ["Query", "configure", "register", "session", "start", "transform"]

_LAZY = {
    "Query": "riot_ops.runtime.spark.query",
    "register": "riot_ops.runtime.spark.formats",
    "start": "riot_ops.runtime.spark.runner",
    "transform": "riot_ops.runtime.spark.adapters",
}


def __getattr__(name: str) -> object:
    """Import what needs pyspark only when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
