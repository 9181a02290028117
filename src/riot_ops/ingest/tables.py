"""What may hold records: tables, frames, lists of dicts and iterators, as record batches with numbers.

Anything with Arrow's C interface is taken by it, so that no library of frames is needed for its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.casting import FAILURES, Problem, cast, castable, from_values
from riot_ops.core.dead_letters import json_text
from riot_ops.core.errors import ConfigError, did_you_mean, short
from riot_ops.ingest.prefetch import Ahead
from riot_ops.ingest.step import bare, from_records, marked

__all__ = ["GROUP", "KINDS", "Numbering", "as_table", "awaited", "check_names", "grouped", "is_frame", "one_batch"]

#: Most dicts that become one batch.
GROUP = 8192

KINDS = "an Arrow table or record batch, a pandas or Polars frame, a list of dicts"


def is_frame(data: Any) -> bool:
    """Whether an object holds records that can be read more than once."""
    if isinstance(data, pa.Table | pa.RecordBatch) or _is_pandas(data):
        return True
    stream = hasattr(data, "__arrow_c_stream__") and hasattr(data, "__len__")
    return (stream or hasattr(data, "__arrow_c_array__")) and not isinstance(data, pa.Array | pa.ChunkedArray)


def as_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Records as a table; with a schema, cells that do not fit it are marked for the intake.

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
                raise ConfigError(f"a list of records must hold dicts, got {short(record)} in place {i}")
        schema = _inferred(data) if schema is None else schema
        if "seq" in schema.names and not any("seq" in record for record in data):
            schema = schema.remove(schema.get_field_index("seq"))
        return pa.Table.from_batches([from_records(data, schema)])
    if _is_pandas(data):
        return pa.Table.from_batches([_from_pandas(data, schema)])
    if is_frame(data):
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        return pa.Table.from_batches([pa.record_batch(data)])
    raise ConfigError(f"cannot read records from {type(data).__name__}; records are in {KINDS}")


def one_batch(data: Any) -> pa.RecordBatch:
    """Records in memory as one batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    table = as_table(data)
    columns = [column.combine_chunks() for column in table.columns]
    columns = [pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def check_names(source: str, names: Iterable[str], schema: pa.Schema) -> None:
    """Raise unless records with these keys have the fields of a schema.

    ``seq`` may be missing: the records are then numbered; and so may ``event_time``, unless another
    name looks like it.
    """
    known = list(dict.fromkeys(names))
    for name in schema.names:
        others = [n for n in known if n not in schema.names]
        hint = did_you_mean(name, others)
        if name not in known and name != "seq" and (name != "event_time" or hint):
            raise ConfigError(
                f"the source {source!r} lacks the field {name!r}; it has {', '.join(known) or 'no fields'}{hint}"
            )


def grouped(
    records: Iterator[Mapping[str, Any]], schema: pa.Schema, first: Sequence[Mapping[str, Any]] = ()
) -> Iterator[pa.RecordBatch]:
    """Dicts that come one after the other, behind the first ones, as batches; one is empty where no more have come."""
    ahead = Ahead(records, GROUP // 2, first)  # as many come while these are worked on
    try:
        while (group := ahead.take()) is not None:
            for i, record in enumerate(group):
                if not isinstance(record, Mapping):
                    raise ConfigError(f"an iterator of records must give dicts, got {short(record)} in place {i}")
            yield from_records(group, schema)
    finally:
        ahead.close()


def awaited(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as they come; one is empty where the next has not come yet."""
    ahead = Ahead(iter(batches), 4)  # to change threads for each takes longer than to read it
    try:
        while (group := ahead.take()) is not None:
            yield from group or [bare(0)]
    finally:
        ahead.close()


class Numbering:
    """Gives records their ``seq``: the number of the row, where they do not bring their own.

    Numbers of one's own must not fall from one record to the next: they say in which order records are
    handled, however the stream is cut into batches.
    """

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self._last: int | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a column ``seq`` of type int64."""
        first = self.rows
        self.rows += batch.num_rows
        place = batch.schema.get_field_index("seq")
        if batch.schema.names.count("seq") > 1:
            raise ConfigError("the records have 2 fields 'seq'")
        if place < 0:
            numbers = pa.array(np.arange(first, self.rows, dtype=np.int64))
            schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
            return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)
        column = batch.column(place)
        if not pa.types.is_int64(column.type):
            if not castable(column.type, pa.int64()):
                raise ConfigError(f"seq must be whole numbers, got {column.type}")
            column, problems = cast(column, pa.int64())
            named = {i: p._replace(text=f"seq {p.text}") for i, p in problems.items()}
            given = marked(batch, named)
            batch = given.set_column(place, pa.field("seq", pa.int64()), column)
        self._check(column, first)
        return batch

    def _check(self, column: pa.Array, first: int) -> None:
        rows = np.flatnonzero(np.asarray(column.is_valid()))
        numbers = column.drop_null().to_numpy(zero_copy_only=False)
        if not numbers.size:
            return
        before = np.concatenate([numbers[:1] if self._last is None else [self._last], numbers[:-1]])
        falling = np.flatnonzero(numbers < before)
        if falling.size:
            i = int(falling[0])
            raise ConfigError(
                f"seq falls from {before[i]} to {numbers[i]} in row {first + rows[i]}: it gives the order in which "
                "records are handled; sort the records by it, or leave it out to have them numbered as they come"
            )
        self._last = int(numbers[-1])


def _inferred(records: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The fields of dicts, by all of their values."""
    fields = []
    for name in dict.fromkeys(key for record in records for key in record):
        try:
            fields.append(pa.field(str(name), pa.array([record.get(name) for record in records]).type))
        except FAILURES as error:
            raise ConfigError(
                f"the records hold values of several types in the field {name!r} ({error}); pass the types as schema"
            ) from None
    return pa.schema(fields)


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns")


def _from_pandas(frame: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """A pandas frame with its named index; NaN is null; of cells that are mixed each is looked at."""
    if any(name is not None and name not in frame.columns for name in frame.index.names):
        frame = frame.reset_index()
    columns, names = [], []
    problems: dict[int, Problem] = {}
    for i, label in enumerate(frame.columns):
        name = str(label)
        want = schema.field(name).type if schema is not None and name in schema.names else None
        try:
            column = pa.array(frame.iloc[:, i], from_pandas=True)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
        except FAILURES as error:
            if want is None and schema is not None:
                continue  # nobody reads it
            if want is None:
                raise ConfigError(
                    f"the frame holds values of several types in the column {name!r} ({error}); pass the types "
                    "as schema"
                ) from None
            column, wrong = from_values(frame.iloc[:, i].tolist(), want)
            for row, problem in wrong.items():
                problems.setdefault(row, problem._replace(text=f"{name} {problem.text}"))
        columns.append(column)
        names.append(name)
    batch = pa.RecordBatch.from_arrays(columns, names=names) if columns else bare(len(frame))
    return marked(batch, problems, {i: json_text(frame.iloc[i].to_dict()) for i in problems})
