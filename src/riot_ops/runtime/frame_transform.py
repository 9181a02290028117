"""Tasks on pandas, Polars and Arrow tables, in this process."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.core.checks import check_transform_options
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator
from riot_ops.core.order import is_ordinal
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import ERRORS
from riot_ops.ingest.step import ingest_batch
from riot_ops.ingest.tables import Numbering, single_batch, with_whole_seq
from riot_ops.kernels.arrays.arrow import concat_batches
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME, sort_rows
from riot_ops.runtime.error_column import (
    ERROR_COLUMN,
    AcceptedFilter,
    RejectedFilter,
    accepted_rows,
    passed_through,
    rejected_rows,
    result_schema,
)
from riot_ops.runtime.session import Session

__all__ = ["transform_frame"]


def transform_frame(
    task: Operator,
    frame: Any,
    *,
    on_error: Literal["column", "drop"] = "column",
    order: Literal["auto", "arrival", "event_time"] = "auto",
    partitions: int | None = None,
    buffering: Buffering | str | None = None,
    streaming: bool | None = None,
) -> Any:
    """Apply a task to a pandas or Polars frame or an Arrow table, and return the same kind of frame.

    The result has the rows that ``riot_ops.spark.transform`` returns for a batch DataFrame, in the order in which the
    task emits them, then the rejected rows. It has no ``seq`` and no ordinals that the frame did not have. The index of
    a pandas frame is not kept, unless it has a name: it is a column then.

    Parameters
    ----------
    on_error, order
        See :func:`riot_ops.spark.transform`.
    partitions, buffering
        For Spark; they do not change the result.
    streaming : bool, optional
        Must not be true: a frame in memory is a batch.
    """
    check_transform_options(on_error, order, partitions)
    as_buffering(buffering)
    if streaming:
        raise ConfigError(f"streaming must not be True for a {type(frame).__name__}, which is a batch")
    errors = RejectedRecords(task.name())
    records = single_batch(frame)
    numbered = records.schema.names.count("seq") == 1  # two are refused below
    records = ingest_batch(with_whole_seq(records) if numbered else records, errors)
    result = result_schema(task, records.schema, on_error == "column")
    names = set(records.schema.names)
    result = pa.schema([f for f in result if f.name in names or not is_ordinal(f.name)])
    passed = []
    if ERROR_COLUMN in records.schema.names:
        passed = list(passed_through(RejectedFilter().apply(records, errors), result))
        records = AcceptedFilter().apply(records, errors)
    by_time = order == "event_time" or (order == "auto" and not numbered and "event_time" in records.schema.names)
    if isinstance(task, KeyedOperator):
        if by_time:
            records = sort_rows(records, EVENT_TIME)
        elif numbered:
            records = sort_rows(records, ARRIVAL)
    if not numbered:
        records = Numbering()(records)
    session = Session(task, ordered=False)  # in the order that was asked for
    made = [session.push_batch(records), session.flush_batch()]
    accepted = [rows for batch in made if batch is not None for rows in accepted_rows(batch, result)]
    rejected = errors.take()
    if session.errors:
        rejected.append(pa.RecordBatch.from_pylist(session.errors, ERRORS))
    parts = [*accepted, *passed, *rejected_rows(rejected, result)]
    whole = concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], result)
    return _as_kind_of(frame, whole)


def _as_kind_of(frame: Any, batch: pa.RecordBatch) -> Any:
    if isinstance(frame, pa.RecordBatch):
        return batch
    table = pa.Table.from_batches([batch])
    library = type(frame).__module__.partition(".")[0]
    if library == "polars":
        import polars as pl

        return pl.from_arrow(table)
    return table.to_pandas() if library == "pandas" else table
