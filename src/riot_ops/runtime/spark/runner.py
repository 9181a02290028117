"""Starts a dataflow as one Spark Structured Streaming query and watches it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riot_ops.dataflow import Dataflow
from riot_ops.engine import ARRIVAL, EVENT_TIME
from riot_ops.errors import ConfigError, RiotError, StateError
from riot_ops.metrics import Summary
from riot_ops.plan import Plan, plan
from riot_ops.probe import Probe
from riot_ops.runtime.binding import bind_sinks, bind_sources, end_sinks
from riot_ops.runtime.spark.adapters import pack_stage_zero
from riot_ops.runtime.spark.blocks import BLOCKS_DDL, bucket_labels
from riot_ops.runtime.spark.sink import Outlet, packed_sink
from riot_ops.runtime.spark.source import SourceStage, packed_source
from riot_ops.runtime.spark.stage import StageProcessor
from riot_ops.sink import MemorySink, Sink, SpoolSink
from riot_ops.source import Source
from riot_ops.state import task_identity
from riot_ops.task import KeyedTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Query", "start"]

MANIFEST = "riot_ops.json"
POLL_SECONDS = 0.1
FEW_PARTITIONS = 4


def start(
    flow: Dataflow,
    spark: SparkSession,
    source: Any = None,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    checkpoint: str | Path | None = None,
    trigger: str | None = None,
    max_records: int | None = None,
    partitions: int | None = None,
    order: str = "arrival",
    fuse: str = "auto",
    compression: str | None = "lz4",
    overwrite: bool = False,
    probe: Probe | None = None,
) -> Query:
    """Start a dataflow on Spark Structured Streaming.

    State is effectively once: Spark's checkpoint commits it together with the input position. Sinks
    are at least once; Parquet files effectively once.

    Parameters
    ----------
    source : source, streaming DataFrame, or mapping of source name to one of these
    sinks : sink or mapping of sink name to sink, optional
        By default Parquet files below ``out`` where that is given, else memory.
    checkpoint : path, optional
        Where Spark keeps position and state; a query started again with it goes on. By default a
        temporary folder, removed at the end.
    trigger : str, optional
        A processing-time interval such as ``"1 second"``, or ``"available now"`` to take what is there
        and end. By default bounded sources are read as fast as possible until they end.
    max_records : int, optional
        Most records per source and micro-batch.
    partitions : int, optional
        Parallelism; by default the session's ``spark.sql.shuffle.partitions``.
    order : "arrival" or "event_time"
        How the records of a key are ordered within a micro-batch.
    fuse : "auto", "exact" or "coarse"
        See :func:`riot_ops.plan.plan`. "auto" is "coarse" up to four partitions, where one shuffle
        less gains more than an uneven spread of keys loses, and "exact" beyond; a continued query
        keeps what it began with.
    compression : "lz4", "zstd" or None, default "lz4"
        Codec of the packed blocks.
    overwrite : bool, default False
        Whether a new query may replace the output of an earlier one in ``out``.
    probe : Probe, optional
        Measures the query until it is stopped, see :class:`riot_ops.Probe`; a record counts as delivered
        when its micro-batch is committed.
    """
    if order not in ("arrival", "event_time"):
        raise ConfigError(f"order must be 'arrival' or 'event_time', got {order!r}")
    if compression not in (None, "lz4", "zstd"):
        raise ConfigError(f"compression must be None, 'lz4' or 'zstd', got {compression!r}")
    for name, number in (("max_records", max_records), ("partitions", partitions)):
        if number is not None and number < 1:
            raise ConfigError(f"{name} must be >= 1, got {number}")
    bound = bind_sources(flow, source)
    targets, routes = bind_sinks(flow, sinks, out)
    memory = [sink for sink in targets.values() if isinstance(sink, MemorySink)]
    if probe is not None:
        bound, targets = probe.attach(flow, bound, targets, by_commit=True)
    temporary = Path(tempfile.mkdtemp(prefix="riot_ops-"))
    folder = str(checkpoint) if checkpoint is not None else str(temporary / "checkpoint")
    if _exists(spark, f"{folder}/{MANIFEST}"):
        stages, partitions = _open_checkpoint(spark, folder, flow, partitions, order, fuse)
        for sink in targets.values():
            sink.recover(_next_batch(spark, folder))
    else:  # the manifest comes last: with it, what is in the sinks is this query's own
        _clear(targets, overwrite)
        stages, partitions = _open_checkpoint(spark, folder, flow, partitions, order, fuse)
    spools = {name: SpoolSink(temporary / "spool" / name) for name, sink in targets.items() if sink.in_process}
    outlet = Outlet(routes, {**targets, **spools})
    builder = _Builder(
        stages, spark, outlet, ARRIVAL if order == "arrival" else EVENT_TIME, partitions, compression, max_records
    )
    frame = builder.build(bound)
    sink_name = f"riot_ops_sink_{uuid.uuid4().hex}"
    spark.dataSource.register(packed_sink(sink_name, outlet.sinks, str(temporary / "metrics")))
    writer = (
        frame.writeStream.format(sink_name)
        .option("checkpointLocation", folder)
        .queryName(f"{flow.name}-{uuid.uuid4().hex[:8]}")
    )
    if trigger == "available now" or (trigger is None and _ends_by_itself(bound)):
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return Query(flow, stages, writer.start(), bound, targets, routes, spools, memory, temporary, probe)


def _ends_by_itself(sources: dict[str, Any]) -> bool:
    """Whether everything is there to be read now (paced and endless sources are not)."""
    return all(isinstance(s, Source) and not s.waits() for s in sources.values())


class _Builder:
    """Chains the stages of a plan into one streaming DataFrame."""

    def __init__(
        self,
        stages: Plan,
        spark: SparkSession,
        outlet: Outlet,
        order: tuple[str, ...],
        partitions: int,
        compression: str | None,
        max_records: int | None,
    ) -> None:
        self._plan = stages
        self._spark = spark
        self._outlet = outlet
        self._order = order
        self._partitions = partitions
        self._compression = compression
        self._max_records = max_records
        self._run = uuid.uuid4().hex
        self._labels = {
            s.index: bucket_labels(_buckets(s.partition, s.parallelism, partitions), partitions)
            for s in stages.stages[1:]
        }

    def build(self, sources: dict[str, Any]) -> DataFrame:
        frames = [self._read(name, source) for name, source in sources.items()]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.union(other)
        previous = self._spark.conf.get("spark.sql.shuffle.partitions")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._partitions))
        try:
            for stage in self._plan.stages[1:]:
                processor = StageProcessor(
                    self._plan,
                    stage.index,
                    self._labels,
                    self._run,
                    self._order,
                    self._compression,
                    frozenset(sources),
                    self._outlet,
                )
                frame = frame.groupBy("bucket").transformWithStateInPandas(
                    processor, outputStructType=BLOCKS_DDL, outputMode="append", timeMode="None"
                )
        finally:
            self._spark.conf.set("spark.sql.shuffle.partitions", str(previous))
        return frame

    def _read(self, name: str, source: Any) -> DataFrame:
        if not isinstance(source, Source):
            pack = pack_stage_zero(self._plan, name, self._labels, self._order, self._compression, self._outlet)
            unpacked: DataFrame = source
            return unpacked.mapInArrow(pack, BLOCKS_DDL)
        stage = SourceStage(
            self._plan,
            name,
            source,
            self._outlet,
            self._labels,
            self._order,
            self._compression,
            self._max_records,
            self._partitions,
        )
        label = f"riot_ops_source_{uuid.uuid4().hex}"
        self._spark.dataSource.register(packed_source(label, stage))
        return self._spark.readStream.format(label).load()


def _buckets(partition: tuple[str, ...], parallelism: int | None, partitions: int) -> int:
    return 1 if not partition else min(parallelism or partitions, partitions)


# -- checkpoint --------------------------------------------------------------------------------------


def _open_checkpoint(
    spark: SparkSession, folder: str, flow: Dataflow, partitions: int | None, order: str, fuse: str
) -> tuple[Plan, int]:
    """Check that a checkpoint is this dataflow's own; returns the plan and the number of partitions."""
    path = f"{folder}/{MANIFEST}"
    found = json.loads(_read_text(spark, path)) if _exists(spark, path) else None
    given = partitions or (found or {}).get("partitions") or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    if fuse == "auto":
        fuse = found["fuse"] if found else "coarse" if given <= FEW_PARTITIONS else "exact"
    stages = plan(flow, fuse=fuse)  # type: ignore[arg-type]
    state = {
        s.id: task_identity(s.operator) | {"key": list(s.key), "stage": stage.index}
        for stage in stages.stages[1:]
        for s in stage.steps
        if isinstance(s.operator, KeyedTask)
    }
    if found is None:
        _write_text(
            spark,
            path,
            json.dumps(
                {
                    "format": 1,
                    "flow": stages.flow.name,
                    "partitions": given,
                    "order": order,
                    "fuse": fuse,
                    "state": state,
                },
                indent=1,
            ),
        )
        return stages, given
    for name, now in (("order", order), ("fuse", fuse)):
        if found[name] != now:
            raise StateError(
                f"the checkpoint {folder} was written with {name}={found[name]!r}, this query has "
                f"{now!r}; use the old value or a new checkpoint"
            )
    if partitions is not None and partitions != found["partitions"]:
        raise StateError(
            f"the checkpoint {folder} was written with {found['partitions']} partitions and cannot "
            f"be continued with {partitions}; leave partitions out or use a new checkpoint"
        )
    for step in sorted({*found["state"], *state}):
        then, now_ = found["state"].get(step), state.get(step)
        if then != now_:
            raise StateError(
                f"the checkpoint {folder} holds other state for step {step!r}: "
                f"{_difference(then, now_)}; use the old dataflow or a new checkpoint"
            )
    return stages, given


def _difference(then: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    if then is None or now is None:
        return "it has none" if then is None else "the dataflow has no such step"
    a = {**then, **then["parameters"]}
    b = {**now, **now["parameters"]}
    return "; ".join(
        f"{n} was {a.get(n)!r} and is {b.get(n)!r}"
        for n in sorted({*a, *b})
        if n != "parameters" and a.get(n) != b.get(n)
    )


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # noqa: SLF001 (PySpark offers no file API of its own)
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(spark._jsc.hadoopConfiguration()), where  # noqa: SLF001


def _exists(spark: SparkSession, path: str) -> bool:
    system, where = _hadoop(spark, path)
    return bool(system.exists(where))


def _next_batch(spark: SparkSession, folder: str) -> int:
    """The number of the micro-batch that a query continues with."""
    system, where = _hadoop(spark, f"{folder}/commits")
    names = [entry.getPath().getName() for entry in system.listStatus(where)] if system.exists(where) else []
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def _read_text(spark: SparkSession, path: str) -> str:
    return "\n".join(r.value for r in spark.read.text(path).collect())


def _write_text(spark: SparkSession, path: str, text: str) -> None:
    system, where = _hadoop(spark, path)
    stream = system.create(where, True)
    stream.write(bytearray(text, "utf-8"))
    stream.close()


def _clear(targets: dict[str, Sink], overwrite: bool) -> None:
    for sink in targets.values():
        sink.begin(overwrite)


# -- watching ----------------------------------------------------------------------------------------


class Query:
    """A running dataflow on Spark.

    Attributes
    ----------
    streaming : StreamingQuery
        Spark's own handle.
    summary : Summary
        Counts and latency so far; :meth:`poll` refreshes it.
    """

    def __init__(
        self,
        flow: Dataflow,
        stages: Plan,
        streaming: Any,
        sources: dict[str, Any],
        sinks: dict[str, Sink],
        routes: dict[str, list[str]],
        spools: dict[str, SpoolSink],
        memory: list[MemorySink],
        temporary: Path,
        probe: Probe | None,
    ) -> None:
        self.flow = flow
        self.plan = stages
        self.streaming = streaming
        self.summary = Summary()
        self.micro_batches: list[dict[str, Any]] = []
        self._sources = sources
        self._sinks = sinks
        self._routes = routes
        self._spools = spools
        self._memory = memory
        self._temporary = temporary
        self._probe = probe
        self._seen = -1
        self._started = time.time()

    @property
    def active(self) -> bool:
        """Whether the query is running."""
        return bool(self.streaming.isActive)

    def poll(self) -> Summary:
        """Refresh the summary, and feed the in-process sinks."""
        active = self.active  # asked first: once it is not, no commit is under way
        for entry in self.streaming.recentProgress:
            progress = entry if isinstance(entry, dict) else json.loads(entry.json)
            if progress["batchId"] > self._seen:
                self._seen = progress["batchId"]
                self._count(progress)
        for name, spool in self._spools.items():
            spool.drain(self._sinks[name], self._seen if active else None)
        if active:
            self.summary.seconds = time.time() - self._started
        return self.summary

    def wait(self, timeout_s: float | None = None, progress: Callable[[Query], None] | None = None) -> Summary:
        """Wait until the sources have ended, then stop; raises what the query failed with.

        Ctrl-C stops the query; what was committed stays, and its checkpoint can be continued.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while self.active and (until is None or time.monotonic() < until):
                time.sleep(POLL_SECONDS)
                self.poll()
                if progress is not None:
                    progress(self)
                if self._all_read():
                    self.streaming.stop()
            self._raise()
            self.poll()
            if not self.active:
                end_sinks(self.flow, self._sinks, self._routes)
            return self.summary
        except KeyboardInterrupt:
            self.stop()
            raise
        finally:
            if not self.active:
                self.close()

    def stop(self) -> None:
        """Stop the query; it can be started again with its checkpoint."""
        self.streaming.stop()
        self.poll()
        self.close()

    def close(self) -> None:
        """Remove temporary files."""
        if self._probe is not None:
            self._probe.stop()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __getitem__(self, stream: str) -> pa.Table:
        """The records of a stream that ended in memory."""
        self.poll()
        for sink in self._memory:
            if stream in sink.streams:
                return sink.table(stream)
        return self.flow.schemas()[stream].empty_table()

    def _count(self, progress: dict[str, Any]) -> None:
        self.micro_batches.append({"batch": progress["batchId"], "durations_ms": progress["durationMs"]})
        for described, source in zip(progress["sources"], self._sources.values(), strict=False):
            self.summary.messages += _messages(source, described)
        path = self._temporary / "metrics" / f"{progress['batchId']}.json"
        if path.exists():
            counted = json.loads(path.read_text(encoding="utf-8"))
            self.summary.count(counted["rows"], counted["reasons"])
            self.summary.latency.extend(counted["latency"])
            self.summary.batches += 1
            path.unlink()

    def _all_read(self) -> bool:
        last = self.streaming.lastProgress
        if last is None or not all(isinstance(s, Source) for s in self._sources.values()):
            return False
        progress = last if isinstance(last, dict) else json.loads(last.json)
        if progress["batchId"] > self._seen:
            return False
        ends = [_offset(s["endOffset"]) for s in progress["sources"]]
        return all(end is not None and end["ended"] for end in ends)

    def _raise(self) -> None:
        error = self.streaming.exception()
        if error is not None:
            text = str(error)
            kind = StateError if "StateError" in text else RiotError
            raise kind(f"the dataflow {self.flow.name!r} failed on Spark: {_cause(text)}") from error


def _offset(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


def _messages(source: Any, described: dict[str, Any]) -> int:
    if isinstance(source, Source):
        start, end = _offset(described["startOffset"]), _offset(described["endOffset"])
        return 0 if end is None else source.count(start["at"] if start else source.initial(), end["at"]) or 0
    return int(described["numInputRows"])


def _cause(text: str) -> str:
    """The line of a Spark error that names its Python cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("riot_ops.") or "Error: " in line]
    return named[-1] if named else lines[0] if lines else text
