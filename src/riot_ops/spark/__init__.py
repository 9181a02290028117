"""Dataflows and tasks on Spark Structured Streaming."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from riot_ops.core.errors import MissingExtraError
from riot_ops.core.lazy import lazy_names


def _installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


# checked here, so that a missing package is reported at once and by its extra
if not all(map(_installed, ("pyspark", "pandas", "google.protobuf"))):
    raise MissingExtraError("Spark", "spark")

from riot_ops.spark.session import configure, session  # noqa: E402

if TYPE_CHECKING:
    from riot_ops.spark.data_sources import register
    from riot_ops.spark.dataframe_transform import transform
    from riot_ops.spark.foreach import foreach_writer
    from riot_ops.spark.frames import Frames
    from riot_ops.spark.query import Query
    from riot_ops.spark.runner import start
    from riot_ops.spark.state_reader import read_state

__all__ = ["Frames", "Query", "configure", "foreach_writer", "read_state", "register", "session", "start", "transform"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Frames": "riot_ops.spark.frames",
            "foreach_writer": "riot_ops.spark.foreach",
            "Query": "riot_ops.spark.query",
            "read_state": "riot_ops.spark.state_reader",
            "register": "riot_ops.spark.data_sources",
            "start": "riot_ops.spark.runner",
            "transform": "riot_ops.spark.dataframe_transform",
        },
    )
