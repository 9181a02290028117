"""Tasks on a user's own Spark DataFrames.

``transform`` is the fast path for any task and any DataFrame, batch or streaming. The functions
behind ``task.map_in_arrow``, ``task.map_in_pandas`` and ``task.stateful_processor`` fit a task into
a pipeline that somebody else builds.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_ops.dataflow import Dataflow
from riot_ops.dead_letters import DeadLetters
from riot_ops.engine import ARRIVAL, EVENT_TIME, Engine, merged
from riot_ops.errors import ConfigError
from riot_ops.plan import Plan, plan
from riot_ops.runtime.spark.blocks import BLOCKS_DDL, Packer, blocks_to_batch, bucket_labels, decode
from riot_ops.runtime.spark.sink import Outlet
from riot_ops.runtime.spark.stage import StageProcessor, stage_zero
from riot_ops.state import KeyedState
from riot_ops.task import KeyedTask, StatelessTask, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "ERROR_COLUMN",
    "map_in_arrow",
    "map_in_pandas",
    "numbered",
    "pack_stage_zero",
    "stateful_processor",
    "transform",
]

#: Column of rejected rows in the result of :func:`transform`.
ERROR_COLUMN = "_error"

BATCH_ROWS = 65_536
BATCH_SECONDS = 0.5
STEP = "task"
SOURCE = "rows"

_log = logging.getLogger("riot_ops")


def transform(
    task: Task,
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
        A rejected row comes out with a JSON text (reason, message, raw record) in the column
        ``_error`` and nulls elsewhere; or it is dropped, counted and logged as a warning.
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
    schema = to_arrow_schema(df.schema, timezone="UTC")
    out = task.output_schema(schema)
    if "seq" not in schema.names and "seq" in out.names:
        out = out.remove(out.get_field_index("seq"))
    result = pa.schema([f.with_nullable(True) for f in out])
    if errors == "column":
        result = result.append(pa.field(ERROR_COLUMN, pa.string()))
    if not isinstance(task, KeyedTask):
        return df.mapInArrow(_stateless(task, result), from_arrow_schema(result))
    if order == "auto":
        order = "event_time" if "event_time" in schema.names and "seq" not in schema.names else "arrival"
    spark = df.sparkSession
    partitions = partitions or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return _keyed(task, df, schema, result, ARRIVAL if order == "arrival" else EVENT_TIME, partitions, compression)


def _keyed(
    task: KeyedTask,
    df: DataFrame,
    schema: pa.Schema,
    result: pa.Schema,
    order: tuple[str, ...],
    partitions: int,
    compression: str | None,
) -> DataFrame:
    flow = Dataflow(task.name())
    flow.sink("out", flow.source(SOURCE, schema=schema).to(task, id=STEP))
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
    return done.mapInArrow(_unpack(result), from_arrow_schema(result))


def _whole_bucket(stages: Plan, labels: dict[int, list[int]], order: tuple[str, ...]) -> Callable[[pa.Table], pa.Table]:
    """All blocks of a bucket of a bounded DataFrame at once; there is no state to keep."""

    def process(table: pa.Table) -> pa.Table:
        stage = stages.stages[1]
        engine = Engine(stage.steps, stage.outputs, stage.entries, order)
        packer = Packer(stages, 1, labels, None, table.column("bucket")[0].as_py())
        packer.stamp(0.0, 0.0)
        batches = [b for payload in table.column("payload") for b in decode(payload.as_buffer())]
        inputs = {SOURCE: [merged(batches)]} if batches else {}
        blocks = [*packer.add(engine.process(inputs, flush=True)), *packer.close()]
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


def _unpack(result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def unpack(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for blocks in rows:
            for stream, payload in zip(blocks.column("stream").to_pylist(), blocks.column("payload"), strict=True):
                for batch in decode(payload.as_buffer()):
                    yield from _results(batch if stream == STEP else None, [] if stream == STEP else [batch], result)

    return unpack


def _results(good: pa.RecordBatch | None, bad: list[pa.RecordBatch], result: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the result's schema from processed rows and rejected ones."""
    if good is not None and good.num_rows:
        n = good.num_rows
        yield pa.RecordBatch.from_arrays(
            [good.column(f.name).cast(f.type) if f.name in good.schema.names else pa.nulls(n, f.type) for f in result],
            schema=result,
        )
    for errors in bad:
        if ERROR_COLUMN not in result.names:
            _log.warning(
                "%s rejected %d records, first: %s",
                errors.column("task")[0],
                errors.num_rows,
                errors.column("message")[0],
            )
            continue
        texts = [
            json.dumps({k: row[k] for k in ("reason", "message", "raw")}, ensure_ascii=False)
            for row in errors.to_pylist()
        ]
        columns = []
        for f in result:
            if f.name == ERROR_COLUMN:
                columns.append(pa.array(texts, pa.string()))
            elif f.name in ("seq", "event_time"):
                columns.append(errors.column(f.name).cast(f.type))
            else:
                columns.append(pa.nulls(errors.num_rows, f.type))
        yield pa.RecordBatch.from_arrays(columns, schema=result)


def _stateless(task: Task, result: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, StatelessTask)
        dead = DeadLetters(task.name())
        for batch in numbered(batches):
            yield from _results(task.apply(batch, dead), dead.take(), result)

    return apply


# -- functions for other people's pipelines -----------------------------------------------------------


def map_in_arrow(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A stateless task as a function for ``DataFrame.mapInArrow``; rejected rows are logged and dropped."""
    _only_stateless(task, "map_in_arrow")

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, StatelessTask)
        dead = DeadLetters(task.name())
        for batch in batches:
            out = task.apply(batch, dead)
            yield from _results(out, dead.take(), out.schema)

    return apply


def map_in_pandas(task: Task) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A stateless task as a function for ``DataFrame.mapInPandas``; rejected rows are logged and dropped."""
    apply = map_in_arrow(task)

    def frames(given: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in apply(pa.RecordBatch.from_pandas(f, preserve_index=False) for f in given):
            yield batch.to_pandas()

    return frames


def stateful_processor(task: Task, schema: pa.Schema) -> StatefulProcessor:
    """A keyed task as a ``StatefulProcessor`` for a DataFrame grouped by the task's key.

    Group the DataFrame by ``task.by``; Spark then calls the processor once per key. Rows of a key are
    processed in the order of ``seq`` or ``event_time`` where they have it. For throughput use
    ``transform``, which does not go key by key.
    """
    if not isinstance(task, KeyedTask):
        raise ConfigError(f"{task.name()} has no state; use map_in_arrow or map_in_pandas")
    return _KeyProcessor(task, schema)


class _KeyProcessor(StatefulProcessor):
    def __init__(self, task: KeyedTask, schema: pa.Schema) -> None:
        self._task = task
        self._schema = schema
        self._out = task.output_schema(schema)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._stored = handle.getValueState("state", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        from riot_ops.engine import in_order

        state = KeyedState(self._task)
        stored = self._stored.get()
        if stored is not None:
            state.restore(bytes(stored[0]))
        dead = DeadLetters(self._task.name())
        batches = [pa.RecordBatch.from_pandas(f, schema=self._schema, preserve_index=False) for f in rows]
        out = state.update(in_order(merged(batches), EVENT_TIME), dead)
        self._stored.update((state.snapshot(),))
        for good in _results(out, dead.take(), self._out):
            yield good.to_pandas()

    def close(self) -> None:
        pass


def _only_stateless(task: Task, face: str) -> None:
    if not isinstance(task, StatelessTask):
        raise ConfigError(f"{task.name()} keeps state, which {face} cannot; use transform or stateful_processor")


# -- rows --------------------------------------------------------------------------------------------


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a good size, with a ``seq`` (partition and place) where there is none."""
    context = TaskContext.get()
    place = (context.partitionId() if context is not None else 0) << 40
    for batch in _coalesced(batches):
        if "seq" not in batch.schema.names:
            numbers = pa.array(np.arange(place, place + batch.num_rows))
            place += batch.num_rows
            columns = [numbers, *batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, names=["seq", *batch.schema.names])
        yield batch


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
