"""Tasks as functions for a Spark pipeline that the user builds.

They implement ``task.map_in_arrow``, ``map_in_pandas``, ``arrow_udf``, ``stateful_processor`` and ``row_processor``. A
row that a task rejects is logged and dropped. If the rows have the column ``_error``, like those of ``transform``, its
text is put there, and rows that already have one bypass the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DataType, StructType

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator, StatelessOperator
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME, concatenate, sort_rows
from riot_ops.runtime.error_column import ERROR_COLUMN, apply_to_accepted, result_schema
from riot_ops.runtime.operator_calls import apply_stateless
from riot_ops.runtime.state import KeyedState
from riot_ops.spark.data_sinks import rows_to_batches
from riot_ops.spark.dataframe_transform import to_utc
from riot_ops.spark.features import require, to_arrow_schema

__all__ = ["arrow_function", "arrow_udf", "map_in_arrow", "map_in_pandas", "row_processor", "stateful_processor"]

ZONE = "spark.sql.session.timeZone"
UTC = {"UTC", "Etc/UTC", "Zulu", "Z", "GMT", "+00:00"}


def map_in_arrow(task: Operator) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a stateless task as a function for ``DataFrame.mapInArrow``."""
    if not isinstance(task, StatelessOperator):
        raise ConfigError(
            f"{task.name()} keeps state, which a function over batches cannot; use transform or stateful_processor"
        )

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        errors = RejectedRecords(task.name())
        checked = None
        for batch in map(to_utc, batches):
            if batch.schema != checked:
                result_schema(task, batch.schema, errors=False)  # raises for a field that is missing or of another type
                checked = batch.schema
            yield from apply_to_accepted(partial(apply_stateless, task), batch, errors)

    return apply


def map_in_pandas(task: Operator) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a stateless task as a function for ``DataFrame.mapInPandas``.

    pandas gets times without a zone, in the session's time zone.
    """
    apply = map_in_arrow(task)

    def frames(given: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in apply(pa.RecordBatch.from_pandas(f, preserve_index=False) for f in given):
            yield batch.to_pandas()

    return frames


def arrow_udf(task: Operator, schema: pa.Schema | StructType | str) -> Any:
    """Return a stateless task as a scalar Arrow UDF over a struct of the fields; Spark 4.1 and later.

    ``f.struct(...)`` of the fields of ``schema`` becomes a struct of the task's result: null where the task drops the
    row, and with the reason in ``_error``, and null in all other fields, where it rejects it. Unlike ``mapInArrow`` a
    UDF keeps the other columns of the DataFrame beside it.

    Parameters
    ----------
    schema : pyarrow.Schema, StructType or DDL text
        Fields of the struct.
    """
    require("Arrow UDFs")
    from pyspark.sql import functions

    apply, result = arrow_function(task, _arrow_schema(schema))
    to_udf: Any = vars(functions)["arrow_udf"]  # which the stubs of some versions lack
    return to_udf(apply, from_arrow_schema(result))


def arrow_function(task: Operator, schema: pa.Schema) -> tuple[Callable[[pa.Array], pa.Array], pa.Schema]:
    """Return the function of :func:`arrow_udf`, from structs to as many structs, and the fields of its result."""
    if not isinstance(task, StatelessOperator):
        raise ConfigError(f"{task.name()} keeps state, which a UDF cannot; use transform or stateful_processor")
    if task.expands():
        raise ConfigError(f"{task.name()} makes several rows of one, which a UDF cannot; use map_in_arrow or transform")
    own = "seq" in schema.names
    places = schema if own else schema.append(pa.field("seq", pa.int64()))
    inner = result_schema(task, places, errors=True)
    result = inner if own else inner.remove(inner.get_field_index("seq"))

    def apply(given: pa.Array) -> pa.Array:
        batch = to_utc(pa.RecordBatch.from_struct_array(given)).select(schema.names).cast(schema)
        seq = batch.column("seq") if own else None
        numbers = pa.array(np.arange(batch.num_rows), pa.int64())
        batch = pa.RecordBatch.from_arrays(
            [numbers if n == "seq" else batch.column(n) for n in places.names], schema=places
        )
        marked = batch.append_column(ERROR_COLUMN, pa.nulls(batch.num_rows, pa.string()))
        errors = RejectedRecords(task.name())
        rows = list(apply_to_accepted(partial(apply_stateless, task), marked, errors, inner))
        done = pa.Table.from_batches(rows, inner).combine_chunks()
        # by the number of the row that caused it, as a filter drops rows and rejected ones come last
        taken = np.full(batch.num_rows, -1)
        taken[done.column("seq").to_numpy()] = np.arange(done.num_rows)
        there = pa.array(np.where(taken >= 0, taken, 0), pa.int64(), mask=taken < 0)
        found = done.take(there)
        columns = [seq if n == "seq" and seq is not None else found.column(n).combine_chunks() for n in result.names]
        return pa.StructArray.from_arrays(columns, fields=list(result), mask=pa.array(taken < 0))

    return apply, result


def stateful_processor(task: Operator, schema: pa.Schema | StructType | str) -> KeyProcessor:
    """Return a keyed task as a ``StatefulProcessor`` for a DataFrame grouped by the task's key.

    Group the DataFrame by ``task.by``; Spark then calls the processor once per key and micro-batch. Rows of a
    key are processed in the order of ``seq``, or of ``event_time`` if they have no ``seq``. For throughput use
    ``transform``, which processes many keys at once.

    Parameters
    ----------
    schema : pyarrow.Schema, StructType or DDL text
        Fields of the DataFrame.

    Returns
    -------
    StatefulProcessor
        Its ``output_schema`` is the ``outputStructType`` that Spark asks for.
    """
    return KeyProcessor(*_processor_arguments(task, schema))


def row_processor(task: Operator, schema: pa.Schema | StructType | str) -> RowProcessor:
    """Return a keyed task as a ``StatefulProcessor`` for ``transformWithState``, row by row; Spark 4.1 and later.

    It is :func:`stateful_processor` without pandas: values keep their types where pandas has none for them, such as
    whole numbers that may be missing, and a micro-batch of few rows per key costs less.

    Parameters
    ----------
    schema : pyarrow.Schema, StructType or DDL text
        Fields of the DataFrame.

    Returns
    -------
    StatefulProcessor
        Its ``output_schema`` is the ``outputStructType`` that Spark asks for.
    """
    arguments = _processor_arguments(task, schema)
    require("row-wise transformWithState")
    return RowProcessor(*arguments)


def _processor_arguments(task: Operator, schema: Any) -> tuple[KeyedOperator, pa.Schema]:
    """Return the task and the fields of the DataFrame; ConfigError where a processor cannot run the task."""
    if not isinstance(task, KeyedOperator):
        raise ConfigError(f"{task.name()} has no state; use map_in_arrow or map_in_pandas")
    if task.clock() is not None:
        raise ConfigError(
            f"{task.name()} uses stream time, which Spark does not give to a processor of one key; use transform"
        )
    fields = _arrow_schema(schema)
    session = SparkSession.getActiveSession()
    zone = session.conf.get(ZONE) if session is not None else None
    if zone is not None and zone not in UTC and any(pa.types.is_timestamp(f.type) for f in fields):
        raise ConfigError(
            f"Spark hands a processor times in the session's time zone, which is {zone}, and it needs UTC: "
            f'spark.conf.set("{ZONE}", "UTC"), or use transform, which accepts any zone'
        )
    return task, fields


def _arrow_schema(given: Any) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        given = DataType.fromDDL(given)
    if not isinstance(given, StructType):
        raise ConfigError(f"schema must be a pyarrow.Schema, a StructType or a DDL text, got {given!r}")
    return to_arrow_schema(given)


class KeyProcessor(StatefulProcessor):
    """Runs a keyed task key by key; see :func:`stateful_processor`."""

    def __init__(self, task: KeyedOperator, schema: pa.Schema) -> None:
        self._task = task
        self._schema = schema
        self._result = result_schema(task, schema, ERROR_COLUMN in schema.names)
        self._order = ARRIVAL if "seq" in schema.names else EVENT_TIME

    @property
    def output_schema(self) -> StructType:
        """Fields of the output rows."""
        return from_arrow_schema(self._result)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._stored = handle.getValueState("state", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for out in self._process(
            [pa.RecordBatch.from_pandas(f, schema=self._schema, preserve_index=False) for f in rows]
        ):
            yield out.to_pandas()

    def _process(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Process the rows of a key in a micro-batch, and store its state."""
        state = KeyedState(self._task)
        stored = self._stored.get()
        if stored is not None:
            state.restore(bytes(stored[0]))
        errors = RejectedRecords(self._task.name())
        batch = sort_rows(concatenate(batches), self._order)
        done = list(apply_to_accepted(state.update, batch, errors, self._result))
        self._stored.update((state.snapshot(),))
        return done

    def close(self) -> None:
        pass


class RowProcessor(KeyProcessor):
    """Runs a keyed task key by key over rows; see :func:`row_processor`."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for out in self._process(list(rows_to_batches(rows, self._schema))):
            for row in out.to_pylist():
                yield Row(**row)
