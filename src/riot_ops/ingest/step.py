"""Where records come in: each is brought to the declared types, or rejected with the field and the value.

What a source delivers passes one step, on either runner, before the first task sees it. The step picks the
declared fields, casts what can be cast without loss, and rejects records with a cell that does not fit, with a time
outside of the years 1 to 9999, with text that is no UTF-8, or with a null where none may be. Where nothing is to be
done it looks at the types, at the range of the times and at the text, and hands the batch on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import PER_SECOND, Problem, cast, castable, cells, from_values, plain_schema
from riot_ops.core.clock import MARKS
from riot_ops.core.dead_letters import DeadLetters, json_text, records_as_json
from riot_ops.core.errors import ConfigError, did_you_mean, encodable, short
from riot_ops.core.order import is_ordinal
from riot_ops.core.schema import EARLIEST, LATEST, TIMESTAMP
from riot_ops.core.source import heartbeat_of
from riot_ops.kernels.arrays.arrow import byte_spans, int_column
from riot_ops.kernels.text.strings import not_utf8

__all__ = ["FIXED", "REJECTED", "Intake", "alike", "bare", "check_types", "declared", "from_records", "marked", "taken"]

#: Column in which a source names the records that it could not read; null for all others. A batch may lack it.
REJECTED = "_rejected"
REJECTION = pa.struct([("reason", pa.string()), ("message", pa.string()), ("raw", pa.string())])

#: Fields with a meaning have one type.
FIXED = {"seq": pa.int64(), "ordinal": pa.int64(), "event_time": TIMESTAMP}

DAY_US = 86_400_000_000

types = pa.types
Problems = dict[int, Problem]
Mask = npt.NDArray[np.bool_]


def declared(schema: pa.Schema, where: str) -> pa.Schema:
    """The schema as it may be declared: plain types, and ``seq``, ``ordinal`` and ``event_time`` with theirs."""
    fields = []
    for field in plain_schema(schema):
        kind = pa.int64() if is_ordinal(field.name) else FIXED.get(field.name, field.type)
        alike = types.is_integer if types.is_integer(kind) else types.is_timestamp
        if not (field.type.equals(kind) or types.is_null(field.type) or alike(field.type)):
            raise ConfigError(f"{where}: the field {field.name!r} must be {kind}, got {field.type}")
        fields.append(field.with_type(kind))
    twice = sorted({f.name for f in fields if schema.names.count(f.name) > 1})
    if twice:
        raise ConfigError(f"{where}: there are {schema.names.count(twice[0])} fields {twice[0]!r}")
    return pa.schema(fields, schema.metadata)


def check_types(name: str, have: pa.Schema, want: pa.Schema) -> None:
    """Raise unless a source of these fields can deliver those that are wanted."""
    for field in want:
        number = have.names.count(field.name)
        if number != 1:
            lacks = "lacks the field" if number == 0 else f"has {number} fields"
            raise ConfigError(
                f"the source {name!r} {lacks} {field.name!r}; it has {', '.join(have.names) or 'no fields'}"
                f"{did_you_mean(field.name, have.names)}"
            )
        kind = have.field(field.name).type
        if not castable(kind, field.type):
            raise ConfigError(
                f"the source {name!r}: the field {field.name!r} is {kind}, the dataflow declares {field.type}, "
                "and one cannot be cast to the other without loss"
            )


@dataclass(frozen=True)
class Intake:
    """The step in front of a source's first tasks, see the module's text.

    Parameters
    ----------
    schema : pyarrow.Schema
        What the dataflow declares; what :meth:`apply` returns has exactly this schema.
    place, of : int
        As each source numbers its own messages, message n is number ``n of + place`` of the dataflow, see
        :meth:`riot_ops.graph.graph.Graph.numbering`; of one source that is n.
    """

    schema: pa.Schema
    place: int = 0
    of: int = 1

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """The records that fit, as declared; the others are named in ``dead``."""
        batch = self._renumbered(batch)
        whole, rejected = batch, None
        if not batch.schema.equals(self.schema):
            whole, batch = batch, self._chosen(batch)
            if REJECTED in whole.schema.names:
                notes, whole = whole.column(REJECTED), whole.drop_columns([REJECTED])
                rejected = _rejected_before(whole, notes, dead)
        columns: list[pa.Array] = []
        problems: Problems = {}
        for column, field in zip(batch.columns, self.schema, strict=True):
            if not column.type.equals(field.type):
                column, wrong = cast(column, field.type)
                _note(problems, field.name, wrong)
            columns.append(column)
        for place, check in self._checks:
            _note(problems, self.schema.names[place], check(columns[place]))
        if rejected is None and not problems:
            return batch if batch.schema.equals(self.schema) else self._batch(columns)
        keep = np.ones(batch.num_rows, np.bool_) if rejected is None else ~rejected
        _reject(whole, {i: p for i, p in sorted(problems.items()) if keep[i]}, dead)
        keep[list(problems)] = False
        kept = pa.array(keep)
        return self._batch([c.filter(kept) for c in columns])

    def heartbeats(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """What the heartbeats among the batches of the source say, as marks of stream time."""
        found = [beat for batch in batches if (beat := heartbeat_of(batch)) is not None]
        if not found:
            return []
        seq, times = zip(*found, strict=True)
        numbers = pa.array([n * self.of + self.place for n in seq], pa.int64())
        return [pa.RecordBatch.from_arrays([numbers, pa.array(times, TIMESTAMP)], schema=MARKS)]

    def _renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.schema.get_field_index("seq")
        if self.of == 1 or column < 0 or not types.is_int64(batch.schema.field(column).type):
            return batch
        given = batch.column(column)
        if given.null_count:
            numbers = pc.add(pc.multiply(given, self.of), self.place)
        else:
            values = int_column(given) * self.of
            values += self.place
            numbers = pa.array(values)
        return batch.set_column(column, batch.schema.field(column), numbers)

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The declared fields, with the types that they came with."""
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
            if (check := _check_of(field.type)) is not None:
                found.append((i, check))
            if not field.nullable:
                found.append((i, _nulls))
        return found


def taken(batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
    """A batch whose fields nobody declared, as :func:`declared` has them; what Python cannot hold is rejected."""
    return _intake_of(batch.schema).apply(batch, dead)


@lru_cache(maxsize=64)
def _intake_of(schema: pa.Schema) -> Intake:
    return Intake(declared(pa.schema([f for f in schema if f.name != REJECTED]), "the records"))


# -- what a source could not read ------------------------------------------------------------------


def marked(
    batch: pa.RecordBatch, problems: Mapping[int, Problem], raw: Mapping[int, str] | None = None
) -> pa.RecordBatch:
    """The batch with a note of the rows that must be rejected; older notes stand.

    ``raw`` has the text of these rows; by default it is the row as JSON.
    """
    if not problems:
        return batch
    place = batch.schema.get_field_index(REJECTED)
    if raw is None:
        rows = (batch if place < 0 else batch.drop_columns([REJECTED])).take(pa.array(list(problems)))
        raw = dict(zip(problems, records_as_json(rows).to_pylist(), strict=True))
    notes: list[Any] = [None] * batch.num_rows if place < 0 else batch.column(place).to_pylist()
    for row, problem in problems.items():
        notes[row] = notes[row] or {"reason": problem.reason, "message": encodable(problem.text), "raw": raw[row]}
    column = pa.array(notes, REJECTION)
    return batch.append_column(REJECTED, column) if place < 0 else batch.set_column(place, REJECTED, column)


def from_records(
    records: Sequence[Mapping[str, Any]], schema: pa.Schema, unread: Mapping[int, tuple[Problem, str]] | None = None
) -> pa.RecordBatch:
    """Dicts as a batch; rows with cells that do not fit, and those that were ``unread``, are :func:`marked`."""
    unread = unread or {}
    problems = {i: problem for i, (problem, _) in unread.items()}
    fields, columns = [], []
    for field in schema:
        column, wrong = from_values([record.get(field.name) for record in records], field.type)
        _note(problems, field.name, wrong)
        columns.append(column)
        fields.append(field.with_nullable(True))
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if fields else bare(len(records))
    texts = {i: unread[i][1] if i in unread else json_text(records[i]) for i in problems}
    return marked(batch, problems, texts)


def alike(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches of which some are :func:`marked`, with one schema."""
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return batches
    return [
        b if REJECTED in b.schema.names else b.append_column(REJECTED, pa.nulls(b.num_rows, REJECTION)) for b in batches
    ]


def bare(rows: int) -> pa.RecordBatch:
    """Records without a field."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _rejected_before(batch: pa.RecordBatch, notes: pa.Array, dead: DeadLetters) -> Mask:
    mask: Mask = np.asarray(notes.is_valid())
    reasons, messages, raw = (cells(part) for part in notes.flatten())
    for reason in sorted({reasons[i] for i in np.flatnonzero(mask)}):
        rows = np.array([i for i in np.flatnonzero(mask) if reasons[i] == reason])
        dead.reject(batch, rows, reason, [messages[i] for i in rows], pa.array(raw, pa.string()))
    return mask


# -- checks of columns -----------------------------------------------------------------------------


def _note(problems: Problems, name: str, wrong: Mapping[int, Problem]) -> None:
    """Add what is wrong with a field; the first problem of a record stands."""
    for row, problem in wrong.items():
        problems.setdefault(row, Problem(problem.reason, f"{name} {problem.text}"))


def _reject(batch: pa.RecordBatch, problems: Problems, dead: DeadLetters) -> None:
    for reason in sorted({p.reason for p in problems.values()}):
        rows = [i for i, p in problems.items() if p.reason == reason]
        dead.reject(batch, np.array(rows), reason, [problems[i].text for i in rows])


def _check_of(kind: pa.DataType) -> Callable[[pa.Array], Problems] | None:
    """What to look at in a column of a type: Python must be able to hold its values."""
    if types.is_string(kind) or types.is_large_string(kind):
        return _spoilt
    if types.is_date(kind) or types.is_timestamp(kind):
        return _beyond(kind)
    if types.is_nested(kind):
        return _unreadable
    return None


def _nulls(column: pa.Array) -> Problems:
    if not column.null_count:
        return {}
    return {int(i): Problem("missing", "is null") for i in np.flatnonzero(np.asarray(column.is_null()))}


def _beyond(kind: pa.DataType) -> Callable[[pa.Array], Problems] | None:
    """The check of times: one look at the least and the greatest, a second where those are out of range."""
    dtype: type[np.int32 | np.int64]
    if types.is_date32(kind):
        dtype, unit = np.int32, DAY_US
    else:
        per_second = PER_SECOND["ms" if types.is_date64(kind) else kind.unit]
        if per_second > PER_SECOND["us"]:
            return None  # its range is narrower
        dtype, unit = np.int64, PER_SECOND["us"] // per_second
    spare = DAY_US if types.is_timestamp(kind) and kind.tz not in (None, "UTC") else 0
    least, most = -((-EARLIEST - spare) // unit), (LATEST - spare) // unit

    def check(column: pa.Array) -> Problems:
        buffer = column.buffers()[1]
        if buffer is None or not len(column):
            return {}
        values = np.frombuffer(buffer, dtype, len(column), column.offset * dtype().itemsize)
        if values.min() >= least and values.max() <= most:
            return {}
        beyond = (np.less(values, least) | np.greater(values, most)) & np.asarray(column.is_valid())
        text = f"is not within the years 1 to 9999 ({kind})"
        return {int(i): Problem("out_of_range", f"= {values[i]} {text}") for i in np.flatnonzero(beyond)}

    return check


def _spoilt(column: pa.Array) -> Problems:
    """The check of text, which Arrow takes from others as it is."""
    data, starts, ends, _ = byte_spans(column)
    used = data[starts[0] : ends[-1]] if starts.size else data[:0]
    if not used.size or used.max() < 128:
        return {}
    try:
        used.tobytes().decode()
        if not ((data[starts[starts < ends]] & 0xC0) == 0x80).any():
            return {}  # all of it is valid, and no value begins within a character
    except UnicodeDecodeError:
        pass
    raw = column.cast(pa.large_binary())
    found = np.flatnonzero(not_utf8(raw))
    return {int(i): Problem("invalid_utf8", f"= {short(raw[int(i)].as_py())} is not UTF-8") for i in found}


def _unreadable(column: pa.Array) -> Problems:
    """The check of nested values, one by one only where all at once fail."""
    if _reads(column):
        return {}
    bad = [i for i in range(len(column)) if not _reads(column.slice(i, 1))]
    return {i: Problem("out_of_range", f"of type {column.type} holds what no value can be") for i in bad}


def _reads(column: pa.Array) -> bool:
    try:
        column.to_pylist()
    except (ValueError, OverflowError):
        return False
    return True
