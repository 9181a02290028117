"""The fields that :class:`ParseSenML` reads from a message, and the output columns built from them."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import ordinals
from riot_ops.core.parameters import Names
from riot_ops.core.schema import TIMESTAMP, StreamSchema, stream_schema
from riot_ops.kernels.arrays.arrow import (
    INT64,
    NO_MASK,
    check_text_bytes,
    int64_column,
    nullable_column,
    numpy_values,
    readonly,
    strings_from_spans,
)
from riot_ops.kernels.text.senml import messages as senml

__all__ = ["Layout", "assemble_batch", "micros_per_unit", "resolve_layout", "select_messages"]

I64 = npt.NDArray[np.int64]
STRING = pa.string()


class SenMLOptions(Hashable, Protocol):
    """The parameters of :class:`~riot_ops.tasks.ParseSenML`, which imports this module."""

    @property
    def schema(self) -> str | StreamSchema | None: ...
    @property
    def fields(self) -> Names | None: ...
    @property
    def layout(self) -> str: ...
    @property
    def meta(self) -> bool: ...
    @property
    def raw(self) -> bool: ...
    @property
    def field(self) -> str: ...
    @property
    def concatenate_names(self) -> bool: ...
    @property
    def units(self) -> bool: ...
    @property
    def time_unit(self) -> str | None: ...
    @property
    def sums(self) -> bool: ...
    @property
    def on_error(self) -> str: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def max_output_bytes(self) -> int: ...
    @property
    def resolved(self) -> Layout: ...
    def output_schema(self, schema: pa.Schema) -> pa.Schema: ...


def micros_per_unit(task: SenMLOptions) -> int:
    """Return the microseconds in a unit of the times in messages."""
    unit = task.time_unit or ("s" if task.schema is None else "ms")
    return senml.SECONDS if unit == "s" else 1000


class Layout(NamedTuple):
    """The resolved fields of a task; ``wanted`` are the emitted fields and those for sensor and meta."""

    schema: StreamSchema
    fields: tuple[str, ...]
    is_text: tuple[bool, ...]
    wanted: tuple[str, ...]
    plan: senml.Plan
    with_text: bool
    with_unit: bool
    wide: bool
    meta: bool
    meta_texts: tuple[str, ...]
    identity: int  # the text column of the sensor
    meta_parts: I64  # the text column of each field of ``meta``, -1 for the time


@functools.lru_cache(maxsize=64)
def resolve_layout(task: SenMLOptions) -> Layout:
    """Resolve the fields that a task with a schema reads from a message."""
    assert task.schema is not None
    schema = stream_schema(task.schema)
    kinds = dict(zip(schema.columns, schema.kinds, strict=True))
    chosen = set(schema.observed if task.fields is None else task.fields)
    fields = tuple(c for c in schema.columns if c in chosen and c != schema.time_field)
    meta = tuple(c for c in schema.meta if c != schema.time_field) if task.meta else ()
    wanted = tuple(dict.fromkeys([*fields, schema.id_field, *meta]))
    wide = task.layout == "wide"
    values, texts = 0, 0
    value_of, text_of = [-1] * len(wanted), [-1] * len(wanted)
    for j, name in enumerate(wanted):
        emitted = j < len(fields)
        if emitted and not (wide and kinds[name] == "sv"):
            value_of[j] = values
            values += 1
        if name == schema.id_field or name in meta or (emitted and (task.raw or kinds[name] == "sv")):
            text_of[j] = texts
            texts += 1
    unit_of = [-1] * len(wanted)
    if task.units:
        unit_of[: len(fields)] = range(texts, texts + len(fields))
    is_text = tuple(kinds[f] == "sv" for f in fields)
    plan = senml.make_plan(
        wanted,
        value_of,
        text_of,
        unit_of,
        [kinds[n] == "sv" for n in wanted],
        wanted.index(schema.id_field),
        0 if wide else len(fields),
        task.concatenate_names,
        micros_per_unit(task),
    )
    with_text = not wide and (task.raw or any(is_text))
    parts = [-1 if c == schema.time_field else text_of[wanted.index(c)] for c in schema.meta] if task.meta else []
    return Layout(
        schema,
        fields,
        is_text,
        wanted,
        plan,
        with_text,
        task.units,
        wide,
        task.meta,
        meta,
        text_of[wanted.index(schema.id_field)],
        readonly(np.array(parts, np.int64)),
    )


# -- output columns --------------------------------------------------------------------------------


def select_messages(columns: senml.Columns, plan: senml.Plan, rows: I64) -> senml.Columns:
    """Return the columns of the messages in ``rows``."""
    n = len(columns.base)
    return columns._replace(
        base=columns.base[rows],
        values=columns.values.reshape(n, plan.n_values)[rows].ravel(),
        starts=columns.starts.reshape(n, plan.n_texts)[rows].ravel(),
        lengths=columns.lengths.reshape(n, plan.n_texts)[rows].ravel(),
        offsets=columns.offsets.reshape(n, plan.n_times)[rows].ravel(),
    )


def assemble_batch(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    layout: Layout,
    columns: senml.Columns,
    data: npt.NDArray[np.uint8],
) -> pa.RecordBatch:
    """Build the output batch from the columns read; ``data`` is the text that they point into."""
    plan = layout.plan
    n = len(columns.base)
    times = 1 if layout.wide else len(layout.fields)
    starts, lengths = columns.starts.reshape(n, plan.n_texts), columns.lengths.reshape(n, plan.n_texts)
    has_missing, moved, *_ = columns.found.tolist()
    names, carried = schema.names, batch.schema.names
    named = {"value": _floats(columns.values, has_missing)}
    named.update(zip(("sensor_id", "meta"), _repeated_texts(layout, columns, data, times), strict=False))
    if "seq" in names:
        named["seq"] = _repeated(batch.column("seq"), times)
    base = columns.base.repeat(times)
    if not layout.wide:
        if moved:
            base += columns.offsets
        named["obs_type"], own = _constant_columns(layout.fields, n)
    named["event_time"] = int64_column(base, TIMESTAMP)
    for name in ordinals(names):
        named[name] = _repeated(batch.column(name), times) if name in carried else own
    if layout.wide:
        values = columns.values.reshape(n, plan.n_values)
        for j, name in enumerate(layout.fields):
            k = plan.value_of[j]
            named[name] = (
                strings_from_spans(
                    data, *(np.ascontiguousarray(part[:, plan.text_of[j]]) for part in (starts, lengths))
                )
                if k < 0
                else _floats(np.ascontiguousarray(values[:, k]), has_missing)
            )
    if layout.with_text:
        chosen = plan.text_of[:times]
        all_starts = np.where(chosen >= 0, starts[:, chosen], -1).ravel()
        named["text"] = strings_from_spans(data, all_starts, lengths[:, chosen].ravel())
    if layout.with_unit:
        chosen = plan.unit_of[:times]
        named["unit"] = strings_from_spans(data, starts[:, chosen].ravel(), lengths[:, chosen].ravel())
    return pa.RecordBatch.from_arrays([named[name] for name in names], schema=schema)


def _floats(values: npt.NDArray[np.float64], has_missing: int) -> pa.Array:
    return nullable_column(values, np.isnan(values) if has_missing else NO_MASK)


def _repeated(column: pa.Array, times: int) -> pa.Array:
    if times == 1:
        return column
    if column.type.id == INT64 and not column.null_count:
        return int64_column(numpy_values(column).repeat(times))
    return column.take(pa.array(np.repeat(np.arange(len(column)), times)))


def _repeated_texts(layout: Layout, columns: senml.Columns, data: npt.NDArray[np.uint8], times: int) -> list[pa.Array]:
    """Return the column ``sensor_id``, and ``meta`` if the task has it."""
    rows = columns.base.size * times
    spans = (columns.starts, columns.lengths, columns.base, layout.plan.n_texts, layout.identity, layout.meta_parts)
    offsets = np.empty(rows + 1, np.int32), np.empty(rows + 1, np.int32)
    sizes = senml.measure_texts(*spans, times, *offsets)
    check_text_bytes(max(sizes))
    texts = np.empty(sizes[0] + 8, np.uint8), np.empty(sizes[1] + 8, np.uint8)
    senml.write_texts(data, *spans, times, *offsets, *texts)
    return [
        pa.Array.from_buffers(STRING, rows, [None, pa.py_buffer(offsets[i]), pa.py_buffer(texts[i][: sizes[i]])], 0)
        for i in range(1 + layout.meta)
    ]


def _constant_columns(fields: tuple[str, ...], n: int) -> tuple[pa.Array, pa.Array]:
    """``obs_type`` and ``ordinal`` of n messages: equal in every batch, so slices of a shared pair."""
    size = n * len(fields)
    if size > 1 << 20:
        return _build_constant_columns(fields, n)
    obs_type, ordinal = _shared_columns(fields, 1 << max(6, (n - 1).bit_length()))
    return obs_type.slice(0, size), ordinal.slice(0, size)


@functools.lru_cache(maxsize=8)
def _shared_columns(fields: tuple[str, ...], n: int) -> tuple[pa.Array, pa.Array]:
    return _build_constant_columns(fields, n)


def _build_constant_columns(fields: tuple[str, ...], n: int) -> tuple[pa.Array, pa.Array]:
    encoded = [name.encode() for name in fields]
    lengths = np.tile(np.array([len(e) for e in encoded]), n)
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    text = np.tile(np.frombuffer(b"".join(encoded), np.uint8), n)
    names = pa.Array.from_buffers(pa.string(), lengths.size, [None, pa.py_buffer(offsets), pa.py_buffer(text)], 0)
    return names, pa.array(np.tile(np.arange(len(fields)), n))
