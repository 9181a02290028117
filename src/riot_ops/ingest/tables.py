"""Records in memory: tables, frames, lists of dicts and iterators, converted to numbered record batches.

An object with Arrow's C interface is converted by it, without the library of the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.casting import CAST_ERRORS, Problem, can_cast, cast
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.python_values import from_values
from riot_ops.core.rejected_records import json_text
from riot_ops.core.schema import RAW
from riot_ops.ingest.prefetch import Prefetcher
from riot_ops.ingest.step import batch_without_fields, from_records, mark_rejected

__all__ = [
    "MAX_BATCH_RECORDS",
    "RECORD_FORMATS",
    "Numbering",
    "SeqOrder",
    "as_table",
    "batched_records",
    "check_names",
    "is_frame",
    "prefetched_batches",
    "single_batch",
    "with_whole_seq",
]

#: Maximum number of dicts in one batch.
MAX_BATCH_RECORDS = 8192

#: The objects that :func:`as_table` accepts, for messages.
RECORD_FORMATS = "an Arrow table or record batch, a pandas or Polars frame, a list of dicts"


def is_frame(data: Any) -> bool:
    """Whether an object holds records that can be read more than once."""
    if isinstance(data, pa.Table | pa.RecordBatch) or _is_pandas(data):
        return True
    stream = hasattr(data, "__arrow_c_stream__") and hasattr(data, "__len__")
    return (stream or hasattr(data, "__arrow_c_array__")) and not isinstance(data, pa.Array | pa.ChunkedArray)


def as_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Convert records to a table; cells that do not match the schema are marked for the ingest step.

    >>> as_table([{"v": 1.0}, {"v": "n/a"}], pa.schema([("v", pa.float64())])).column_names
    ['v', '_rejected']
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list | tuple):
        for i, record in enumerate(data):
            if not isinstance(record, Mapping):
                raise ConfigError(f"a list of records must hold dicts, got {value_text(record)} in place {i}")
        schema = _inferred(data) if schema is None else schema
        if "seq" in schema.names and not any("seq" in record for record in data):
            schema = schema.remove(schema.get_field_index("seq"))
        return pa.Table.from_batches([from_records(data, schema)])
    if _is_pandas(data):
        return pa.Table.from_batches([_from_pandas(data, schema)])
    if is_frame(data):
        if hasattr(data, "__arrow_c_stream__"):
            return _from_stream(data)
        return pa.Table.from_batches([pa.record_batch(data)])
    raise ConfigError(f"cannot read records from {type(data).__name__}; pass {RECORD_FORMATS}")


def single_batch(data: Any) -> pa.RecordBatch:
    """Convert records in memory to one batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    table = as_table(data)
    columns = [column.combine_chunks() for column in table.columns]
    columns = [pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def check_names(source: str, names: Iterable[str], schema: pa.Schema) -> None:
    """Raise unless records with these keys have the fields of a schema.

    ``seq`` may be missing, since records are then numbered, and so may ``event_time``, unless another name is similar.
    """
    known, declared = dict.fromkeys(names), dict.fromkeys(schema.names)
    for name in declared:
        if name in known or name == "seq":
            continue
        hint = did_you_mean(name, [other for other in known if other not in declared])
        if name == "payload" and schema.equals(RAW) and known and not hint:
            hint = "; without schema= a source takes texts: declare the fields, as in schema={'value': 'double'}"
        if name != "event_time" or hint:
            raise ConfigError(
                f"the source {source!r} lacks the field {name!r}; it has {', '.join(known) or 'no fields'}{hint}"
            )


def batched_records(
    records: Iterator[Mapping[str, Any]], schema: pa.Schema, first: Sequence[Mapping[str, Any]] = ()
) -> Iterator[pa.RecordBatch]:
    """Collect dicts of an iterator, after the ``first`` ones, into batches; a batch is empty if none has arrived."""
    prefetcher = Prefetcher(records, MAX_BATCH_RECORDS // 2, first)  # the other half arrives during processing
    try:
        while (group := prefetcher.take()) is not None:
            for i, record in enumerate(group):
                if not isinstance(record, Mapping):
                    raise ConfigError(f"an iterator of records must give dicts, got {value_text(record)} in place {i}")
            yield from_records(group, schema)
    finally:
        prefetcher.close()


def prefetched_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read batches in another thread; a batch is empty if the next has not arrived yet."""
    prefetcher = Prefetcher(iter(batches), 4)  # switching threads for each batch costs more than reading it
    try:
        while (group := prefetcher.take()) is not None:
            yield from group or [batch_without_fields(0)]
    finally:
        prefetcher.close()


def with_whole_seq(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast the column ``seq`` to int64, and mark the records whose value is no whole number for the ingest step."""
    place = batch.schema.get_field_index("seq")
    column = batch.column(place)
    if pa.types.is_int64(column.type):
        return batch
    if not can_cast(column.type, pa.int64()):
        raise ConfigError(f"seq must be whole numbers, got {column.type}")
    column, problems = cast(column, pa.int64())
    marked = mark_rejected(batch, {i: p._replace(text=f"seq {p.text}") for i, p in problems.items()})
    return marked.set_column(place, pa.field("seq", pa.int64()), column)


class SeqOrder:
    """Checks that ``seq`` does not decrease from one record to the next, also over batches."""

    def __init__(self) -> None:
        self._last: int | None = None

    def check(self, column: pa.Array, first: int = 0) -> None:
        """Raise :class:`ConfigError` with the first row that decreases; the column begins at row ``first``."""
        rows = np.flatnonzero(np.asarray(column.is_valid()))
        numbers = column.drop_null().to_numpy(zero_copy_only=False)
        if not numbers.size:
            return
        before = np.concatenate([numbers[:1] if self._last is None else [self._last], numbers[:-1]])
        falling = np.flatnonzero(numbers < before)
        if falling.size:
            i = int(falling[0])
            raise ConfigError(
                f"seq falls from {before[i]} to {numbers[i]} in row {first + rows[i]}: it is the order in which "
                "records are processed; sort the records by it (pandas: sort_values('seq'), Polars: sort('seq'), "
                "Arrow: sort_by('seq')), or leave it out to have them numbered in their order"
            )
        self._last = int(numbers[-1])


class Numbering:
    """Adds ``seq`` to batches without it: the number of the row.

    A ``seq`` of the records must not decrease from one record to the next: it is the order in which records are
    processed, however the stream is cut into batches.
    """

    def __init__(self, rows: int = 0) -> None:
        self.rows: int = rows
        self._order = SeqOrder()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with a column ``seq`` of type int64."""
        first = self.rows
        self.rows += batch.num_rows
        place = batch.schema.get_field_index("seq")
        if batch.schema.names.count("seq") > 1:
            raise ConfigError("the records have 2 fields 'seq'")
        if place < 0:
            numbers = pa.array(np.arange(first, self.rows, dtype=np.int64))
            schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
            return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)
        batch = with_whole_seq(batch)
        self._order.check(batch.column(place), first)
        return batch


def _inferred(records: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Infer the fields of dicts from all their values."""
    fields = []
    for name in dict.fromkeys(key for record in records for key in record):
        try:
            fields.append(pa.field(str(name), pa.array([record.get(name) for record in records]).type))
        except CAST_ERRORS as error:
            raise ConfigError(
                f"the records hold values of several types in the field {name!r} ({error}); pass the types as schema"
            ) from None
    return pa.schema(fields)


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns")


def _from_stream(frame: Any) -> pa.Table:
    """Convert a frame of Polars, or of another library with Arrow's interface."""
    if type(frame).__module__.partition(".")[0] == "polars":
        for name, dtype in frame.schema.items():
            if str(dtype) == "Object":  # Polars would hand over the addresses of the objects
                raise ConfigError(f"the column {name!r} of the frame has Python objects; convert them before")
    try:
        return pa.table(frame)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"the frame has a column of a type that Arrow does not have: {error}") from None


def _from_pandas(frame: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert a pandas frame with its named index; NaN becomes null; mixed columns are converted value by value."""
    if any(name is not None and name not in frame.columns for name in frame.index.names):
        frame = frame.reset_index()
    columns, names = [], []
    problems: dict[int, Problem] = {}
    dtypes = {} if schema is None else {field.name: field.type for field in schema}
    for i, label in enumerate(frame.columns):
        name = str(label)
        want = dtypes.get(name)
        try:
            column = pa.array(frame.iloc[:, i], from_pandas=True)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
        except CAST_ERRORS as error:
            if want is None and schema is not None:
                continue  # the dataflow does not read it
            if want is None:
                raise ConfigError(
                    f"the frame holds values of several types, or of a type that Arrow lacks, in the column {name!r} "
                    f"({error}); convert them before, or pass the types as schema"
                ) from None
            column, wrong = from_values(frame.iloc[:, i].tolist(), want)
            for row, problem in wrong.items():
                problems.setdefault(row, problem._replace(text=f"{name} {problem.text}"))
        columns.append(column)
        names.append(name)
    batch = pa.RecordBatch.from_arrays(columns, names=names) if columns else batch_without_fields(len(frame))
    return mark_rejected(batch, problems, {i: json_text(frame.iloc[i].to_dict()) for i in problems})
