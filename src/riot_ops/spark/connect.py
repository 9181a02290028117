"""Queries over Spark Connect, where the driver's JVM and its disk are elsewhere.

The query is the same: sources, stages and sinks travel by value. What the client does itself elsewhere, tasks do here:
files of the checkpoint are read and written by Spark, and sinks begin and end within a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException

from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import Sink
from riot_ops.graph.graph import Graph
from riot_ops.runtime.checkpoint import MANIFEST
from riot_ops.spark.batch_source import has_batch_frames
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.exceptions import find_cause
from riot_ops.spark.locations import server_path
from riot_ops.spark.manifest import Manifest
from riot_ops.spark.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ConnectCheckpoint", "ConnectQuery", "check_connected", "on_server"]

#: Spark's error condition for a path that does not exist.
NO_PATH = "PATH_NOT_FOUND"


def check_connected(sinks: Mapping[str, Sink], source: Any, checkpoint: Any, probe: Any, restart: str) -> None:
    """Raise :class:`ConfigError` for options of ``start`` that need the driver in this process."""
    if checkpoint is None:
        raise ConfigError("over Spark Connect, flow.start needs checkpoint: a path or URI that the server can write to")
    if has_batch_frames(source):
        raise ConfigError(
            "over Spark Connect, flow.start takes no batch DataFrame; flow.frames(df).write_each and flow.transform do"
        )
    if probe is not None:
        raise ConfigError("over Spark Connect, flow.start takes no probe, which measures in the driver's process")
    if restart != "same":
        raise ConfigError(f"over Spark Connect, flow.start cannot rewrite a checkpoint: restart={restart!r}")
    for name, sink in sinks.items():
        if sink.in_process:
            raise ConfigError(
                f"the sink {name!r} ({type(sink).__name__}) is in this process, which the workers of a Spark Connect "
                "server do not reach: give out= or sinks that write to a store"
            )


def on_server(spark: SparkSession, action: Callable[[], None]) -> None:
    """Run an action in a task, and raise its error here."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        action()
        yield pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})

    try:
        spark.range(0, 1, 1, 1).mapInArrow(run, "id long").collect()
    except PySparkException as error:
        kind, cause = find_cause(str(error))
        raise kind(cause) from error


class ConnectCheckpoint(SparkCheckpoint):
    """A checkpoint folder that only the server reaches; Spark's readers and writers are its file system."""

    def __init__(self, spark: SparkSession, place: str | Path) -> None:
        self._spark = spark
        self._generation = None
        self._base = None
        self.folder = server_path(place)
        self.local = None

    def exists(self) -> bool:
        with self._translating_errors("read"):
            return bool(self._files(MANIFEST))

    def next_batch(self) -> int:
        with self._translating_errors("read"):
            names = [path.rpartition("/")[2] for path, _ in self._files("commits")]
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1 + self.base

    def planned_ends(self, batch: int, sources: Mapping[str, Any]) -> list[Any]:
        with self._translating_errors("read"):
            planned = bool(self._files(f"offsets/{batch - self.base}"))
        return self.ends(batch if planned else batch - 1, sources)

    def _outlook(self, flow: Graph, then: Manifest, now: Manifest, sources: Mapping[str, Any]) -> str:
        return ""  # a restart cannot change a query here

    def _remove(self, *names: str) -> None:
        pass  # no interface of Spark Connect removes files; Spark repeats what was planned, and the manifest is checked

    def _write(self, manifest: Manifest) -> None:
        text = msgspec.json.encode(manifest.with_checksum()).decode("utf-8")
        with self._translating_errors("written"):
            frame = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
            frame.write.mode("overwrite").text(f"{self.location}/{MANIFEST}")

    def _text(self, name: str, folder: str | None = None) -> str:
        return "".join(bytes(content).decode("utf-8") for _, content in self._files(name, folder))

    def _files(self, name: str, folder: str | None = None) -> list[tuple[str, bytes]]:
        """Return the path and content of a file, or of the files in a folder; nothing if there is none."""
        try:
            read = self._spark.read.format("binaryFile").load(f"{self.location if folder is None else folder}/{name}")
            return [(row["path"], row["content"]) for row in read.select("path", "content").collect()]
        except PySparkException as error:
            if error.getCondition() == NO_PATH:
                return []
            raise


class ConnectQuery(Query):
    """A running dataflow on a Spark Connect server.

    Its summary has the messages, and from Spark's progress the totals ``written`` and ``errors`` instead of the counts
    by stream and step; latency is not measured.
    """

    def _count_written(self, progress: dict[str, Any]) -> None:
        self.summary.batches += 1
        metrics = _metrics(progress)
        written, rejected = (int(metrics.get(name) or 0) for name in ("written", "rejected"))
        self.summary.state_keys = int(metrics.get("state_keys") or 0)
        self.summary.count({"written": written, "errors": rejected}, {}, {})

    def _count_unreported(self) -> None:
        pass  # the server keeps the progress of a query that has ended

    def _end_sinks(self) -> None:
        flow, sinks, routes = self.flow, self.sinks, self.routes
        schemas = flow.result_schemas()
        ends = [
            (sink, {stream: schemas[stream] for stream, targets in routes.items() if name in targets})
            for name, sink in sinks.items()
        ]

        def end() -> None:
            for sink, streams in ends:
                sink.end(streams)

        on_server(self._setup.checkpoint.session, end)


def _metrics(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the observed metrics of a micro-batch; the server sends a row as its values with their schema."""
    found = (progress.get("observedMetrics") or {}).get("riot_ops")
    named = found if isinstance(found, dict) else {} if found is None else found.asDict()
    if "schema" not in named:
        return named
    return dict(zip((field["name"] for field in named["schema"]["fields"]), named["values"], strict=True))
