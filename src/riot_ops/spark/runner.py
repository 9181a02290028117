"""Starts a dataflow as one Spark Structured Streaming query."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riot_ops.core.buffering import AVAILABLE_NOW, Buffering, as_buffering, check_target, check_trigger
from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan
from riot_ops.measure.probe import Probe
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME
from riot_ops.runtime.binding import bind_sinks, bind_sources
from riot_ops.runtime.claim import Claim
from riot_ops.runtime.merging import merged
from riot_ops.spark.batch_source import as_logs
from riot_ops.spark.blocks import BLOCKS_DDL
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.dataframe_transform import labels_of, pack_stage_zero
from riot_ops.spark.driver_sink import Relay
from riot_ops.spark.pickling import packed_processor, packed_sink, packed_source
from riot_ops.spark.query import Query, is_active
from riot_ops.spark.rate_control import Limit, Pace
from riot_ops.spark.session import (
    PARTITIONS,
    active,
    arrow_batches,
    block_batches,
    fitting,
    settings_of_query,
    workers_apart,
)
from riot_ops.spark.session_check import check_session, is_connect, refuse_connect
from riot_ops.spark.sink import Outlet, Writer
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["staged", "start"]


def start(
    flow: Graph,
    spark: SparkSession,
    source: Any = None,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    checkpoint: str | Path | None = None,
    trigger: str | None = None,
    max_records: int | None = None,
    target_s: float | None = None,
    min_records: int | None = None,
    partitions: int | None = None,
    order: str = "arrival",
    fuse: str = "auto",
    buffering: Buffering | str | None = None,
    overwrite: bool = False,
    probe: Probe | None = None,
) -> Query:
    """Start a dataflow on Spark Structured Streaming.

    State is effectively once: Spark's checkpoint commits it together with the input position. Sinks
    are at least once; Parquet files effectively once.

    Parameters
    ----------
    source : source, DataFrame, or mapping of source name to one of these
        A batch DataFrame makes a run that ends: its rows are written into the checkpoint first, in the order of
        ``seq`` where they have one, and a run that is started again goes on with those.
    sinks : sink or mapping of sink name to sink, optional
        By default Parquet files below ``out`` where that is given, else memory.
    checkpoint : path or URI, optional
        Where Spark keeps position and state; a query started again with it goes on. By default a
        temporary folder, removed at the end.
    trigger : str, optional
        A processing-time interval such as ``"1 second"``, or ``"available now"`` to take what is there
        and end. By default bounded sources are read as fast as possible until they end.
    max_records : int, optional
        Most records per source and micro-batch.
    target_s : float, seconds, optional
        How long a micro-batch should take. From ``max_records`` on the number of records follows what micro-batches
        took: ``records · target / time``, at most twice and at least half of the one before, and the same where that
        took the target to within 20 %. By default the number is fixed. A streaming DataFrame has limits of its own.
    min_records : int, optional
        Fewest records that this comes to; by default a hundredth of ``max_records``.
    partitions : int, optional
        Parallelism; by default the session's ``spark.sql.shuffle.partitions``.
    order : "arrival" or "event_time"
        How the records of a key are ordered within a micro-batch.
    fuse : "auto", "exact" or "coarse"
        See :func:`riot_ops.graph.plan.plan`. "auto" is "coarse" up to four partitions, where one shuffle
        less gains more than an uneven spread of keys loses, and "exact" beyond; a continued query
        keeps what it began with.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        Size and compression of the packed blocks, size of the batches between the JVM and Python, and the trigger; see
        :class:`riot_ops.Buffering`. By default blocks of 8 MiB by LZ4 (of a DataFrame in a session that bounds the
        batches by records alone, smaller ones), and the rest as the session has it.
    overwrite : bool, default False
        Whether a new query may replace the output of an earlier one in ``out``.
    probe : Probe, optional
        Measures the query until it is stopped, see :class:`riot_ops.Probe`; a record counts as delivered
        when its micro-batch is committed.
    """
    if order not in ("arrival", "event_time"):
        raise ConfigError(f"order must be 'arrival' or 'event_time', got {order!r}")
    check_trigger(trigger, AVAILABLE_NOW)
    settings = {} if buffering is None else arrow_batches(as_buffering(buffering))
    buffering = as_buffering(buffering)
    for name, number in (("max_records", max_records), ("min_records", min_records), ("partitions", partitions)):
        if number is not None:
            check_count(name, number)
    check_target(target_s, max_records, min_records)
    refuse_connect(is_connect(spark), "flow.start")
    check_session(spark, keeps_state=any(isinstance(node.task, KeyedOperator) for node in flow.kind("task")))
    targets, routes = bind_sinks(flow, sinks, out)
    temporary = Path(tempfile.mkdtemp(prefix="riot_ops-"))
    running: list[Any] = []
    claim: Claim | None = None
    try:
        kept = SparkCheckpoint(spark, temporary / "checkpoint" if checkpoint is None else checkpoint)
        folders = [folder for sink in targets.values() for folder in sink.folders()]
        if kept.local is not None:
            folders.append(kept.local)
        claim = Claim(folders, over=lambda: bool(running) and not is_active(running[0]))
        bound = bind_sources(flow, as_logs(flow, source, kept.local), again="Spark")
        if probe is not None:
            bound, targets = probe.attach(flow, bound, targets, by_commit=True)
        bound = merged(flow, bound)
        if target_s is not None and not any(isinstance(one, Source) for one in bound.values()):
            raise ConfigError(
                f"target_s = {target_s:g} is for sources of riot_ops; a streaming DataFrame has the limits of Spark's "
                "source, such as maxOffsetsPerTrigger"
            )
        known = kept.exists()
        first = kept.next_batch() if known else 0
        ends = kept.ends(first - 1, bound)
        if first == 0:  # the manifest comes last: with it, what is in the sinks is this query's own
            for sink in targets.values():
                if known:
                    sink.recover(0)
                else:
                    sink.begin(overwrite)
            if known:
                kept.forget()
        if not settings and all(isinstance(one, Source) for one in bound.values()):
            settings = block_batches(spark)
        elif not settings:
            buffering = fitting(buffering, spark)
        stages, partitions = kept.open(flow, partitions, order, fuse)
        if first:
            for sink in targets.values():
                sink.recover(first)
        relays = {name: Relay(temporary / "relay" / name) for name, sink in targets.items() if sink.in_process}
        outlet = Outlet(routes, {**targets, **relays})
        available_now = trigger == AVAILABLE_NOW or (trigger is None and _ends_by_itself(bound))
        if trigger is None and not available_now:
            trigger = buffering.trigger
        note = None if available_now or trigger is None else temporary / "committed"
        pace = None
        if target_s is not None and max_records is not None:
            pace = Pace(Limit(target_s, max_records, min_records), note)
        order_by = ARRIVAL if order == "arrival" else EVENT_TIME
        builder = _Builder(stages, spark, outlet, order_by, partitions, buffering, max_records, pace)
        with active(spark):
            frame = builder.build(bound)
            sink_name = f"riot_ops_sink_{uuid.uuid4().hex}"
            spark.dataSource.register(packed_sink(sink_name, Writer(outlet.sinks, str(temporary / "metrics"), note)))
            writer = (
                frame.writeStream.format(sink_name)
                .option("checkpointLocation", kept.folder)
                .queryName(f"{flow.name}-{uuid.uuid4().hex[:8]}")
            )
            if available_now:
                writer = writer.trigger(availableNow=True)
            elif trigger is not None:
                writer = writer.trigger(processingTime=trigger)
            with settings_of_query(spark, {PARTITIONS: str(partitions), **settings}):
                running.append(writer.start())
    except BaseException:
        if claim is not None:
            claim.release()
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Query(
        flow, stages, running[0], bound, targets, routes, relays, temporary, kept, ends, claim, available_now, probe
    )


def _ends_by_itself(sources: dict[str, Any]) -> bool:
    """Whether everything is there to be read now (paced and endless sources are not)."""
    return all(isinstance(s, Source) and not s.waits() for s in sources.values())


def staged(spark: SparkSession, frame: DataFrame, processors: Sequence[StageProcessor]) -> DataFrame:
    """The stages with state behind the blocks that come from a source."""
    for processor in processors:
        with workers_apart(spark):
            frame = frame.groupBy("bucket").transformWithStateInPandas(
                packed_processor(processor), outputStructType=BLOCKS_DDL, outputMode="append", timeMode="None"
            )
    return frame


class _Builder:
    """Chains the stages of a plan into one streaming DataFrame."""

    def __init__(
        self,
        stages: Plan,
        spark: SparkSession,
        outlet: Outlet,
        order: tuple[str, ...],
        partitions: int,
        buffering: Buffering,
        max_records: int | None,
        pace: Pace | None,
    ) -> None:
        self._plan = stages
        self._spark = spark
        self._outlet = outlet
        self._order = order
        self._partitions = partitions
        self._buffering = buffering
        self._max_records = max_records
        self._pace = pace
        self._run = uuid.uuid4().hex
        self._labels = labels_of(stages, partitions)

    def build(self, sources: dict[str, Any]) -> DataFrame:
        frames = [self._read(name, source) for name, source in sources.items()]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.union(other)
        processors = [
            StageProcessor(
                self._plan,
                number,
                self._labels,
                self._run,
                self._order,
                self._buffering,
                frozenset(sources),
                self._outlet,
            )
            for number in range(1, len(self._plan.shuffles) + 1)
        ]
        return staged(self._spark, frame, processors)

    def _read(self, name: str, source: Any) -> DataFrame:
        if not isinstance(source, Source):
            pack = pack_stage_zero(self._plan, name, self._labels, self._order, self._buffering, self._outlet)
            unpacked: DataFrame = source
            return unpacked.mapInArrow(pack, BLOCKS_DDL)
        stage = SourceStage(
            self._plan,
            name,
            source,
            self._outlet,
            self._labels,
            self._order,
            self._buffering,
            self._max_records,
            self._partitions,
        )
        label = f"riot_ops_source_{uuid.uuid4().hex}"
        self._spark.dataSource.register(packed_source(label, Reader(stage, self._pace)))
        return self._spark.readStream.format(label).load()
