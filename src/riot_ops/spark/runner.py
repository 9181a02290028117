"""The Spark runner: starts a dataflow as one Structured Streaming query."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from riot_ops.core.buffering import AVAILABLE_NOW, Buffering, as_buffering, check_target, check_trigger, spark_interval
from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import temporary_folder
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.measure.probe import Probe
from riot_ops.runtime.batches import ORDERS
from riot_ops.runtime.binding import bind_sinks, bind_sources, sink_nodes
from riot_ops.runtime.memory import SMALL_BUFFERING, Memory, check_memory
from riot_ops.runtime.merged_source import merge_sources
from riot_ops.runtime.restart import AddedSinks, Restart, check_restart, source_kind
from riot_ops.spark.batch_source import FrameFiles, has_batch_frames, write_batch_frames
from riot_ops.spark.blocks import BLOCKS_DDL, METRICS, METRICS_STAGE
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.connect import ConnectCheckpoint, ConnectQuery, check_connected, on_server
from riot_ops.spark.dataframe_transform import (
    Order,
    assign_labels,
    chain_stages,
    pack_stage_zero,
    resolve_order,
    with_planned_time,
)
from riot_ops.spark.driver_files import check_driver_files, check_sources
from riot_ops.spark.driver_sink import DriverSink
from riot_ops.spark.features import READ_LIMITS, STATE_OVER_CONNECT, require
from riot_ops.spark.map_batches import map_batches
from riot_ops.spark.pickling import pickled_sink, pickled_source
from riot_ops.spark.query import Query, QuerySetup, is_active
from riot_ops.spark.rate_control import RateController, RateLimit
from riot_ops.spark.session import (
    PARTITIONS,
    active_session,
    arrow_batch_settings,
    block_batch_settings,
    fit_buffering,
    query_settings,
    small_batch_settings,
)
from riot_ops.spark.session_check import check_session, is_connect, is_one_process
from riot_ops.spark.sink import SinkCommitter
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["start"]

#: Maximum records of a source in a micro-batch with ``memory="small"``.
SMALL_MAX_RECORDS = 10_000


def start(
    flow: Graph,
    spark: SparkSession,
    source: Any = None,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    checkpoint: str | Path | None = None,
    restart: Restart = "same",
    trigger: Duration | None = None,
    max_records: int | None = None,
    target_duration: Duration | None = None,
    min_records: int | None = None,
    partitions: int | None = None,
    order: Order = "auto",
    fuse: Literal["auto", "exact", "coarse"] = "auto",
    buffering: Buffering | str | None = None,
    overwrite: bool = False,
    memory: Memory = "normal",
    probe: Probe | None = None,
) -> Query:
    """Start a dataflow on Spark Structured Streaming.

    State is effectively once: Spark's checkpoint commits it together with the input position. Sinks
    are at least once; Parquet files effectively once.

    Parameters
    ----------
    source : source, DataFrame, or mapping of source name to one of these
        A batch DataFrame makes a bounded run: its rows are first written to the checkpoint, in the order of ``seq`` if
        they have one, and a run that is started again continues with those.
    sinks : sink or mapping of sink name to sink, optional
        By default Parquet files below ``out`` if that is given, else memory.
    checkpoint : path or URI, optional
        Where Spark keeps position and state; a query started again with it continues. By default a
        temporary folder, removed at the end. On a cluster a folder that driver and workers do not share, such as the
        temporary one, is refused if the dataflow keeps state or the source is a batch DataFrame; so are files and
        folders of sources, sinks and tasks.
    restart : "same" or "compatible", default "same"
        Whether a query may continue from a checkpoint of a dataflow that differs, or with other ``partitions``.
        "compatible" keeps the state of the steps that did not change, by their ids, and starts others empty;
        ``query.restart`` says which. What would be misread is refused. See ``docs/howto/change.md``.
    trigger : timedelta or text such as "1s", optional
        Interval between micro-batches, also in Spark's notation (``"1 second"``), or ``"available now"`` to process
        what is there and end. By default bounded sources are read as fast as possible until they end.
    max_records : int, optional
        Maximum records per source and micro-batch.
    target_duration : timedelta or text such as "1s", optional
        Intended duration of a micro-batch. The number of records starts at ``max_records`` and follows the duration of
        the last micro-batch: ``records · target_duration / time``, at most twice and at least half of it, and unchanged
        if that was within 20 % of the target. By default the number is fixed. A streaming DataFrame has limits of its
        own.
    min_records : int, optional
        Lower bound of that number; by default a hundredth of ``max_records``.
    partitions : int, optional
        Parallelism; by default the session's ``spark.sql.shuffle.partitions``.
    order : "auto", "arrival" or "event_time", default "auto"
        Order of a key's records within a micro-batch: by ``seq``, or by ``event_time`` first. "auto": by event time
        if a DataFrame has no ``seq``, and it or a task after it makes an event time; sources of riot_ops number their
        records.
    fuse : "auto", "exact" or "coarse"
        See :func:`riot_ops.graph.plan.plan`. "auto" is "coarse" up to four partitions, where one shuffle
        less saves more than an uneven spread of keys costs, and "exact" beyond; a continued query keeps its
        first choice.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        Size and compression of the packed blocks, size of the batches between the JVM and Python, and the trigger; see
        :class:`riot_ops.Buffering`. By default blocks of 8 MiB with LZ4 (smaller ones for a DataFrame in a session that
        limits Arrow batches by records only), and the session's settings for the rest.
    overwrite : bool, default False
        Whether a new query may replace the output of an earlier one in ``out``.
    memory : "normal" or "small", default "normal"
        "small" is for Python workers with little memory: ``max_records`` is 10,000, packed blocks and batches between
        the JVM and Python have at most 64 KiB or 1,024 records, unless ``max_records`` or ``buffering`` is given; and a
        worker returns freed memory to the system after each part of a micro-batch. State takes what it takes. A
        streaming DataFrame has limits of its own.
    probe : Probe, optional
        Measures the query until it is stopped, see :class:`riot_ops.Probe`; a record counts as delivered
        when its micro-batch is committed.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", readings.key_by("device").apply(ro.tasks.MovingAverage(window=2), id="mean"))
    >>> rows = [{"device": "a", "value": 1.0}, {"device": "a", "value": 3.0}, {"device": "b", "value": 9.0}]
    >>> sink = ro.MemorySink()
    >>> query = flow.start(spark, rows, sinks=sink)  # the same as start(flow, spark, rows, sinks=sink)
    >>> query.wait().messages
    3
    >>> sink.table("mean")["value"].to_pylist()
    [2.0]
    """
    if order not in ("auto", "arrival", "event_time"):
        raise ConfigError(f"order must be 'auto', 'arrival' or 'event_time', got {order!r}")
    check_trigger(trigger, AVAILABLE_NOW)
    check_memory(memory)
    small = memory == "small"
    settings = {} if buffering is None else arrow_batch_settings(as_buffering(buffering))
    if buffering is None and small:
        settings, buffering = small_batch_settings(), SMALL_BUFFERING
    buffering = as_buffering(buffering)
    for name, number in (("max_records", max_records), ("min_records", min_records), ("partitions", partitions)):
        if number is not None:
            check_count(**{name: number})
    check_restart(restart, checkpoint)
    target_s = None if target_duration is None else duration_seconds("target_duration", target_duration)
    check_target(target_s, max_records, min_records)
    if max_records is None and small:
        max_records = SMALL_MAX_RECORDS
    keeps_state = any(isinstance(node.task, KeyedOperator) for node in flow.nodes_of_kind("task"))
    check_session(spark, keeps_state=keeps_state)
    targets, routes = bind_sinks(flow, sinks, out)
    connected = is_connect(spark)
    if connected:
        check_connected(targets, source, checkpoint, probe, restart)
        if keeps_state:
            require(STATE_OVER_CONNECT, spark)
    temporary = temporary_folder("riot_ops-query-")
    running: list[Any] = []
    lock: FolderLock | None = None
    try:
        place = temporary / "checkpoint" if checkpoint is None else checkpoint
        spark_checkpoint = ConnectCheckpoint(spark, place) if connected else SparkCheckpoint(spark, place)
        folders = [] if connected else [folder for sink in targets.values() for folder in sink.folders()]
        if spark_checkpoint.local is not None:
            folders.append(spark_checkpoint.local)
        kept = keeps_state or has_batch_frames(source)
        if not connected:
            check_driver_files(spark, flow, sinks=targets, checkpoint=spark_checkpoint.local if kept else None)
        lock = FolderLock(folders, is_over=lambda: bool(running) and not is_active(running[0]))
        bound = bind_sources(flow, write_batch_frames(flow, source, spark_checkpoint.local), again="Spark")
        kinds = {name: source_kind(one) for name, one in merge_sources(flow, bound).items()}
        if not connected and not is_one_process(spark):
            bound = {name: one.carried() if isinstance(one, Source) else one for name, one in bound.items()}
            check_sources(spark, bound)
        order = resolve_order(flow, {name for name, one in bound.items() if not _has_numbers(one)}, order)
        if probe is not None:
            bound, targets = probe.attach(flow, bound, targets, by_commit=True)
        bound = merge_sources(flow, bound)
        if target_s is not None and not any(isinstance(one, Source) for one in bound.values()):
            raise ConfigError(
                f"target_duration = {target_s:g} s is for sources of riot_ops; a streaming DataFrame has the limits of "
                "Spark's source, such as maxOffsetsPerTrigger"
            )
        continued = spark_checkpoint.exists()
        first = spark_checkpoint.next_batch() if continued else 0
        report = None
        if first and restart == "compatible":
            added = AddedSinks(targets, sink_nodes(flow, sinks, out), overwrite)
            report = spark_checkpoint.change(flow, bound, kinds, partitions, order, fuse, added)
        ends = spark_checkpoint.ends(first - 1, bound)
        run = spark_checkpoint.run()
        for sink in targets.values():
            sink.identify(run)
        planned = spark_checkpoint.planned_ends(first, bound) if first and not READ_LIMITS else ends
        if first == 0:  # the manifest is written last: from then on the content of the sinks belongs to this query
            _start_sinks(spark, targets, "recover" if continued else "begin", 0 if continued else overwrite)
            if continued:
                spark_checkpoint.forget()
        if not settings and all(isinstance(one, Source) for one in bound.values()):
            settings = block_batch_settings(spark)
        elif not settings:
            buffering = fit_buffering(buffering, spark)
        stages, partitions = spark_checkpoint.open(flow, partitions, order, fuse, run, kinds, bound)
        if first:
            _start_sinks(spark, targets, "resume", first)
        driver_sinks = {
            name: DriverSink(temporary / "relay" / name) for name, sink in targets.items() if sink.in_process
        }
        available_now = trigger == AVAILABLE_NOW or (trigger is None and _ends_by_itself(bound))
        if trigger is None and not available_now:
            trigger = buffering.trigger
        note = None if connected or available_now or trigger is None else temporary / "committed"
        rate = None
        if target_s is not None and max_records is not None:
            rate = RateController(RateLimit(target_s, max_records, min_records), note)
        setup = QuerySetup(
            flow=flow,
            stages=stages,
            sources=bound,
            sinks=targets,
            routes=routes,
            driver_sinks=driver_sinks,
            temporary=temporary,
            checkpoint=spark_checkpoint,
            ends=ends,
            order=ORDERS[order],
            partitions=partitions,
            buffering=buffering,
            max_records=max_records,
            small_memory=small,
            rate=rate,
            available_now=available_now,
            stops_idle=available_now and not READ_LIMITS and any(isinstance(one, Source) for one in bound.values()),
            planned=planned,
            base=spark_checkpoint.base,
            restart=report,
            probe=probe,
        )
        with active_session(spark):
            frame = observed(_Builder(setup, spark).build())
            sink_name = f"riot_ops_sink_{uuid.uuid4().hex}"
            metrics = None if connected else str(temporary / "metrics")
            committer = SinkCommitter(setup.sink_routes.sinks, metrics, note, setup.base)
            spark.dataSource.register(pickled_sink(sink_name, committer))
            writer = (
                frame.writeStream.format(sink_name)
                .option("checkpointLocation", spark_checkpoint.location)
                .queryName(f"{flow.name}-{uuid.uuid4().hex[:8]}")
            )
            if available_now and not setup.stops_idle:
                writer = writer.trigger(availableNow=True)
            elif trigger is not None and not available_now:
                writer = writer.trigger(processingTime=spark_interval(trigger))
            with query_settings(spark, {PARTITIONS: str(partitions), **settings}):
                running.append(writer.start())
    except BaseException:
        if lock is not None:
            lock.release()
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return (ConnectQuery if connected else Query)(setup, running[0], lock)


def _start_sinks(spark: SparkSession, sinks: Mapping[str, Sink], what: str, argument: Any) -> None:
    """Call a method of all sinks, over Spark Connect in a task."""
    found = list(sinks.values())

    def call() -> None:
        for sink in found:
            getattr(sink, what)(argument)

    if is_connect(spark):
        on_server(spark, call)
    else:
        call()


def observed(blocks: DataFrame) -> DataFrame:
    """Add the counters of a query, as ``observedMetrics["riot_ops"]`` of its progress."""
    from pyspark.sql import functions as f

    counted = [
        f.sum(f.expr(f"if(stage = {METRICS_STAGE} and stream = '{name}', rows, 0)")).alias(name) for name in METRICS
    ]
    return blocks.observe("riot_ops", *counted)


def _has_numbers(source: Any) -> bool:
    """Whether the records had numbers before Spark read them, whose tasks read in any order."""
    if isinstance(source, FrameFiles):
        return source.had_numbers
    return isinstance(source, Source) or "seq" in source.columns


def _ends_by_itself(sources: dict[str, Any]) -> bool:
    """Whether all records are available now; not so for paced and endless sources."""
    return all(isinstance(s, Source) and not s.waits() for s in sources.values())


class _Builder:
    """Builds one streaming DataFrame from the stages of a plan."""

    def __init__(self, setup: QuerySetup, spark: SparkSession) -> None:
        self._setup = setup
        self._spark = spark
        self._run = uuid.uuid4().hex
        self._labels = assign_labels(setup.stages, setup.partitions)
        self._sink_routes = setup.sink_routes

    def build(self) -> DataFrame:
        pairs = zip(self._setup.sources.items(), self._setup.planned, strict=True)
        frames = [self._read(name, source, planned) for (name, source), planned in pairs]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.union(other)
        setup = self._setup
        processors = [
            StageProcessor(
                setup.stages,
                number,
                self._labels,
                self._run,
                setup.order,
                setup.buffering,
                frozenset(setup.sources),
                self._sink_routes,
                small_memory=setup.small_memory,
            )
            for number in range(1, len(setup.stages.shuffles) + 1)
        ]
        return chain_stages(self._spark, frame, processors)

    def _read(self, name: str, source: Any, planned: Any) -> DataFrame:
        setup = self._setup
        if not isinstance(source, Source):
            pack = pack_stage_zero(setup.stages, name, self._labels, setup.order, setup.buffering, self._sink_routes)
            unpacked: DataFrame = source
            return map_batches(with_planned_time(unpacked), pack, BLOCKS_DDL)
        stage = SourceStage(
            setup.stages,
            name,
            source,
            self._sink_routes,
            self._labels,
            setup.order,
            setup.buffering,
            setup.max_records,
            setup.partitions,
            setup.small_memory,
        )
        label = f"riot_ops_source_{uuid.uuid4().hex}"
        self._spark.dataSource.register(pickled_source(label, Reader(stage, setup.rate, planned)))
        return self._spark.readStream.format(label).load()
