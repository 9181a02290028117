"""Reading of SenML messages into batches of observations of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import RecordError
from riot_ops.core.order import carried_fields, next_ordinal, ordinals
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import (
    CHUNK_BYTES,
    NO_MASK,
    byte_spans,
    chunk_ranges,
    int_column,
    readonly,
    text_chunk_ranges,
    text_lengths,
)
from riot_ops.kernels.text.senml import messages as senml
from riot_ops.kernels.text.senml.python_parser import (
    BadRecord,
    Dialect,
    Record,
    parse_message,
    parse_records,
    write_message,
)
from riot_ops.tasks.parse.senml_layout import (
    Layout,
    SenMLOptions,
    assemble_batch,
    micros_per_unit,
    select_messages,
)

__all__ = ["read_messages"]

I64 = npt.NDArray[np.int64]
NO_TIMES = np.empty(0, np.int64)

#: Without a schema: an output batch ends when it has more records.
MAX_BUFFERED_RECORDS = 1 << 16


class Rejections:
    """Errors of messages, and of single records in them, collected for a batch."""

    def __init__(self) -> None:
        self.messages: dict[str, tuple[list[int], list[str]]] = {}
        self.records: list[tuple[int, BadRecord]] = []

    def add_message(self, i: int, error: RecordError) -> None:
        rows, texts = self.messages.setdefault(error.reason, ([], []))
        rows.append(i)
        texts.append(str(error))

    def send(self, batch: pa.RecordBatch, payload: pa.Array, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
        """Reject all of them; returns which messages are valid."""
        good = np.ones(batch.num_rows, np.bool_)
        for reason, (rows, texts) in self.messages.items():
            good[rows] = False
            errors.reject(batch, np.array(rows), reason, texts, raw=payload)
        for reason in dict.fromkeys(bad.error.reason for _, bad in self.records):
            which = [(i, bad) for i, bad in self.records if bad.error.reason == reason]
            origin = batch.take(pa.array([i for i, _ in which]))
            texts, raw = [str(bad.error) for _, bad in which], pa.array([bad.raw for _, bad in which], pa.string())
            errors.reject(origin, np.arange(len(which)), reason, texts, raw=raw)
        return good


def read_messages(task: SenMLOptions, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
    """Read the messages into output batches of limited size; at least one."""
    payload = batch.column(task.field)
    if pa.types.is_null(payload.type):
        payload = payload.cast(pa.binary())
    # only the columns that the output repeats
    around = batch.select([n for n in carried_fields(batch.schema.names) if n != task.field])
    if not around.num_columns:
        around = pa.RecordBatch.from_arrays([pa.nulls(len(payload))], ["_"])
    schema = task.output_schema(batch.schema)
    for start, stop in text_chunk_ranges(payload):
        part, texts = around, payload
        if stop - start < len(payload):
            part, texts = around.slice(start, stop - start), payload.slice(start, stop - start)
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
        texts = texts.view(pa.large_binary() if wide else pa.binary())
        read = _read_any_messages if task.schema is None else _read_schema_messages
        yield from read(task, part, texts, schema, errors)


def _reject_large(task: SenMLOptions, lengths: I64, rejections: Rejections) -> npt.NDArray[np.bool_]:
    large: npt.NDArray[np.bool_] = lengths > task.max_bytes
    for i in np.flatnonzero(large).tolist():
        error = f"the message is {lengths[i]:,} bytes long; at most {task.max_bytes:,} are accepted (max_bytes)"
        rejections.add_message(i, RecordError(error, reason="too_large"))
    return large


def _oversize_error(task: SenMLOptions, size: int) -> RecordError:
    return RecordError(
        f"the message's records would hold {size:,} bytes of text together; "
        f"at most {task.max_output_bytes:,} are accepted (max_output_bytes)",
        reason="too_large",
    )


def _read_schema_messages(
    task: SenMLOptions, batch: pa.RecordBatch, payload: pa.Array, schema: pa.Schema, errors: RejectedRecords
) -> Iterator[pa.RecordBatch]:
    """Read messages of a schema with the kernel, and those it leaves open in Python."""
    layout = task.resolved
    plan, n = layout.plan, batch.num_rows
    rejections = Rejections()
    data, starts, ends, valid = byte_spans(payload)
    lengths = ends - starts if not valid.size else np.where(valid, ends - starts, 0)
    size = int(ends[-1] - starts[0]) if n else 0  # nulls may have bytes as well
    large, todo = NO_MASK, valid
    if size > task.max_bytes and (large := _reject_large(task, lengths, rejections)).any():
        todo = readonly(~large & (valid if valid.size else True))
    columns = senml.parse_messages(data, starts, ends, todo, plan)
    _, moved, untimed, parsed = columns.found.tolist()
    offsets = columns.offsets.reshape(n, plan.n_times)
    if plan.micros == senml.SECONDS:  # the exact reader reads times relative to that of the message
        after = np.where(columns.parsed & (columns.base != senml.NO_TIME), columns.base, 0)
        least = np.where(columns.parsed, offsets.min(axis=1, initial=0), 0)
        columns.parsed[after + least < senml.RELATIVE_BELOW] = False
    if untimed:
        missing = columns.parsed & (columns.base == senml.NO_TIME)
        columns.base[missing] = _event_times(batch)[missing]
    if moved:  # the exact reader reports times out of range
        after = columns.base[:, None] + np.where(columns.parsed[:, None], offsets, 0)
        outside = (offsets != 0) & ((after < senml.MIN_TIME) | (after > senml.MAX_TIME))
        columns.parsed[columns.parsed & outside.any(axis=1)] = False
    extra = bytearray()  # texts of messages that were read in Python
    dropped: npt.NDArray[np.bool_] | None = None
    whole = parsed == n and not moved and plan.micros != senml.SECONDS
    left = [] if whole else np.flatnonzero(~columns.parsed).tolist()
    times = _event_times(batch) if left else NO_TIMES
    for i in left:
        if large.size and large[i]:
            continue
        try:
            message = parse_message(
                payload[i].as_py(), layout.wanted, plan, int(times[i]), alone=task.on_error != "message"
            )
        except RecordError as error:
            rejections.add_message(i, error)
            continue
        write_message(columns, plan, i, message, data.size, extra)
        columns.parsed[i] = True
        for bad in message.bad:
            rejections.records.append((i, bad))
            if task.on_error == "record" and bad.place < len(layout.fields) and not layout.wide:
                dropped = np.zeros((n, len(layout.fields)), np.bool_) if dropped is None else dropped
                dropped[i, bad.place] = True
    if extra:
        data = np.concatenate([data, np.frombuffer(bytes(extra), np.uint8)])
    copies = 1 if layout.wide else len(layout.fields)
    # an upper bound first: usually no message is near the limit
    total = size * (3 * copies + 1)
    output = lengths if (small := total <= min(task.max_output_bytes, CHUNK_BYTES)) else lengths * (3 * copies + 1)
    if not small and (total > CHUNK_BYTES or int(output.max(initial=0)) > task.max_output_bytes):
        output = _output_bytes(columns, layout, copies)
        for i in np.flatnonzero(columns.parsed & (output > task.max_output_bytes)).tolist():
            rejections.add_message(i, _oversize_error(task, int(output[i])))
    if rejections.messages or rejections.records:
        good = rejections.send(batch, payload, errors)
        if not good.all():
            rows = np.flatnonzero(good)
            columns, output = select_messages(columns, plan, rows), output[rows]
            dropped = None if dropped is None else dropped[rows]
            batch = batch.take(pa.array(rows))
    source = readonly(data)
    for start, stop in [(0, len(output))] if small else chunk_ranges(output):
        part, around = columns, batch
        if stop - start < len(columns.base):
            part, around = select_messages(columns, plan, np.arange(start, stop)), batch.slice(start, stop - start)
        out = assemble_batch(around, schema, layout, part, source)
        yield out if dropped is None else out.filter(pa.array(~dropped[start:stop].ravel()))


def _output_bytes(columns: senml.Columns, layout: Layout, copies: int) -> I64:
    """Return the bytes of text that each message adds to the output."""
    plan = layout.plan
    n = len(columns.base)
    lengths = np.where(columns.parsed[:, None], columns.lengths.reshape(n, plan.n_texts), 0)
    once = lengths.sum(axis=1)
    repeated = lengths[:, plan.text_of[plan.identity]].copy()
    if layout.meta:
        repeated += sum(lengths[:, plan.text_of[layout.wanted.index(m)]] + 1 for m in layout.meta_texts) + 20
    return np.asarray(once + copies * repeated, np.int64)


def _read_any_messages(
    task: SenMLOptions, batch: pa.RecordBatch, payload: pa.Array, schema: pa.Schema, errors: RejectedRecords
) -> Iterator[pa.RecordBatch]:
    """Read messages without a schema, one by one."""
    rejections = Rejections()
    large = _reject_large(task, text_lengths(payload), rejections)
    times = _event_times(batch)
    found: list[tuple[int, Record]] = []
    dialect = Dialect(micros_per_unit(task), task.units)
    size = 0
    for i in np.flatnonzero(~large).tolist():
        try:
            records, bad = parse_records(
                payload[i].as_py(),
                int(times[i]),
                dialect=dialect,
                concatenate=task.concatenate_names,
                sums=task.sums,
                alone=task.on_error != "message",
            )
            output = sum(_bytes(text) for r in records for text in (r.sensor, r.name, r.text, r.unit))
            if output > task.max_output_bytes:
                raise _oversize_error(task, output)
        except RecordError as error:
            rejections.add_message(i, error)
            continue
        rejections.records.extend((i, b) for b in bad)
        found.extend((i, r) for r in records)
        size += output
        if len(found) > MAX_BUFFERED_RECORDS or size > CHUNK_BYTES:
            yield _records_batch(batch, schema, found)
            found, size = [], 0
    rejections.send(batch, payload, errors)
    yield _records_batch(batch, schema, found)


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


def _records_batch(batch: pa.RecordBatch, schema: pa.Schema, found: list[tuple[int, Record]]) -> pa.RecordBatch:
    index = pa.array([i for i, _ in found], pa.int64())
    places = np.array([r.place for _, r in found], np.int64)
    named = {
        next_ordinal(batch.schema.names): pa.array(places),
        "event_time": pa.array([r.time for _, r in found], pa.int64()).cast(TIMESTAMP),
        "sensor_id": pa.array([r.sensor for _, r in found], pa.string()),
        "obs_type": pa.array([r.name for _, r in found], pa.string()),
        "value": pa.array([r.value for _, r in found], pa.float64()),
        "text": pa.array([r.text for _, r in found], pa.string()),
        "sum": pa.array([r.total for _, r in found], pa.float64()),
        "unit": pa.array([r.unit for _, r in found], pa.string()),
    }
    for name in ("seq", *ordinals(batch.schema.names)):
        if name in schema.names:
            named[name] = batch.column(name).take(index)
    return pa.RecordBatch.from_arrays([named[name] for name in schema.names], schema=schema)


def _event_times(batch: pa.RecordBatch) -> I64:
    if "event_time" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    column = batch.column("event_time")
    return int_column(column if column.type.equals(TIMESTAMP) else column.cast(TIMESTAMP))
