"""A plain Python function of a whole batch, for vectorised arithmetic and models."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, MissingExtraError, RecordError, did_you_mean
from riot_ops.core.order import carried
from riot_ops.task import Case, register
from riot_ops.tasks.functions.function_results import failure
from riot_ops.tasks.functions.function_task import MappingTask

__all__ = ["BatchFunction", "map_batches"]


@register
@dataclass(frozen=True, kw_only=True)
class BatchFunction(MappingTask):
    """Replace batches of records by what a plain Python function makes of them, row by row.

    Parameters
    ----------
    function : callable
        Gets a batch and returns as many rows, in the same order: a record batch, table or data frame, a
        dict of columns (Arrow or NumPy arrays, lists), or one column where it gives one field. What it
        returns for a record must not depend on the other records: how a stream is cut into batches is not
        defined. A NumPy array with two axes is a column of lists.
    adds : pyarrow.Schema, mapping of str to type, or None
        Fields that the function gives, and no others; the records keep their own beside them.
    schema : pyarrow.Schema, mapping of str to type, or None
        In place of adds: all fields of the results. None: those of the input.
    frame : "arrow" or "pandas", default "arrow"
        What the function gets: a :class:`pyarrow.RecordBatch`, or a :class:`pandas.DataFrame`, which it
        may change.
    label : str, default the function's name
        What the step is called in messages and pictures.
    revision : int or str, optional
        Together with a label: which edition of the function it is. Functions of one label and revision count as the
        same in :mod:`riot_ops.reuse`; without one, a function is shared with nobody.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1. As fast as the function. A call gets what there is, from one row on; a
    batch without rows makes no call.

    Missing values
    --------------
    As for :class:`MapFunction`: a field that the result lacks is null, ``seq``, ``ordinal`` and
    ``event_time`` are then those of the input. Null is null in Arrow, None or NaN in pandas. A NaN in
    columns that are not Arrow's, and among what is added, is null.

    Errors
    ------
    Where a call raises, or a value does not fit its type, the batch is halved and each half tried
    again, until what is left fails alone: it is rejected as ``function_error``, ``wrong_type``, or with
    the reason of a :class:`RecordError`. A function that fails in the same way for no rows stops the
    run, as does a result (:class:`ConfigError`) with another number of rows, without columns, or with a
    field that is not wanted.

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

    frame: Literal["arrow", "pandas"] = "arrow"

    def validate(self) -> None:
        super().validate()
        if self.frame == "pandas" and importlib.util.find_spec("pandas") is None:
            raise MissingExtraError("batch_function with frame = 'pandas'", "spark")

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        returned = self._returned(batch.schema)
        made: list[pa.RecordBatch] = []
        failed: dict[str, list[tuple[int, str]]] = {}
        waiting = [(0, batch.num_rows)] if batch.num_rows else []
        while waiting:
            start, end = waiting.pop()
            part = batch.slice(start, end - start)
            try:
                made.append(self._called(part, returned))
            except ConfigError:
                raise
            except Exception as error:
                if not made and not failed and self._fails_without_rows(batch, returned, error):
                    raise
                if end - start > 1:
                    middle = (start + end) // 2
                    waiting += [(middle, end), (start, middle)]  # the first half is next
                    continue
                reason, message = failure(error)
                failed.setdefault(reason, []).append((start, message))
        kept = np.ones(batch.num_rows, np.bool_)
        for reason, rows in failed.items():
            places = np.array([i for i, _ in rows], np.int64)
            kept[places] = False
            dead.reject(batch, places, reason, [message for _, message in rows])
        rest = batch.filter(pa.array(kept)) if failed else batch
        return self._joined(rest, pa.concat_batches(made) if made else pa.RecordBatch.from_pylist([], returned))

    def _fails_without_rows(self, batch: pa.RecordBatch, schema: pa.Schema, error: Exception) -> bool:
        """Whether it is the function that fails, whatever the records."""
        if isinstance(error, RecordError):
            return False
        try:
            self._called(batch.slice(0, 0), schema)
        except Exception as again:
            return failure(again) == failure(error)
        return False

    def _called(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """What the function makes of a batch, with the fields and types that are wanted."""
        given = batch.to_pandas() if self.frame == "pandas" else batch
        found = self._columns(self.function(given), schema)
        for name, values in found.items():
            if len(values) != batch.num_rows:
                raise ConfigError(
                    f"{self.label}: the function returned {len(values)} rows in {name!r} for {batch.num_rows}; "
                    "it must give one for each"
                )
        columns = []
        for field in schema:
            if field.name in found:
                columns.append(_column(field, found[field.name]))
            elif self.adds is None and field.name in carried(batch.schema.names):
                columns.append(batch.column(field.name))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _columns(self, result: Any, schema: pa.Schema) -> Mapping[str, Any]:
        """The columns of a result, by name."""
        names = [name for name in schema.names if self.adds is not None or name not in carried(schema.names)]
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
    fn: Callable[[Any], Any],
    schema: Any = None,
    name: str | None = None,
    *,
    adds: Any = None,
    frame: Literal["arrow", "pandas"] = "arrow",
    version: int | str | None = None,
) -> BatchFunction:
    """A task that applies a function to whole batches, see :class:`BatchFunction`.

    >>> half = map_batches(lambda df: df.assign(value=df["value"] / 2), frame="pandas").session()
    >>> half.push({"device": "d1", "value": 3.0})
    [{'device': 'd1', 'value': 1.5}]
    """
    return BatchFunction(function=fn, schema=schema, adds=adds, label=name, frame=frame, revision=version)


def _column(field: pa.Field, values: Any) -> pa.Array:
    """Values as a column of the wanted type; :class:`RecordError` where that would change one."""
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
