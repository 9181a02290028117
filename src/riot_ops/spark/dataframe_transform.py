"""Tasks on a user's own Spark DataFrames: the fast path for any task and any DataFrame, batch or streaming."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator, StatelessOperator
from riot_ops.core.payload import decode
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node, source_node
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME, merged
from riot_ops.runtime.engine import Engine
from riot_ops.spark.blocks import (
    BLOCKS,
    LEFT_OVER,
    Block,
    Packer,
    blocks_of,
    blocks_to_batch,
    bucket_labels,
    by_stream,
    parted,
)
from riot_ops.spark.error_column import (
    ERROR_COLUMN,
    Accepted,
    Rejected,
    accepted,
    apply_around,
    newly_rejected,
    passed_on,
    result_schema,
    without_errors,
)
from riot_ops.spark.pickling import packed_processor
from riot_ops.spark.session import fitting, usual_partitions, workers_apart
from riot_ops.spark.session_check import check_session
from riot_ops.spark.sink import Outlet
from riot_ops.spark.stage import FLUSH, OWNERS, StageProcessor, stage_zero

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "PASSED_ON",
    "Chain",
    "check_options",
    "in_utc",
    "labels_of",
    "looked_at",
    "numbered",
    "order_of",
    "pack_stage_zero",
    "partitions_of",
    "transform",
    "unpacked",
    "usual_fuse",
]

#: A function for ``mapInArrow``.
Pack = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

BATCH_ROWS = 65_536
BATCH_SECONDS = 0.5
FEW_PARTITIONS = 4
#: What Spark says where a pipeline's function asks a DataFrame of the pipeline for something.
NO_ANALYSIS = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
#: A source beside the one task, whose name knows no dots.
SOURCE = "rows.all"
#: Rows that a task has rejected already; no node can have that name.
PASSED_ON = "_rejected"


def transform(
    task: Operator,
    df: DataFrame,
    *,
    errors: Literal["column", "drop"] = "column",
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
    errors : "column" or "drop", default "column"
        A rejected row comes out with a JSON text (task, reason, message, raw record) in the column
        ``_error`` and nulls elsewhere; or it is dropped, counted and logged as a warning. Rows that a
        transform before this one rejected go around the task: they come out as they are, or are dropped.
    order : "auto", "arrival" or "event_time"
        Order of a key's rows within a micro-batch: by ``seq`` (where there is none, by partition
        and place), or by ``event_time`` first. "auto": by event time if the DataFrame has it and
        has no ``seq``.
    partitions : int, optional
        Buckets of keys; by default ``spark.sql.shuffle.partitions``.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        Size and compression of the packed blocks; see :class:`riot_ops.Buffering`.
    streaming : bool, optional
        Whether the DataFrame is a streaming one, where it may not be asked: in a function of a declarative pipeline,
        which also has its fields from ``df.to(schema)`` alone.
    """
    check_options(errors, order, partitions)
    buffering = as_buffering(buffering)
    schema, streaming = looked_at(df, streaming)
    check_session(df.sparkSession, keeps_state=streaming and isinstance(task, KeyedOperator))
    result = result_schema(task, schema, errors == "column")
    if not isinstance(task, KeyedOperator):
        return df.mapInArrow(_stateless(task, result), from_arrow_schema(result))
    flow = Graph(task.name())
    flow.place(source_node(SOURCE, without_errors(schema)))
    flow.place(Node(task.name(), "task", task))
    flow.place(Node("out", "sink"))
    flow.connect(SOURCE, task.name())
    flow.connect(task.name(), "out")
    chain = Chain(plan(flow), order_of([schema], order), partitions_of(df, partitions), buffering)
    return unpacked(chain.over({SOURCE: df}, streaming), task.name(), result)


def looked_at(df: DataFrame, streaming: bool | None) -> tuple[pa.Schema, bool]:
    """The fields of a DataFrame, and whether it is a streaming one; of a stopped session it would tell nothing."""
    check_session(df.sparkSession, keeps_state=False)
    try:
        schema = to_arrow_schema(df.schema, timezone="UTC")
        return schema, bool(df.isStreaming) if streaming is None else streaming
    except PySparkException as error:
        if error.getCondition() != NO_ANALYSIS:
            raise
        raise ConfigError(
            "in a function of a declarative pipeline a DataFrame may not be asked for its fields, nor whether it is a "
            "stream: give df.to(schema) and streaming=True (or False)"
        ) from None


def check_options(errors: str, order: str, partitions: int | None) -> None:
    """Refuse what no function on DataFrames takes."""
    if errors not in ("column", "drop"):
        raise ConfigError(f"errors must be 'column' or 'drop', got {errors!r}")
    if order not in ("auto", "arrival", "event_time"):
        raise ConfigError(f"order must be 'auto', 'arrival' or 'event_time', got {order!r}")
    if partitions is not None and partitions < 1:
        raise ConfigError(f"partitions must be >= 1, got {partitions}")


def order_of(schemas: Iterable[pa.Schema], order: str) -> tuple[str, ...]:
    """The fields that order rows; by themselves, by event time where a DataFrame has it and no ``seq``."""
    if order == "auto":
        by_time = any("event_time" in s.names and "seq" not in s.names for s in schemas)
        return EVENT_TIME if by_time else ARRIVAL
    return ARRIVAL if order == "arrival" else EVENT_TIME


def partitions_of(df: DataFrame, partitions: int | None) -> int:
    """The number of buckets of keys, by default that of the session's shuffles."""
    return partitions or usual_partitions(df.sparkSession)


def usual_fuse(partitions: int) -> Literal["exact", "coarse"]:
    """What ``fuse="auto"`` means: a shuffle less gains more on few partitions than an uneven spread of keys loses."""
    return "coarse" if partitions <= FEW_PARTITIONS else "exact"


# -- the stages of a plan ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """The stages of a plan over DataFrames: stage 0 in a pass over the rows, each later one behind a shuffle.

    Parameters
    ----------
    plan : Plan
    order : tuple of str
        Fields that order the rows of a key.
    partitions : int
        Buckets of keys.
    buffering : Buffering
        Of the packed blocks.
    owner : dict
        What must agree, besides the tasks, for a checkpoint to be continued.
    """

    plan: Plan
    order: tuple[str, ...]
    partitions: int
    buffering: Buffering
    owner: dict[str, Any] = field(default_factory=dict)

    def over(self, sources: Mapping[str, DataFrame], streaming: bool) -> DataFrame:
        """What ends in a sink, as packed blocks; rows of ``PASSED_ON`` are those with a text in ``_error``."""
        labels = labels_of(self.plan, self.partitions)
        buffering = fitting(self.buffering, next(iter(sources.values())).sparkSession)
        if any(ERROR_COLUMN in df.columns for df in sources.values()):
            self.plan.stages[0].outputs.add(PASSED_ON)
            self.plan.sinks.add(PASSED_ON)
        blocks = from_arrow_schema(BLOCKS)
        packed = None
        for name, df in sources.items():
            pack = pack_stage_zero(self.plan, name, labels, self.order, buffering)
            rows = df.mapInArrow(_owned(pack, list(labels)) if streaming else pack, blocks)
            packed = rows if packed is None else packed.union(rows)
        assert packed is not None
        run = uuid.uuid4().hex
        owner = {"the query": {"partitions": self.partitions, "order": self.order[0]}, **self.owner}
        for number in range(1, len(self.plan.shuffles) + 1):
            grouped = packed.groupBy("bucket")
            if streaming:
                processor = StageProcessor(self.plan, number, labels, run, self.order, buffering, owner=owner)
                with workers_apart(packed.sparkSession):
                    packed = grouped.transformWithStateInPandas(
                        packed_processor(processor), outputStructType=blocks, outputMode="append", timeMode="None"
                    ).to(blocks)  # by which Spark Connect knows its fields, without a question to the server
            else:
                whole = _whole_bucket(self.plan, number, labels, self.order, buffering)
                packed = grouped.applyInArrow(whole, blocks)
        return packed


def _owned(pack: Pack, stages: list[int]) -> Pack:
    """The blocks, and where there are any one more for each stage, at which it looks whose its state is."""

    def owned(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        anything = False
        for blocks in pack(batches):
            anything = True
            yield blocks
        if anything and stages:
            yield blocks_to_batch([Block(stage, OWNERS, FLUSH, 0, 0.0, 0.0, b"") for stage in stages])

    return owned


def labels_of(stages: Plan, partitions: int) -> dict[int, list[int]]:
    """The labels of the buckets of each stage behind a shuffle; those of stages side by side differ."""
    found: dict[int, list[int]] = {}
    for together in stages.shuffles:
        sizes = [min(s.parallelism or partitions, partitions) if s.partition else 1 for s in together]
        labels = iter(bucket_labels(sum(sizes), partitions))
        found |= {s.index: list(itertools.islice(labels, size)) for s, size in zip(together, sizes, strict=True)}
    return found


def _whole_bucket(
    stages: Plan, number: int, labels: dict[int, list[int]], order: tuple[str, ...], buffering: Buffering
) -> Callable[[pa.Table], pa.Table]:
    """All blocks of a bucket behind a shuffle of a bounded DataFrame at once; there is no state to keep."""

    def process(table: pa.Table) -> pa.Table:
        bucket = table.column("bucket")[0].as_py()
        here, blocks = parted(blocks_of(table), {stage.index for stage in stages.shuffles[number - 1]})
        if here:
            stage = stages.stages[here[0].stage]
            engine = Engine(stage.steps, stage.outputs, stage.entries, order)
            packer = Packer(stages, stage.index, labels, buffering, bucket)
            packer.stamp(0.0, 0.0)
            read = by_stream(here)
            late = {s.removeprefix(LEFT_OVER): read.pop(s) for s in list(read) if s.startswith(LEFT_OVER)}
            blocks += packer.add(engine.process(_joined(read)))
            packer.left_over = True
            blocks += packer.add(engine.process(_joined(late), flush=True))
            blocks += packer.close()
        return pa.Table.from_batches([blocks_to_batch(blocks)])

    return process


def _joined(streams: Mapping[str, list[pa.RecordBatch]]) -> dict[str, list[pa.RecordBatch]]:
    return {stream: [merged(batches)] for stream, batches in streams.items()}


def pack_stage_zero(
    stages: Plan,
    stream: str,
    labels: dict[int, list[int]],
    order: tuple[str, ...],
    buffering: Buffering,
    outlet: Outlet | None = None,
) -> Pack:
    """The function that runs stage 0 over the rows of a DataFrame and packs the result."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        writer = outlet.writer(0, context.partitionId()) if outlet is not None and context is not None else None
        packer = Packer(stages, 0, labels, buffering, writer=writer)
        now = time.time() * 1e6
        packer.stamp(now, now)
        return stage_zero(stages, _parted_rows(stream, numbered(batches)), order, packer)

    return pack


def _parted_rows(stream: str, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, list[pa.RecordBatch]]]:
    """The rows of a source, apart from those that a task has rejected, which go around all of them."""
    dead = DeadLetters(stream)
    for batch in batches:
        if ERROR_COLUMN not in batch.schema.names:
            yield {stream: [batch]}
        else:
            yield {stream: [Accepted().apply(batch, dead)], PASSED_ON: [Rejected().apply(batch, dead)]}


def unpacked(packed: DataFrame, stream: str, result: pa.Schema) -> DataFrame:
    """The rows of a stream from packed blocks, with those that were rejected."""
    return packed.mapInArrow(_unpack(stream, result), from_arrow_schema(result))


def _unpack(step: str, result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def unpack(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for blocks in rows:
            for stream, payload in zip(blocks.column("stream").to_pylist(), blocks.column("payload"), strict=True):
                for batch in decode(payload.as_buffer()):
                    if stream == step:
                        yield from accepted(batch, result)
                    elif stream == PASSED_ON:
                        yield from passed_on(batch, result)
                    else:
                        yield from newly_rejected([batch], result)

    return unpack


def _stateless(task: Operator, result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, StatelessOperator)
        dead = DeadLetters(task.name())
        for batch in numbered(batches):
            yield from apply_around(task.batches, batch, dead, result)

    return apply


# -- rows --------------------------------------------------------------------------------------------


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a good size, times in UTC, with a ``seq`` (partition and place) where there is none."""
    context = TaskContext.get()
    place = (context.partitionId() if context is not None else 0) << 40
    for batch in map(in_utc, _coalesced(batches)):
        if "seq" not in batch.schema.names:
            numbers = pa.array(np.arange(place, place + batch.num_rows))
            place += batch.num_rows
            columns = [numbers, *batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, names=["seq", *batch.schema.names])
        yield batch


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same points in time, which Spark labels with the time zone of its session."""
    for i, f in enumerate(batch.schema):
        if pa.types.is_timestamp(f.type) and f.type.tz not in (None, "UTC"):
            utc = f.with_type(pa.timestamp(f.type.unit, tz="UTC"))
            batch = batch.set_column(i, utc, batch.column(i).cast(utc.type))
    return batch


def _coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, up to a number of rows and for a bounded time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    since = time.monotonic()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS or time.monotonic() - since > BATCH_SECONDS:
            yield merged(held)
            held, rows, since = [], 0, time.monotonic()
    if held:
        yield merged(held)
