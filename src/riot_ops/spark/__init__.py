"""Dataflows and tasks on Spark Structured Streaming."""

from importlib import import_module
from importlib.util import find_spec

from riot_ops.core.errors import MissingExtraError


def _installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


# checked here, so that a missing package is reported at once and by its extra
if not all(map(_installed, ("pyspark", "pandas", "google.protobuf"))):
    raise MissingExtraError("Spark", "spark")

from riot_ops.spark.session import configure, session  # noqa: E402

__all__ = ["Frames", "Query", "configure", "read_state", "register", "session", "start", "transform"]

_LAZY = {
    "Frames": "riot_ops.spark.frames",
    "Query": "riot_ops.spark.query",
    "read_state": "riot_ops.spark.state_reader",
    "register": "riot_ops.spark.data_sources",
    "start": "riot_ops.spark.runner",
    "transform": "riot_ops.spark.dataframe_transform",
}


def __getattr__(name: str) -> object:
    """Import the modules that need pyspark at first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
