"""IoT streaming operators: typed tasks, dataflows, and runners in process and on Spark.

>>> import riot_ops as ro
>>> kalman = ro.tasks.KalmanFilter().session()
>>> [round(row["value"], 3) for row in kalman.push({"value": 21.5})]
[21.274]
"""

from typing import TYPE_CHECKING

from riot_ops import connectors, dataflows, models, streams, tasks
from riot_ops.core.errors import (
    ConfigError,
    ConnectorError,
    MissingExtraError,
    ModelError,
    ParseError,
    RecordError,
    RiotError,
    StateError,
)
from riot_ops.core.lazy import lazy_names
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.secret import Secret

if TYPE_CHECKING:
    from riot_ops import tables, windows
    from riot_ops.apply_task import apply
    from riot_ops.core.buffering import Buffering
    from riot_ops.core.file_sink import ParquetSink
    from riot_ops.core.sink import CallbackSink, ConsoleSink, MemorySink, Sink
    from riot_ops.core.source import Source
    from riot_ops.core.text_sinks import CSVSink, JSONLinesSink
    from riot_ops.dataflow import Dataflow, KeyedStream, Stream, WindowedStream, merge
    from riot_ops.graph.nodes import Distribution
    from riot_ops.ingest.files import read
    from riot_ops.ingest.memory_source import MemorySource
    from riot_ops.ingest.silence import HeartbeatSource
    from riot_ops.measure.json_log import JSONFormatter
    from riot_ops.measure.probe import Probe
    from riot_ops.monitoring.live import live
    from riot_ops.runtime.local import RunInterruptedError
    from riot_ops.runtime.sample_run import show
    from riot_ops.runtime.session import Session
    from riot_ops.tasks.functions.batch_function import map_batches
    from riot_ops.tasks.functions.estimator_function import predict
    from riot_ops.tasks.functions.filter_function import filter as filter
    from riot_ops.tasks.functions.flat_map_function import flat_map
    from riot_ops.tasks.functions.keyed_function import keyed
    from riot_ops.tasks.functions.map_function import map as map

__version__ = "0.1.0"

__all__ = [
    "Buffering",
    "CSVSink",
    "CallbackSink",
    "ConfigError",
    "ConnectorError",
    "ConsoleSink",
    "Dataflow",
    "Distribution",
    "HeartbeatSource",
    "JSONFormatter",
    "JSONLinesSink",
    "KeyedStream",
    "MemorySink",
    "MemorySource",
    "MissingExtraError",
    "ModelError",
    "ParquetSink",
    "ParseError",
    "Probe",
    "RecordError",
    "RiotError",
    "RunInterruptedError",
    "Secret",
    "Session",
    "Sink",
    "Source",
    "StateError",
    "Stream",
    "StreamSchema",
    "WindowedStream",
    "apply",
    "connectors",
    "dataflows",
    "flat_map",
    "keyed",
    "live",
    "map_batches",
    "merge",
    "models",
    "predict",
    "read",
    "show",
    "stream_schema",
    "streams",
    "tables",
    "tasks",
    "windows",
]

#: Where the names that are imported at first use are defined.
_MODULES = {
    "Buffering": "riot_ops.core.buffering",
    "CSVSink": "riot_ops.core.text_sinks",
    "CallbackSink": "riot_ops.core.sink",
    "ConsoleSink": "riot_ops.core.sink",
    "Dataflow": "riot_ops.dataflow",
    "Distribution": "riot_ops.graph.nodes",
    "HeartbeatSource": "riot_ops.ingest.silence",
    "JSONLinesSink": "riot_ops.core.text_sinks",
    "KeyedStream": "riot_ops.dataflow",
    "MemorySink": "riot_ops.core.sink",
    "MemorySource": "riot_ops.ingest.memory_source",
    "ParquetSink": "riot_ops.core.file_sink",
    "JSONFormatter": "riot_ops.measure.json_log",
    "Probe": "riot_ops.measure.probe",
    "RunInterruptedError": "riot_ops.runtime.local",
    "Session": "riot_ops.runtime.session",
    "Sink": "riot_ops.core.sink",
    "Source": "riot_ops.core.source",
    "Stream": "riot_ops.dataflow",
    "WindowedStream": "riot_ops.dataflow",
    "apply": "riot_ops.apply_task",
    "filter": "riot_ops.tasks.functions.filter_function",
    "flat_map": "riot_ops.tasks.functions.flat_map_function",
    "keyed": "riot_ops.tasks.functions.keyed_function",
    "live": "riot_ops.monitoring.live",
    "map": "riot_ops.tasks.functions.map_function",
    "map_batches": "riot_ops.tasks.functions.batch_function",
    "merge": "riot_ops.dataflow",
    "predict": "riot_ops.tasks.functions.estimator_function",
    "read": "riot_ops.ingest.files",
    "show": "riot_ops.runtime.sample_run",
    "tables": "riot_ops.tables",
    "windows": "riot_ops.windows",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
