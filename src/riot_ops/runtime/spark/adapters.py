"""Tasks on a user's own Spark DataFrames: the fast path for any task and any DataFrame, batch or streaming."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator, StatelessOperator
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node, source_node
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.engine import ARRIVAL, EVENT_TIME, Engine, merged
from riot_ops.runtime.spark.blocks import (
    BLOCKS_DDL,
    Packer,
    blocks_of,
    blocks_to_batch,
    bucket_labels,
    by_stream,
    decode,
    parted,
)
from riot_ops.runtime.spark.check import check_session
from riot_ops.runtime.spark.rejected import (
    ERROR_COLUMN,
    Accepted,
    Rejected,
    accepted,
    apply_around,
    newly_rejected,
    passed_on,
    result_schema,
)
from riot_ops.runtime.spark.sink import Outlet
from riot_ops.runtime.spark.stage import StageProcessor, stage_zero

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["in_utc", "numbered", "pack_stage_zero", "transform"]

BATCH_ROWS = 65_536
BATCH_SECONDS = 0.5
# streams beside the one that has the task's name, which knows no dots
SOURCE = "rows.all"
#: Rows that no task has rejected yet, and those that one has.
ACCEPTED = "rows.accepted"
PASSED_ON = "rows.rejected"


def transform(
    task: Operator,
    df: DataFrame,
    *,
    errors: Literal["column", "drop"] = "column",
    order: Literal["auto", "arrival", "event_time"] = "auto",
    partitions: int | None = None,
    compression: str | None = "lz4",
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
    compression : "lz4", "zstd" or None, default "lz4"
        Codec of the packed blocks.
    """
    if errors not in ("column", "drop"):
        raise ConfigError(f"errors must be 'column' or 'drop', got {errors!r}")
    if order not in ("auto", "arrival", "event_time"):
        raise ConfigError(f"order must be 'auto', 'arrival' or 'event_time', got {order!r}")
    if compression not in (None, "lz4", "zstd"):
        raise ConfigError(f"compression must be None, 'lz4' or 'zstd', got {compression!r}")
    if partitions is not None and partitions < 1:
        raise ConfigError(f"partitions must be >= 1, got {partitions}")
    check_session(df.sparkSession, keeps_state=df.isStreaming and isinstance(task, KeyedOperator))
    schema = to_arrow_schema(df.schema, timezone="UTC")
    result = result_schema(task, schema, errors == "column")
    if not isinstance(task, KeyedOperator):
        return df.mapInArrow(_stateless(task, result), from_arrow_schema(result))
    if order == "auto":
        order = "event_time" if "event_time" in schema.names and "seq" not in schema.names else "arrival"
    spark = df.sparkSession
    partitions = partitions or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return _keyed(task, df, schema, result, ARRIVAL if order == "arrival" else EVENT_TIME, partitions, compression)


def _keyed(
    task: KeyedOperator,
    df: DataFrame,
    schema: pa.Schema,
    result: pa.Schema,
    order: tuple[str, ...],
    partitions: int,
    compression: str | None,
) -> DataFrame:
    steps: list[tuple[str, str, Operator]] = [(SOURCE, task.name(), task)]
    if ERROR_COLUMN in schema.names:
        steps = [(SOURCE, PASSED_ON, Rejected()), (SOURCE, ACCEPTED, Accepted()), (ACCEPTED, task.name(), task)]
    flow = Graph(task.name())
    flow.place(source_node(SOURCE, schema))
    flow.place(Node("out", "sink"))
    for source, name, operator in steps:
        flow.place(Node(name, "task", operator))
        flow.connect(source, name)
    for name in (task.name(), PASSED_ON):
        if name in flow.nodes:
            flow.connect(name, "out")
    stages = plan(flow)
    labels = {1: bucket_labels(partitions if task.by else 1, partitions)}
    packed = df.mapInArrow(pack_stage_zero(stages, SOURCE, labels, order, compression), BLOCKS_DDL)
    if df.isStreaming:
        processor = StageProcessor(stages, 1, labels, uuid.uuid4().hex, order, compression)
        done = packed.groupBy("bucket").transformWithStateInPandas(
            processor, outputStructType=BLOCKS_DDL, outputMode="append", timeMode="None"
        )
    else:
        done = packed.groupBy("bucket").applyInArrow(_whole_bucket(stages, labels, order), BLOCKS_DDL)
    return done.mapInArrow(_unpack(task.name(), result), from_arrow_schema(result))


def _whole_bucket(stages: Plan, labels: dict[int, list[int]], order: tuple[str, ...]) -> Callable[[pa.Table], pa.Table]:
    """All blocks of a bucket of a bounded DataFrame at once; there is no state to keep."""

    def process(table: pa.Table) -> pa.Table:
        stage = stages.stages[1]
        engine = Engine(stage.steps, stage.outputs, stage.entries, order)
        packer = Packer(stages, 1, labels, None, table.column("bucket")[0].as_py())
        packer.stamp(0.0, 0.0)
        here, passing = parted(blocks_of(table), stage.index)
        inputs = {stream: [merged(batches)] for stream, batches in by_stream(here).items()}
        blocks = [*passing, *packer.add(engine.process(inputs, flush=True)), *packer.close()]
        return pa.Table.from_batches([blocks_to_batch(blocks)])

    return process


def pack_stage_zero(
    stages: Plan,
    stream: str,
    labels: dict[int, list[int]],
    order: tuple[str, ...],
    compression: str | None,
    outlet: Outlet | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs stage 0 over the rows of a DataFrame and packs the result."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        writer = outlet.writer(0, context.partitionId()) if outlet is not None and context is not None else None
        packer = Packer(stages, 0, labels, compression, writer=writer)
        now = time.time() * 1e6
        packer.stamp(now, now)
        return stage_zero(stages, stream, numbered(batches), order, packer)

    return pack


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
