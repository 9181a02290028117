"""Tasks on a user's own Spark DataFrames: the fast path, for any task and any batch or streaming DataFrame."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.functions import current_timestamp
from pyspark.sql.pandas.types import from_arrow_schema

from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.core.checks import check_transform_options
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.ipc import decode
from riot_ops.core.operator import KeyedOperator, Operator, StatelessOperator
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node, source_node
from riot_ops.graph.plan import Plan, plan
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.runtime.batches import ORDERS, concatenate
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.error_column import (
    ERROR_COLUMN,
    AcceptedFilter,
    RejectedFilter,
    accepted_rows,
    apply_to_accepted,
    drop_error_column,
    passed_through,
    rejected_rows,
    result_schema,
)
from riot_ops.runtime.operator_calls import apply_stateless
from riot_ops.spark.blocks import (
    BLOCKS,
    BLOCKS_DDL,
    FLUSHED_PREFIX,
    Block,
    Labels,
    Packer,
    blocks_to_batch,
    bucket_labels,
)
from riot_ops.spark.features import STATE_OVER_CONNECT, require, to_arrow_schema
from riot_ops.spark.manifest import Manifest
from riot_ops.spark.map_batches import map_batches
from riot_ops.spark.pickling import pickled_processor
from riot_ops.spark.session import PARTITIONS, default_partitions, fit_buffering, stateful_workers
from riot_ops.spark.session_check import check_session, is_connect
from riot_ops.spark.sink import SinkRoutes
from riot_ops.spark.stage import (
    OWNER_BUCKET,
    SOURCE_END,
    StageProcessor,
    read_blocks,
    records_by_stream,
    run_stage_zero,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PASSED_THROUGH",
    "Order",
    "StageChain",
    "assign_labels",
    "chain_stages",
    "default_fuse",
    "inspect_frame",
    "pack_stage_zero",
    "resolve_order",
    "to_utc",
    "transform",
    "unpack_stream",
    "with_planned_time",
    "with_seq",
]

Order = Literal["auto", "arrival", "event_time"]
#: A function for ``mapInArrow``.
Pack = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

BATCH_ROWS = 65_536
BATCH_BYTES = 64 << 20
FEW_PARTITIONS = 4
NO_FIELDS = pa.schema([])
#: Settings with the number of shuffle partitions of a streaming query, in the order in which Spark prefers them.
QUERY_PARTITIONS = ("spark.sql.streaming.internal.stateStore.partitions", PARTITIONS)
#: Spark's error condition where a pipeline's function asks a DataFrame of the pipeline for its schema.
NO_ANALYSIS = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
#: Source node beside the task, whose name has no dot.
SOURCE = "rows.all"
#: Column with the time at which a micro-batch was planned.
PLANNED = "_riot_ops_planned"
#: Stream of rows that an earlier task has rejected; no node can have that name.
PASSED_THROUGH = "_rejected"


def transform(
    task: Operator,
    df: DataFrame,
    *,
    on_error: Literal["column", "drop"] = "column",
    order: Literal["auto", "arrival", "event_time"] = "auto",
    partitions: int | None = None,
    buffering: Buffering | str | None = None,
    streaming: bool | None = None,
) -> DataFrame:
    """Apply a task to a batch or streaming DataFrame.

    A stateless task runs in one ``mapInArrow`` pass. A keyed task runs over packed blocks: rows are
    packed per bucket of keys, cross one shuffle, and whole buckets are processed at once.

    Parameters
    ----------
    on_error : "column" or "drop", default "column"
        A rejected row comes out with a JSON text (task, reason, message, raw record) in the column
        ``_error`` and nulls elsewhere; or it is dropped, counted and logged as a warning. Rows that an
        earlier transform rejected bypass the task: they come out unchanged, or are dropped.
    order : "auto", "arrival" or "event_time"
        Order of a key's rows within a micro-batch: by ``seq`` (where there is none, by partition
        and place), or by ``event_time`` first. "auto": by event time if the DataFrame has it and
        has no ``seq``.
    partitions : int, optional
        Buckets of keys; by default ``spark.sql.shuffle.partitions``, and in a streaming query that continues, the
        number that it began with.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        Size and compression of the packed blocks; see :class:`riot_ops.Buffering`.
    streaming : bool, optional
        Whether the DataFrame is a streaming one. Needed in a function of a declarative pipeline, where the DataFrame
        must not be asked, and where its schema must come from ``df.to(schema)``.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> rows = [(0, "a", 1.0), (1, "b", 9.0), (2, "a", 3.0)]
    >>> df = spark.createDataFrame(rows, "seq long, device string, value double")
    >>> means = transform(t.MovingAverage(by="device", window=2), df, on_error="drop")
    >>> means.select("device", "value").collect()
    [Row(device='a', value=2.0)]
    """
    check_transform_options(on_error, order, partitions)
    buffering = as_buffering(buffering)
    schema, streaming = inspect_frame(df, streaming)
    check_session(df.sparkSession, keeps_state=streaming and isinstance(task, KeyedOperator))
    result = result_schema(task, schema, on_error == "column")
    if not isinstance(task, KeyedOperator):
        return map_batches(df, _stateless(task, result), from_arrow_schema(result))
    flow = Graph(task.name())
    flow.add_node(source_node(SOURCE, drop_error_column(schema)))
    flow.add_node(Node(task.name(), "task", task))
    flow.add_node(Node("out", "sink"))
    flow.connect(SOURCE, task.name())
    flow.connect(task.name(), "out")
    unnumbered = set() if "seq" in schema.names else {SOURCE}
    chain = StageChain(plan(flow), ORDERS[resolve_order(flow, unnumbered, order)], partitions, buffering)
    return unpack_stream(chain.apply({SOURCE: df}, streaming), task.name(), result)


def inspect_frame(df: DataFrame, streaming: bool | None) -> tuple[pa.Schema, bool]:
    """Return the schema of a DataFrame and whether it is a streaming one; checks its session first."""
    if not hasattr(df, "sparkSession"):
        raise ConfigError(
            "transform takes a pandas or Polars frame, an Arrow table or record batch, or a Spark DataFrame, got "
            f"{value_text(df)}{'; call its method collect() before' if hasattr(df, 'collect') else ''}"
        )
    check_session(df.sparkSession, keeps_state=False)
    try:
        schema = to_arrow_schema(df.schema)
        return schema, bool(df.isStreaming) if streaming is None else streaming
    except PySparkException as error:
        if error.getCondition() != NO_ANALYSIS:
            raise
        raise ConfigError(
            "in a function of a declarative pipeline a DataFrame may not be asked for its fields, nor whether it is a "
            "stream: give df.to(schema) and streaming=True (or False)"
        ) from None


def resolve_order(flow: Graph, unnumbered: Set[str], order: Order) -> Literal["arrival", "event_time"]:
    """Resolve ``order="auto"``: "event_time" if records of a source without ``seq`` have an event time anywhere.

    A parser may be what writes it. ``unnumbered`` are the sources without ``seq``.
    """
    if order != "auto":
        return order
    schemas = flow.schemas()
    reached = set(unnumbered)
    for node in flow.topological_order():
        if any(edge.source in reached for edge in flow.inputs(node.id)):
            reached.add(node.id)
    kinds = [schemas[id].field("event_time").type for id in reached if "event_time" in schemas.get(id, NO_FIELDS).names]
    return "event_time" if any(map(pa.types.is_timestamp, kinds)) else "arrival"


def default_fuse(partitions: int) -> Literal["exact", "coarse"]:
    """Resolve ``fuse="auto"``: on few partitions one shuffle less saves more than an uneven spread of keys costs."""
    return "coarse" if partitions <= FEW_PARTITIONS else "exact"


# -- the stages of a plan ----------------------------------------------------------------------------


@dataclass(frozen=True)
class StageChain:
    """The stages of a plan over DataFrames: stage 0 in one pass over the rows, each later one after a shuffle.

    Parameters
    ----------
    plan : Plan
    order : tuple of str
        Fields that order the rows of a key.
    partitions : int or None
        Buckets of keys. None: the shuffle partitions of the session; a streaming query that continues keeps those that
        it began with.
    buffering : Buffering
        For the packed blocks.
    owner : dict
        What must agree, besides the tasks, for a checkpoint to be continued.
    notes : Manifest, optional
        What a changed dataflow must know to continue from the checkpoint.
    """

    plan: Plan
    order: tuple[str, ...]
    partitions: int | None
    buffering: Buffering
    owner: dict[str, Any] = field(default_factory=dict)
    notes: Manifest | None = None

    def query_owner(self) -> dict[str, Any]:
        """Return what must agree, in the state of each stage."""
        fixed = {} if self.partitions is None else {"partitions": self.partitions}
        return {"the query": {**fixed, "order": self.order[0]}, **self.owner}

    def apply(self, sources: Mapping[str, DataFrame], streaming: bool) -> DataFrame:
        """Return the records for sinks as packed blocks; those of ``PASSED_THROUGH`` are rows with an ``_error``."""
        spark = next(iter(sources.values())).sparkSession
        partitions = self.partitions or default_partitions(spark)
        labels: Labels = assign_labels(self.plan, partitions)
        if streaming and self.partitions is None:
            labels = QueryLabels(self.plan, partitions)
        buffering = fit_buffering(self.buffering, spark)
        if any(ERROR_COLUMN in df.columns for df in sources.values()):
            self.plan.stages[0].outputs.add(PASSED_THROUGH)
            self.plan.sinks.add(PASSED_THROUGH)
        blocks = from_arrow_schema(BLOCKS)
        packed = None
        for name, df in sources.items():
            pack = pack_stage_zero(self.plan, name, labels, self.order, buffering)
            rows = map_batches(df, _with_owner_blocks(pack, list(labels)) if streaming else pack, blocks)
            packed = rows if packed is None else packed.union(rows)
        assert packed is not None
        run, owner = uuid.uuid4().hex, self.query_owner()
        if streaming and self.plan.shuffles and is_connect(spark):
            require(STATE_OVER_CONNECT, spark)
        for number in range(1, len(self.plan.shuffles) + 1):
            grouped = packed.groupBy("bucket")
            if streaming:
                processor = StageProcessor(
                    self.plan, number, labels, run, self.order, buffering, owner=owner, notes=self.notes
                )
                with stateful_workers(packed.sparkSession):
                    packed = grouped.transformWithStateInPandas(
                        pickled_processor(processor), outputStructType=blocks, outputMode="append", timeMode="None"
                    ).to(blocks)  # gives Spark Connect the fields without a question to the server
            else:
                whole = _whole_bucket(self.plan, number, labels, self.order, buffering)
                packed = grouped.applyInArrow(whole, blocks)
        return packed


def _with_owner_blocks(pack: Pack, stages: list[int]) -> Pack:
    """Wrap ``pack``: if it yields any blocks, add one for each stage by which that checks the owner of its state."""

    def with_owners(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        anything = False
        for blocks in pack(batches):
            anything = True
            yield blocks
        if anything and stages:
            yield blocks_to_batch([Block(stage, OWNER_BUCKET, SOURCE_END, 0, 0.0, 0.0, b"") for stage in stages])

    return with_owners


def assign_labels(stages: Plan, partitions: int) -> dict[int, list[int]]:
    """Return the bucket labels of each stage after a shuffle; stages that share a shuffle have different labels."""
    found: dict[int, list[int]] = {}
    for together in stages.shuffles:
        sizes = [min(s.parallelism or partitions, partitions) if s.partition else 1 for s in together]
        labels = iter(bucket_labels(sum(sizes), partitions))
        found |= {s.index: list(itertools.islice(labels, size)) for s, size in zip(together, sizes, strict=True)}
    return found


def chain_stages(spark: SparkSession, frame: DataFrame, processors: Sequence[StageProcessor]) -> DataFrame:
    """Chain the stages with state after the blocks of the sources."""
    for processor in processors:
        with stateful_workers(spark):
            frame = frame.groupBy("bucket").transformWithStateInPandas(
                pickled_processor(processor), outputStructType=BLOCKS_DDL, outputMode="append", timeMode="None"
            )
    return frame


class QueryLabels(Mapping[int, list[int]]):
    """The bucket labels for the number of shuffle partitions of the query that runs.

    A continued query has its original number, even if that of the session has changed. Spark hands the settings
    of the query to its tasks; elsewhere the number is ``partitions``.
    """

    def __init__(self, stages: Plan, partitions: int) -> None:
        self._stages = stages
        self._partitions = partitions
        self._found: dict[int, dict[int, list[int]]] = {}

    def _labels(self) -> dict[int, list[int]]:
        context = TaskContext.get()
        settings = [] if context is None else [context.getLocalProperty(name) or "" for name in QUERY_PARTITIONS]
        partitions = next((int(setting) for setting in settings if setting.isdecimal()), self._partitions)
        if partitions not in self._found:
            self._found[partitions] = assign_labels(self._stages, partitions)
        return self._found[partitions]

    def __getitem__(self, stage: int) -> list[int]:
        return self._labels()[stage]

    def __iter__(self) -> Iterator[int]:
        return iter(self._labels())

    def __len__(self) -> int:
        return len(self._labels())


def _whole_bucket(
    stages: Plan, number: int, labels: Labels, order: tuple[str, ...], buffering: Buffering
) -> Callable[[pa.Table], pa.Table]:
    """Process all blocks of a bucket of a batch DataFrame at once; no state is kept."""

    def process(table: pa.Table) -> pa.Table:
        bucket = table.column("bucket")[0].as_py()
        indices = {stage.index for stage in stages.shuffles[number - 1]}
        received = read_blocks(table)
        here = [block for block in received if block.stage in indices]
        blocks = [block for block in received if block.stage not in indices]
        if here:
            stage = stages.stages[here[0].stage]
            engine = Engine(stage.steps, stage.outputs, stage.entries, order)
            packer = Packer(stages, stage.index, labels, buffering, bucket)
            packer.stamp(0.0, 0.0)
            read = records_by_stream(here)
            flushed = {s.removeprefix(FLUSHED_PREFIX): read.pop(s) for s in list(read) if s.startswith(FLUSHED_PREFIX)}
            blocks += packer.add(engine.process(_joined(read)))
            packer.flushing = True
            blocks += packer.add(engine.process(_joined(flushed), flush=True))
            blocks += packer.close()
        return pa.Table.from_batches([blocks_to_batch(blocks)])

    return process


def _joined(streams: Mapping[str, list[pa.RecordBatch]]) -> dict[str, list[pa.RecordBatch]]:
    return {stream: [concatenate(batches)] for stream, batches in streams.items()}


def pack_stage_zero(
    stages: Plan,
    stream: str,
    labels: Labels,
    order: tuple[str, ...],
    buffering: Buffering,
    sink_routes: SinkRoutes | None = None,
) -> Pack:
    """Return the function that runs stage 0 over the rows of a DataFrame and packs the result."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        writer = (
            sink_routes.writer(0, context.partitionId()) if sink_routes is not None and context is not None else None
        )
        packer = Packer(stages, 0, labels, buffering, writer=writer)
        rows = with_seq(_stamped(batches, packer))
        return run_stage_zero(stages, _split_rejected(stream, rows), order, packer)

    return pack


def with_planned_time(df: DataFrame) -> DataFrame:
    """Return the DataFrame with the time at which Spark planned the micro-batch, which :func:`pack_stage_zero` takes.

    A task that computes a part again must give the same bytes, so it may not read the clock.
    """
    return df.withColumn(PLANNED, current_timestamp())


def _stamped(batches: Iterable[pa.RecordBatch], packer: Packer) -> Iterator[pa.RecordBatch]:
    """Yield the rows without the time at which they were planned, which the packer gets."""
    for batch in batches:
        at = batch.schema.get_field_index(PLANNED)
        if at >= 0 and batch.num_rows:
            planned_us = float(int_column(batch.column(at).slice(0, 1))[0])
            packer.stamp(planned_us, planned_us)
        yield batch if at < 0 else batch.remove_column(at)


def _split_rejected(stream: str, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, list[pa.RecordBatch]]]:
    """Yield the rows of a source, apart from those that a task has rejected, which bypass all tasks."""
    errors = RejectedRecords(stream)
    for batch in batches:
        if ERROR_COLUMN not in batch.schema.names:
            yield {stream: [batch]}
        else:
            yield {
                stream: [AcceptedFilter().apply(batch, errors)],
                PASSED_THROUGH: [RejectedFilter().apply(batch, errors)],
            }


def unpack_stream(packed: DataFrame, stream: str, result: pa.Schema) -> DataFrame:
    """Unpack the rows of a stream from packed blocks, with the rejected ones."""
    return packed.mapInArrow(_unpack(stream, result), from_arrow_schema(result))


def _unpack(step: str, result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def unpack(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for blocks in rows:
            for stream, payload in zip(blocks.column("stream").to_pylist(), blocks.column("payload"), strict=True):
                for batch in decode(payload.as_buffer()):
                    if stream == step:
                        yield from accepted_rows(batch, result)
                    elif stream == PASSED_THROUGH:
                        yield from passed_through(batch, result)
                    else:
                        yield from rejected_rows([batch], result)

    return unpack


def _stateless(task: Operator, result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, StatelessOperator)
        errors = RejectedRecords(task.name())
        for batch in with_seq(batches):
            yield from apply_to_accepted(partial(apply_stateless, task), batch, errors, result)

    return apply


# -- rows --------------------------------------------------------------------------------------------


def with_seq(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a good size with times in UTC and a ``seq`` (partition and row), if there is none."""
    context = TaskContext.get()
    place = (context.partitionId() if context is not None else 0) << 40
    for batch in map(to_utc, _coalesce(batches)):
        if "seq" not in batch.schema.names:
            numbers = pa.array(np.arange(place, place + batch.num_rows))
            place += batch.num_rows
            columns = [numbers, *batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, names=["seq", *batch.schema.names])
        yield batch


def to_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert timestamps, which Spark labels with the session's time zone, to UTC."""
    for i, f in enumerate(batch.schema):
        if pa.types.is_timestamp(f.type) and f.type.tz not in (None, "UTC"):
            utc = f.with_type(pa.timestamp(f.type.unit, tz="UTC"))
            batch = batch.set_column(i, utc, batch.column(i).cast(utc.type))
    return batch


def _coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, up to a number of rows and bytes: the same rows give the same batches."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield concatenate(held)
            held, rows, size = [], 0, 0
    if held:
        yield concatenate(held)
