"""Python functions of whole batches, for vectorised arithmetic and models."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, MissingExtraError, RecordError, did_you_mean
from riot_ops.core.order import carried_fields
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike
from riot_ops.task import Case, register
from riot_ops.tasks.functions.function_task import MappingTask
from riot_ops.tasks.functions.result_collector import describe_failure

__all__ = ["BatchFunction", "map_batches"]


@register
@dataclass(frozen=True, kw_only=True)
class BatchFunction(MappingTask):
    """Apply a Python function to batches of records, with one result row per record.

    Parameters
    ----------
    function : callable
        Takes a batch and returns the same number of rows, in the same order: a record batch, table, data
        frame or dict of columns (Arrow or NumPy arrays, lists), or a single column if it returns one field.
        The result for a record must not depend on other records, as the size of batches is not defined. A
        NumPy array with two axes is a column of lists.
    adds : pyarrow.Schema, mapping of str to type, or None
        The only fields that the function returns; they are added to those of the records.
    schema : pyarrow.Schema, mapping of str to type, or None
        Instead of adds: all fields of the results. None: those of the input.
    library : "arrow" or "pandas", default "arrow"
        What the function takes: a :class:`pyarrow.RecordBatch`, or a :class:`pandas.DataFrame`, which it
        may modify.
    label : str, default the function's name
        Name of the step in messages and diagrams.
    revision : int or str, optional
        Version of the function; needs a label. Functions with the same label and revision count as the same in
        :mod:`riot_ops.reuse`; a function without a revision is not shared.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1, at the speed of the function. A call gets a batch of one row or more.

    Missing values
    --------------
    As for :class:`MapFunction`: a field that the result lacks is null, but ``seq``, ``ordinal`` and
    ``event_time`` are then those of the input. A null is null in Arrow, and None or NaN in pandas. A NaN
    is null in added fields, and in results that are not Arrow columns.

    Errors
    ------
    If a call raises, or a value does not fit its type, the batch is split in half and each half is tried
    again, until single records fail: they are rejected as ``function_error``, ``wrong_type``, or with the
    reason of a :class:`RecordError`. A function that fails in the same way for an empty batch stops the
    run. So does a result with another number of rows, without columns, or with an undeclared field
    (:class:`ConfigError`).

    References
    ----------
    None.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> warm = map_batches(lambda batch: pc.greater(batch["value"], 20), adds={"warm": "bool"})
    >>> warm.session().push({"value": 25.0})
    [{'value': 25.0, 'warm': True}]
    """

    code: ClassVar[str] = "BFN"

    library: Literal["arrow", "pandas"] = "arrow"

    def validate(self) -> None:
        super().validate()
        if self.library == "pandas" and importlib.util.find_spec("pandas") is None:
            raise MissingExtraError("batch_function with library = 'pandas'", "spark")

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        returned = self._returned(batch.schema)
        results: list[pa.RecordBatch] = []
        failed: dict[str, list[tuple[int, str]]] = {}
        waiting = [(0, batch.num_rows)] if batch.num_rows else []
        while waiting:
            start, end = waiting.pop()
            part = batch.slice(start, end - start)
            try:
                results.append(self._called(part, returned))
            except ConfigError:
                raise
            except Exception as error:
                if not results and not failed and self._fails_without_rows(batch, returned, error):
                    raise
                if end - start > 1:
                    middle = (start + end) // 2
                    waiting += [(middle, end), (start, middle)]  # the first half is next
                    continue
                reason, message = describe_failure(error)
                failed.setdefault(reason, []).append((start, message))
        keep = np.ones(batch.num_rows, np.bool_)
        for reason, rows in failed.items():
            places = np.array([i for i, _ in rows], np.int64)
            keep[places] = False
            errors.reject(batch, places, reason, [message for _, message in rows])
        rest = batch.filter(pa.array(keep)) if failed else batch
        return self._joined(rest, pa.concat_batches(results) if results else pa.RecordBatch.from_pylist([], returned))

    def _fails_without_rows(self, batch: pa.RecordBatch, schema: pa.Schema, error: Exception) -> bool:
        """Whether the function fails in the same way for an empty batch, and so for any records."""
        if isinstance(error, RecordError):
            return False
        try:
            self._called(batch.slice(0, 0), schema)
        except Exception as error_without_rows:
            return describe_failure(error_without_rows) == describe_failure(error)
        return False

    def _called(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Call the function on a batch and cast its result to the declared fields and types."""
        argument = batch.to_pandas() if self.library == "pandas" else batch
        returned = self._columns(self.function(argument), schema)
        for name, values in returned.items():
            if len(values) != batch.num_rows:
                raise ConfigError(
                    f"{self.label}: the function returned {len(values)} rows in {name!r} for {batch.num_rows}; "
                    "it must return one for each"
                )
        columns = []
        for field in schema:
            if field.name in returned:
                columns.append(_column(field, returned[field.name]))
            elif self.adds is None and field.name in carried_fields(batch.schema.names):
                columns.append(batch.column(field.name))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _columns(self, result: Any, schema: pa.Schema) -> Mapping[str, Any]:
        """Return the columns of a result, by name."""
        carried = set() if self.adds is not None else set(carried_fields(schema.names))
        names = [name for name in schema.names if name not in carried]
        if isinstance(result, pa.RecordBatch | pa.Table):
            columns = dict(zip(result.schema.names, result.columns, strict=True))
        elif isinstance(result, Mapping):
            columns = dict(result)
        elif hasattr(result, "iloc") and hasattr(result, "columns"):
            columns = {name: result[name] for name in result.columns}
        elif len(names) == 1 and hasattr(result, "__len__") and not isinstance(result, str | bytes):
            columns = {names[0]: result}
        else:
            raise ConfigError(
                f"{self.label}: the function returned a {type(result).__name__}; it must return a record batch, a "
                "table, a data frame or a dict of columns"
                + (", or one column" if len(names) == 1 else f" ({', '.join(names)})")
            )
        for name in columns:
            if name not in schema.names:
                raise ConfigError(
                    f"{self.label}: the function returned the field {name!r}, which its schema lacks; fields are "
                    f"{', '.join(schema.names)}{did_you_mean(str(name), schema.names)}"
                )
        return columns

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3, 4], pa.int64()),
                "name": ["a", "ü", None, ""],
                "value": [1.0, None, float("nan"), 4.0],
            }
        )
        yield Case(cls(function=_squares, adds={"square": "float64", "place": "list<item: double>"}), batch, "adds")
        yield Case(cls(function=_nameless, schema={"value": "float32"}), batch, "schema")
        yield Case(cls(function=_named), batch, "rejects")


def map_batches(
    function: Callable[[Any], Any],
    schema: SchemaLike | None = None,
    label: str | None = None,
    *,
    adds: SchemaLike | None = None,
    library: Literal["arrow", "pandas"] = "arrow",
    revision: int | str | None = None,
) -> BatchFunction:
    """Make a task that applies a function to whole batches, see :class:`BatchFunction`.

    >>> half = map_batches(lambda df: df.assign(value=df["value"] / 2), library="pandas").session()
    >>> half.push({"device": "d1", "value": 3.0})
    [{'device': 'd1', 'value': 1.5}]
    """
    return BatchFunction(function=function, schema=schema, adds=adds, label=label, library=library, revision=revision)


def _column(field: pa.Field, values: Any) -> pa.Array:
    """Convert values to a column of a type; raise :class:`RecordError` if a value does not fit."""
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return values if values.type == field.type else values.cast(field.type)
        array = np.asarray(values)
        if array.ndim == 2:
            flat = pa.array(array.ravel(), from_pandas=True)
            offsets = pa.array(np.arange(0, array.size + 1, array.shape[1]) if array.size else [0], pa.int32())
            return pa.ListArray.from_arrays(offsets, flat).cast(field.type)
        return pa.array(values, from_pandas=True).cast(field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{field.name} is not a {field.type}: {error}", reason="wrong_type") from None


def _squares(batch: pa.RecordBatch) -> Mapping[str, Any]:
    values = batch["value"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    return {"square": values**2, "place": np.stack([values, values + 1], axis=1)}


def _nameless(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value"])


def _named(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch["name"].null_count:
        raise RecordError("name is null", reason="function_error")
    return batch
