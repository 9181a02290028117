"""The ingest step: it casts records to the declared types, or rejects them with the field and the value.

On both runners every record passes this step before the first task. The step selects the declared fields, casts them
without loss, and rejects records with a cell that cannot be cast, a time outside the years 1 to 9999, text that is not
UTF-8, or a null in a field that is not nullable. If there is nothing to do, it checks the types, the range of the times
and the text, and returns the batch unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.castable import PER_SECOND
from riot_ops.core.casting import Problem, can_cast, cast, plain_schema, to_python
from riot_ops.core.clock import HEARTBEATS_OF_SOURCE, MAX_PLACE, WATERMARKS
from riot_ops.core.errors import ConfigError, did_you_mean, escape_surrogates, value_text
from riot_ops.core.nested_columns import flat_list
from riot_ops.core.order import is_ordinal
from riot_ops.core.python_values import from_values
from riot_ops.core.rejected_records import RejectedRecords, json_text, records_as_json
from riot_ops.core.rejection import REJECTED, REJECTION
from riot_ops.core.schema import EARLIEST, LATEST, TIMESTAMP
from riot_ops.core.source import parse_heartbeat
from riot_ops.ingest.renumber import Renumber
from riot_ops.kernels.arrays.arrow import byte_spans
from riot_ops.kernels.text.strings import non_utf8

__all__ = [
    "REJECTED",
    "RESERVED_TYPES",
    "IngestStep",
    "align_rejection_columns",
    "batch_without_fields",
    "check_source_fields",
    "declared_schema",
    "from_records",
    "ingest_batch",
    "mark_rejected",
]

#: The types of fields with a fixed meaning.
RESERVED_TYPES = {"seq": pa.int64(), "ordinal": pa.int64(), "event_time": TIMESTAMP}

DAY_US = 86_400_000_000

types = pa.types
Problems = dict[int, Problem]
Mask = npt.NDArray[np.bool_]


def declared_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """Normalise a schema to plain types, and to the fixed types of ``seq``, ``ordinal`` and ``event_time``."""
    fields = []
    for field in plain_schema(schema):
        if isinstance(field.type, pa.BaseExtensionType):
            raise ConfigError(
                f"{where}: the field {field.name!r} is of type {field.type}, which no task knows; convert it before, "
                f"for example to text, or to its storage {field.type.storage_type}"
            )
        dtype = pa.int64() if is_ordinal(field.name) else RESERVED_TYPES.get(field.name, field.type)
        same_kind = types.is_integer if types.is_integer(dtype) else types.is_timestamp
        if not (field.type.equals(dtype) or types.is_null(field.type) or same_kind(field.type)):
            raise ConfigError(f"{where}: the field {field.name!r} must be {dtype}, got {field.type}")
        fields.append(field.with_type(dtype))
    counts = Counter(schema.names)
    if len(counts) < len(fields):
        twice = min(name for name, number in counts.items() if number > 1)
        raise ConfigError(f"{where}: there are {counts[twice]} fields {twice!r}")
    return pa.schema(fields, schema.metadata)


def check_source_fields(name: str, have: pa.Schema, want: pa.Schema) -> None:
    """Raise unless a source with the fields ``have`` can deliver the fields ``want``."""
    counts = Counter(have.names)
    for field in want:
        number = counts[field.name]
        if number != 1:
            lacks = "lacks the field" if number == 0 else f"has {number} fields"
            raise ConfigError(
                f"the source {name!r} {lacks} {field.name!r}; it has {', '.join(have.names) or 'no fields'}"
                f"{did_you_mean(field.name, have.names)}"
            )
        dtype = have.field(field.name).type
        if not can_cast(dtype, field.type):
            raise ConfigError(
                f"the source {name!r}: the field {field.name!r} is {dtype}, the dataflow declares {field.type}, "
                "and one cannot be cast to the other without loss"
            )


@dataclass(frozen=True)
class IngestStep:
    """The step between a source and its first tasks, see the description of the module.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema that the dataflow declares; :meth:`apply` returns exactly this schema.
    source_index, source_count : int, default 0 and 1
        Where sources are read as one log, message n becomes number ``n * source_count + source_index`` of the dataflow,
        see :meth:`riot_ops.graph.graph.Graph.numbering`; otherwise it keeps n.
    """

    schema: pa.Schema
    source_index: int = 0
    source_count: int = 1

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Return the valid records with the declared schema; reject the others through ``errors``."""
        unnumbered: Problems = {}
        if self._has_own_numbers(batch):
            unnumbered, batch = self._unnumbered(batch), self._renumbered(batch)
        whole, rejected, declared = batch, None, batch.schema.equals(self.schema)
        if not declared:
            whole, batch = batch, self._selected(batch)
            if REJECTED in whole.schema.names:
                notes, whole = whole.column(REJECTED), whole.drop_columns([REJECTED])
                rejected = _reject_marked(whole, notes, errors)
        columns: list[pa.Array] = batch.columns
        problems: Problems = unnumbered
        for i, field in () if declared else enumerate(self.schema):
            if not columns[i].type.equals(field.type):
                columns[i], wrong = cast(columns[i], field.type)
                _add_problems(problems, field.name, wrong)
        for place, check in self._checks:
            if wrong := check(columns[place]):
                _add_problems(problems, self.schema.names[place], wrong)
        if rejected is None and not problems:
            return batch if declared else self._batch(columns)
        keep = np.ones(batch.num_rows, np.bool_) if rejected is None else ~rejected
        _reject(whole, {i: p for i, p in sorted(problems.items()) if keep[i]}, errors)
        keep[list(problems)] = False
        mask = pa.array(keep)
        return self._batch([c.filter(mask) for c in columns])

    def heartbeats(self, batches: Sequence[pa.RecordBatch], numbers: Iterator[int]) -> list[pa.RecordBatch]:
        """Convert the heartbeats among the batches of the source to watermarks; ``numbers`` orders them.

        Where sources are read as one log, heartbeats precede message n of all of them, in the order of the sources.
        """
        place = min(self.source_index % self.source_count, MAX_PLACE) * HEARTBEATS_OF_SOURCE
        found = [(*beat, place + next(numbers)) for batch in batches if (beat := parse_heartbeat(batch)) is not None]
        if not found:
            return []
        columns = [pa.array(c, f.type) for c, f in zip(zip(*found, strict=True), WATERMARKS, strict=True)]
        first = self.source_index - self.source_index % self.source_count
        numbering = Renumber((first,), self.source_count, rejects=False)
        return [numbering.apply(pa.RecordBatch.from_arrays(columns, schema=WATERMARKS), RejectedRecords(""))]

    @cached_property
    def _numbering(self) -> Renumber:
        return Renumber((self.source_index,), self.source_count)

    def _has_own_numbers(self, batch: pa.RecordBatch) -> bool:
        """Whether the messages have numbers of their source that are not those of the dataflow."""
        if self.source_count == 1:
            return False
        column = batch.schema.get_field_index("seq")
        return bool(column >= 0 and types.is_int64(batch.schema.field(column).type))

    def _unnumbered(self, batch: pa.RecordBatch) -> Problems:
        """Find the records whose number among the messages of all sources is beyond int64."""
        rows, texts = self._numbering.beyond(batch.column("seq"))
        return {row: Problem("out_of_range", f"seq {text}") for row, text in zip(rows.tolist(), texts, strict=True)}

    def _renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.schema.get_field_index("seq")
        return batch.set_column(column, batch.schema.field(column), self._numbering.numbers(batch.column(column)))

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the declared fields, with their original types."""
        places = [batch.schema.get_field_index(name) for name in self.schema.names]
        if -1 in places:
            missing = self.schema.names[places.index(-1)]
            raise ConfigError(f"a batch lacks the field {missing!r}; it has {', '.join(batch.schema.names)}")
        columns = [batch.column(i) for i in places]
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @cached_property
    def _checks(self) -> list[tuple[int, Callable[[pa.Array], Problems]]]:
        found = []
        for i, field in enumerate(self.schema):
            if (check := _check_for(field.type)) is not None:
                found.append((i, check))
            if not field.nullable:
                found.append((i, _check_nulls))
        return found


def ingest_batch(batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
    """Ingest a batch whose schema no dataflow declares; reject the records that Python cannot hold."""
    return _step_for(batch.schema).apply(batch, errors)


@lru_cache(maxsize=64)
def _step_for(schema: pa.Schema) -> IngestStep:
    return IngestStep(declared_schema(pa.schema([f for f in schema if f.name != REJECTED]), "the records"))


# -- records that a source could not read ------------------------------------------------------------------


def mark_rejected(
    batch: pa.RecordBatch, problems: Mapping[int, Problem], raw: Mapping[int, str] | None = None
) -> pa.RecordBatch:
    """Mark rows of a batch that the ingest step must reject; earlier marks take precedence.

    ``raw`` has the original text of these rows; by default each row as JSON.
    """
    if not problems:
        return batch
    place = batch.schema.get_field_index(REJECTED)
    if raw is None:
        rows = (batch if place < 0 else batch.drop_columns([REJECTED])).take(pa.array(list(problems)))
        raw = dict(zip(problems, records_as_json(rows).to_pylist(), strict=True))
    notes: list[Any] = [None] * batch.num_rows if place < 0 else batch.column(place).to_pylist()
    for row, problem in problems.items():
        notes[row] = notes[row] or {
            "reason": problem.reason,
            "message": escape_surrogates(problem.text),
            "raw": raw[row],
        }
    column = pa.array(notes, REJECTION)
    return batch.append_column(REJECTED, column) if place < 0 else batch.set_column(place, REJECTED, column)


def from_records(
    records: Sequence[Mapping[str, Any]], schema: pa.Schema, unread: Mapping[int, tuple[Problem, str]] | None = None
) -> pa.RecordBatch:
    """Convert dicts to a batch; mark the rows with cells that cannot be cast, and those in ``unread``, as rejected."""
    unread = unread or {}
    problems = {i: problem for i, (problem, _) in unread.items()}
    fields, columns = [], []
    for field in schema:
        column, wrong = from_values([record.get(field.name) for record in records], field.type)
        _add_problems(problems, field.name, wrong)
        columns.append(column)
        fields.append(field.with_nullable(True))
    batch = (
        pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if fields else batch_without_fields(len(records))
    )
    texts = {i: unread[i][1] if i in unread else json_text(records[i]) for i in problems}
    return mark_rejected(batch, problems, texts)


def align_rejection_columns(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Give all batches the column of marks if any of them has it."""
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return batches
    return [
        b if REJECTED in b.schema.names else b.append_column(REJECTED, pa.nulls(b.num_rows, REJECTION)) for b in batches
    ]


def batch_without_fields(rows: int) -> pa.RecordBatch:
    """Return a batch of ``rows`` records without fields."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _reject_marked(batch: pa.RecordBatch, notes: pa.Array, errors: RejectedRecords) -> Mask:
    mask: Mask = np.asarray(notes.is_valid())
    reasons, messages, raw = (to_python(part) for part in notes.flatten())
    for reason in sorted({reasons[i] for i in np.flatnonzero(mask)}):
        rows = np.array([i for i in np.flatnonzero(mask) if reasons[i] == reason])
        errors.reject(batch, rows, reason, [messages[i] for i in rows], pa.array(raw, pa.string()))
    return mask


# -- checks of columns -----------------------------------------------------------------------------


def _add_problems(problems: Problems, name: str, wrong: Mapping[int, Problem]) -> None:
    """Add the problems of a field; the first problem of a record takes precedence."""
    for row, problem in wrong.items():
        problems.setdefault(row, Problem(problem.reason, f"{name} {problem.text}"))


def _reject(batch: pa.RecordBatch, problems: Problems, errors: RejectedRecords) -> None:
    for reason in sorted({p.reason for p in problems.values()}):
        rows = [i for i, p in problems.items() if p.reason == reason]
        errors.reject(batch, np.array(rows), reason, [problems[i].text for i in rows])


def _check_for(dtype: pa.DataType) -> Callable[[pa.Array], Problems] | None:
    """Return the check for columns of a type that Python can hold all their values; None if it always can."""
    if types.is_string(dtype) or types.is_large_string(dtype):
        return _check_utf8
    if types.is_date(dtype) or types.is_timestamp(dtype):
        return _time_check(dtype)
    if types.is_nested(dtype):
        return _check_nested
    return None


def _check_nulls(column: pa.Array) -> Problems:
    if not column.null_count:
        return {}
    return {int(i): Problem("missing", "is null") for i in np.flatnonzero(np.asarray(column.is_null()))}


#: Up to this many values, Python is faster than NumPy.
FEW = 16


def _time_check(dtype: pa.DataType) -> Callable[[pa.Array], Problems] | None:
    """Return the check of times: it compares the minimum and maximum, and each value only if these are out of range."""
    integer: type[np.int32 | np.int64]
    if types.is_date32(dtype):
        integer, unit = np.int32, DAY_US
    else:
        per_second = PER_SECOND["ms" if types.is_date64(dtype) else dtype.unit]
        if per_second > PER_SECOND["us"]:
            return None  # nanoseconds have a narrower range
        integer, unit = np.int64, PER_SECOND["us"] // per_second
    # in another time zone Python's local time may be up to a day off
    margin = DAY_US if types.is_timestamp(dtype) and dtype.tz not in (None, "UTC") else 0
    lowest, highest = -((-EARLIEST - margin) // unit), (LATEST - margin) // unit

    def check(column: pa.Array) -> Problems:
        buffer = column.buffers()[1]
        if buffer is None or not len(column):
            return {}
        values = np.frombuffer(buffer, integer, len(column), column.offset * integer().itemsize)
        ends = values.tolist() if values.size <= FEW else (values.min(), values.max())
        if min(ends) >= lowest and max(ends) <= highest:
            return {}
        beyond = (np.less(values, lowest) | np.greater(values, highest)) & np.asarray(column.is_valid())
        text = f"is not within the years 1 to 9999 ({dtype})"
        return {int(i): Problem("out_of_range", f"= {values[i]} {text}") for i in np.flatnonzero(beyond)}

    return check


def _check_utf8(column: pa.Array) -> Problems:
    """Check text, which Arrow does not validate when it imports it."""
    data, starts, ends, _ = byte_spans(column)
    used = data[starts[0] : ends[-1]] if starts.size else data[:0]
    if not used.size or used.max() < 128:
        return {}
    try:
        used.tobytes().decode()
        if not ((data[starts[starts < ends]] & 0xC0) == 0x80).any():
            return {}  # the whole text is valid, and no value begins within a character
    except UnicodeDecodeError:
        pass
    raw = column.cast(pa.large_binary())
    found = np.flatnonzero(non_utf8(raw))
    return {int(i): Problem("invalid_utf8", f"= {value_text(raw[int(i)].as_py())} is not UTF-8") for i in found}


def _check_nested(column: pa.Array) -> Problems:
    """Check nested values: whether all convert, and if not, the columns of their members."""
    if _converts(column):
        return {}
    bad = _invalid_rows(column) or [i for i in range(len(column)) if not _converts(column.slice(i, 1))]
    return {i: Problem("out_of_range", f"of type {column.type} contains an invalid value") for i in sorted(bad)}


def _invalid_rows(column: pa.Array) -> set[int]:
    """Find the rows with a member that Python cannot hold."""
    dtype = column.type
    if types.is_struct(dtype):
        return set().union(*map(_invalid_rows, column.flatten()))
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        values, lengths = flat_list(column)
        return set(np.repeat(np.arange(len(column)), lengths)[sorted(_invalid_rows(values))].tolist())
    if types.is_map(dtype):
        column = column.take(pa.array(np.arange(len(column))))  # entries without gaps
        found = sorted(_invalid_rows(column.keys) | _invalid_rows(column.items))
        return set(np.repeat(np.arange(len(column)), np.diff(np.asarray(column.offsets)))[found].tolist())
    check = _check_for(dtype)
    return set(check(column)) if check is not None else set()


def _converts(column: pa.Array) -> bool:
    try:
        column.to_pylist()
    except (ValueError, OverflowError):
        return False
    return True
