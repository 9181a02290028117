"""IoT streaming operators: typed tasks, dataflows, and runners in process and on Spark.

>>> import riot_ops as ro
>>> kalman = ro.tasks.KalmanFilter().session()
>>> [round(row["value"], 3) for row in kalman.push({"value": 21.5})]
[21.274]
"""

from riot_ops import dataflows, streams, tasks
from riot_ops.dataflow import Dataflow, Distribution, Stream, merge
from riot_ops.errors import (
    ConfigError,
    ConnectorError,
    MissingExtraError,
    ParseError,
    RecordError,
    RiotError,
    StateError,
)
from riot_ops.schema import StreamSchema, stream_schema
from riot_ops.session import Session
from riot_ops.sink import CallbackSink, ConsoleSink, MemorySink, ParquetSink, Sink
from riot_ops.source import MemorySource, Source
from riot_ops.tasks.user_functions import filter_ as filter
from riot_ops.tasks.user_functions import flat_map, keyed
from riot_ops.tasks.user_functions import map_ as map

__version__ = "0.1.0"

__all__ = [
    "CallbackSink",
    "ConfigError",
    "ConnectorError",
    "ConsoleSink",
    "Dataflow",
    "Distribution",
    "MemorySink",
    "MemorySource",
    "MissingExtraError",
    "ParquetSink",
    "ParseError",
    "RecordError",
    "RiotError",
    "Session",
    "Sink",
    "Source",
    "StateError",
    "Stream",
    "StreamSchema",
    "dataflows",
    "filter",
    "flat_map",
    "keyed",
    "map",
    "merge",
    "stream_schema",
    "streams",
    "tasks",
]
