"""A batch of SenML messages, read piece by piece into batches of observations of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import RecordError
from riot_ops.core.order import carried, next_ordinal, ordinals
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import PIECE_BYTES, byte_spans, int_column, pieces, readonly, text_sizes
from riot_ops.kernels.text.senml import messages as senml
from riot_ops.kernels.text.senml.exact import Bad, Record, parse_message, parse_records, patch
from riot_ops.tasks.parse.senml_columns import Layout, Parsing, assembled, layout_of, selected

__all__ = ["observations"]

I64 = npt.NDArray[np.int64]

#: Records read one by one that are held at a time.
MOST_RECORDS = 1 << 16


class Rejections:
    """What is wrong with the messages of a batch, and with single records of them."""

    def __init__(self) -> None:
        self.messages: dict[str, tuple[list[int], list[str]]] = {}
        self.records: list[tuple[int, Bad]] = []

    def message(self, i: int, error: RecordError) -> None:
        rows, texts = self.messages.setdefault(error.reason, ([], []))
        rows.append(i)
        texts.append(str(error))

    def send(self, batch: pa.RecordBatch, payload: pa.Array, dead: DeadLetters) -> npt.NDArray[np.bool_]:
        """Hand all of it over; returns which messages are left."""
        good = np.ones(batch.num_rows, np.bool_)
        for reason, (rows, texts) in self.messages.items():
            good[rows] = False
            dead.reject(batch, np.array(rows), reason, texts, raw=payload)
        for reason in dict.fromkeys(bad.error.reason for _, bad in self.records):
            which = [(i, bad) for i, bad in self.records if bad.error.reason == reason]
            origin = batch.take(pa.array([i for i, _ in which]))
            texts, raw = [str(bad.error) for _, bad in which], pa.array([bad.raw for _, bad in which], pa.string())
            dead.reject(origin, np.arange(len(which)), reason, texts, raw=raw)
        return good


def observations(task: Parsing, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """The output of the task, in batches of limited size; at least one."""
    payload = batch.column(task.field)
    if pa.types.is_null(payload.type):
        payload = payload.cast(pa.binary())
    # of the input nothing else is needed: what is taken of it is small
    around = batch.select([n for n in carried(batch.schema.names) if n != task.field])
    if not around.num_columns:
        around = pa.RecordBatch.from_arrays([pa.nulls(len(payload))], ["_"])
    sizes = text_sizes(payload)
    schema = task.output_schema(batch.schema)
    for start, stop in pieces(sizes):
        part, lengths = around.slice(start, stop - start), sizes[start:stop]
        texts = payload.slice(start, stop - start)
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
        texts = texts.cast(pa.large_binary() if wide else pa.binary())
        read = _any_records if task.schema is None else _known_fields
        yield from read(task, part, texts, lengths, schema, dead)


def _too_large(task: Parsing, lengths: I64, rejections: Rejections) -> npt.NDArray[np.bool_]:
    large: npt.NDArray[np.bool_] = lengths > task.max_bytes
    for i in np.flatnonzero(large).tolist():
        error = f"the message is {lengths[i]:,} bytes long; at most {task.max_bytes:,} are accepted (max_bytes)"
        rejections.message(i, RecordError(error, reason="too_large"))
    return large


def _too_much(task: Parsing, size: int) -> RecordError:
    return RecordError(
        f"the message's records would hold {size:,} bytes of text together; "
        f"at most {task.max_output_bytes:,} are accepted (max_output_bytes)",
        reason="too_large",
    )


def _known_fields(
    task: Parsing, batch: pa.RecordBatch, payload: pa.Array, lengths: I64, schema: pa.Schema, dead: DeadLetters
) -> Iterator[pa.RecordBatch]:
    """Messages of a schema."""
    layout = layout_of(task)
    plan, n = layout.plan, batch.num_rows
    rejections = Rejections()
    large = _too_large(task, lengths, rejections)
    data, starts, ends, valid = byte_spans(payload)
    todo = readonly(~large & (valid if valid.size else True)) if large.any() else valid
    columns = senml.parse_messages(data, starts, ends, todo, plan)
    offsets = columns.offsets.reshape(n, plan.n_times)
    times = _event_times(batch)
    if columns.found[2]:
        missing = columns.parsed & (columns.base == senml.NO_TIME)
        columns.base[missing] = times[missing]
    if columns.found[1]:  # what is wrong with a time is for the exact reader to say
        after = columns.base[:, None] + np.where(columns.parsed[:, None], offsets, 0)
        outside = (offsets != 0) & ((after < senml.MIN_TIME) | (after > senml.MAX_TIME))
        columns.parsed[columns.parsed & outside.any(axis=1)] = False
    extra = bytearray()  # texts of messages that the kernels did not take
    dropped: npt.NDArray[np.bool_] | None = None
    for i in np.flatnonzero(~columns.parsed & ~large).tolist():
        try:
            message = parse_message(
                payload[i].as_py(), layout.wanted, plan, int(times[i]), alone=task.on_bad != "message"
            )
        except RecordError as error:
            rejections.message(i, error)
            continue
        patch(columns, plan, i, message, data.size, extra)
        columns.parsed[i] = True
        for bad in message.bad:
            rejections.records.append((i, bad))
            if task.on_bad == "record" and bad.place < len(layout.fields) and not layout.wide:
                dropped = np.zeros((n, len(layout.fields)), np.bool_) if dropped is None else dropped
                dropped[i, bad.place] = True
    if extra:
        data = np.concatenate([data, np.frombuffer(bytes(extra), np.uint8)])
    copies = 1 if layout.wide else len(layout.fields)
    # what a message's texts can come to at the very most; mostly that will do
    output = lengths * (3 * copies + 1)
    if int(output.max(initial=0)) > task.max_output_bytes or int(output.sum()) > PIECE_BYTES:
        output = _output_bytes(columns, layout, copies)
        for i in np.flatnonzero(columns.parsed & (output > task.max_output_bytes)).tolist():
            rejections.message(i, _too_much(task, int(output[i])))
    if rejections.messages or rejections.records:
        good = rejections.send(batch, payload, dead)
        if not good.all():
            rows = np.flatnonzero(good)
            columns, output = selected(columns, plan, rows), output[rows]
            dropped = None if dropped is None else dropped[rows]
            batch = batch.take(pa.array(rows))
    source = readonly(data)
    for start, stop in pieces(output):
        part = columns if stop - start == len(columns.base) else selected(columns, plan, np.arange(start, stop))
        out = assembled(batch.slice(start, stop - start), schema, layout, part, source)
        yield out if dropped is None else out.filter(pa.array(~dropped[start:stop].ravel()))


def _output_bytes(columns: senml.Columns, layout: Layout, copies: int) -> I64:
    """Bytes of text that come of each message."""
    plan = layout.plan
    n = len(columns.base)
    lengths = np.where(columns.parsed[:, None], columns.lengths.reshape(n, plan.n_texts), 0)
    once = lengths.sum(axis=1)
    repeated = lengths[:, plan.text_of[plan.identity]].copy()
    if layout.meta:
        repeated += sum(lengths[:, plan.text_of[layout.wanted.index(m)]] + 1 for m in layout.meta_texts) + 20
    return np.asarray(once + copies * repeated, np.int64)


def _any_records(
    task: Parsing, batch: pa.RecordBatch, payload: pa.Array, lengths: I64, schema: pa.Schema, dead: DeadLetters
) -> Iterator[pa.RecordBatch]:
    """Messages without a schema, one by one."""
    rejections = Rejections()
    large = _too_large(task, lengths, rejections)
    times = _event_times(batch)
    found: list[tuple[int, str | None, Record]] = []
    size = 0
    for i in np.flatnonzero(~large).tolist():
        try:
            sensor, records, bad = parse_records(
                payload[i].as_py(),
                int(times[i]),
                concatenate=task.concatenate_names,
                units=task.units,
                alone=task.on_bad != "message",
            )
            texts = [r.name for r in records] + [r.text for r in records] + [r.unit for r in records]
            output = len(records) * _bytes(sensor) + sum(map(_bytes, texts))
            if output > task.max_output_bytes:
                raise _too_much(task, output)
        except RecordError as error:
            rejections.message(i, error)
            continue
        rejections.records.extend((i, b) for b in bad)
        found.extend((i, sensor, r) for r in records)
        size += output
        if len(found) > MOST_RECORDS or size > PIECE_BYTES:
            yield _records(batch, schema, found)
            found, size = [], 0
    rejections.send(batch, payload, dead)
    yield _records(batch, schema, found)


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


def _records(batch: pa.RecordBatch, schema: pa.Schema, found: list[tuple[int, str | None, Record]]) -> pa.RecordBatch:
    index = pa.array([i for i, _, _ in found], pa.int64())
    places = np.array([r.place for _, _, r in found], np.int64)
    named = {
        next_ordinal(batch.schema.names): pa.array(places),
        "event_time": pa.array([r.time for *_, r in found], pa.int64()).cast(TIMESTAMP),
        "sensor_id": pa.array([s for _, s, _ in found], pa.string()),
        "obs_type": pa.array([r.name for *_, r in found], pa.string()),
        "value": pa.array([r.value for *_, r in found], pa.float64()),
        "text": pa.array([r.text for *_, r in found], pa.string()),
        "unit": pa.array([r.unit for *_, r in found], pa.string()),
    }
    for name in ("seq", *ordinals(batch.schema.names)):
        if name in schema.names:
            named[name] = batch.column(name).take(index)
    return pa.RecordBatch.from_arrays([named[name] for name in schema.names], schema=schema)


def _event_times(batch: pa.RecordBatch) -> I64:
    if "event_time" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    return int_column(batch.column("event_time").cast(TIMESTAMP))
