"""A snapshot of state as bytes: two Arrow IPC streams, of rows and of keys, under a checksum; and whose it is."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import StateError
from riot_ops.core.operator import KeyedOperator, Operator, StateField

__all__ = [
    "META",
    "NAMES",
    "TIME",
    "check_identity",
    "decode_field",
    "encode_field",
    "from_ipc",
    "pack_snapshot",
    "reference",
    "snapshot_of",
    "state_identity",
    "task_identity",
    "to_ipc",
    "unpack_snapshot",
]

#: How snapshots are written.
FORMAT = "1"
#: Below this size Arrow's messages are put together, at a fifth of what a stream costs; of more there would be a copy.
SMALL_BYTES = 1 << 16
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
#: Who wrote the snapshot, among the metadata of its rows.
META = b"riot_ops.state"
#: The fields of the task's output, among those of its keys.
NAMES = b"riot_ops.output"
#: Stream time and the message that moved it there, among them too; of a task without a clock nothing.
TIME = b"riot_ops.time"


def snapshot_of(
    identity: bytes,
    names: list[str],
    time: list[int],
    rows: Mapping[str, pa.Array],
    keys: pa.RecordBatch,
    new: int,
) -> bytes:
    """A snapshot of some slots, with the keys of those from ``new`` on, none of which is left out.

    ``identity`` is that of :func:`state_identity`, as JSON.
    """
    slots = rows["slot"]
    end = slots[-1].as_py() + 1 if len(slots) else 0
    if new < min(end, keys.num_rows):
        added = keys.slice(new, end - new)
    else:  # of an empty slice Arrow would write all text offsets
        added = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in keys.schema], schema=keys.schema)
    state = pa.RecordBatch.from_arrays([*rows.values()], names=[*rows], metadata={META: identity})
    notes = {NAMES: json.dumps(names).encode(), TIME: json.dumps(time).encode()}
    return pack_snapshot(new, to_ipc(state), to_ipc(added.replace_schema_metadata(notes)))


def pack_snapshot(new: int, rows: bytes | memoryview, keys: bytes | memoryview) -> bytes:
    """A snapshot of its parts: rows and keys as Arrow IPC, and the slot that the first of the keys belongs to."""
    head = msgspec.msgpack.encode([_checksum(new, rows, keys), new])[1:]
    # a list of four in MessagePack, put together here: its encoder would copy what is large several times
    return b"".join((b"\x94", head, _binary(rows), rows, _binary(keys), keys))


def _binary(part: bytes | memoryview) -> bytes:
    """What comes before bytes in MessagePack."""
    return struct.pack(">BI", 0xC6, memoryview(part).nbytes)


def unpack_snapshot(
    data: bytes, where: str = ""
) -> tuple[dict[str, Any], list[str], list[int], int, pa.RecordBatch, pa.RecordBatch]:
    """Who wrote a snapshot, fields of the output, stream time, the slot of the first of the keys, rows, and keys."""
    try:
        # the keys stay as they came, and must not hold the rest
        checksum, new, rows_ipc, keys_ipc = msgspec.msgpack.decode(data, type=tuple[int, int, memoryview, bytes])
        if checksum != _checksum(new, rows_ipc, keys_ipc):
            raise ValueError("the checksum does not fit")
        rows, keys = from_ipc(rows_ipc), from_ipc(keys_ipc)
        identity = json.loads((rows.schema.metadata or {})[META])
        names = json.loads((keys.schema.metadata or {})[NAMES])
        time = json.loads((keys.schema.metadata or {})[TIME])
    except (msgspec.MsgspecError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise StateError(f"the state{where} is damaged or not riot_ops state: {error}") from None
    return identity, names, time, new, rows, keys


def _checksum(new: int, *parts: bytes | memoryview) -> int:
    """CRC-32 of a snapshot's parts; not of their whole, of which there need not be a copy then."""
    checksum = zlib.crc32(str(new).encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def to_ipc(batch: pa.RecordBatch) -> memoryview:
    """A batch as an Arrow IPC stream."""
    if batch.nbytes < SMALL_BYTES:
        return memoryview(b"".join((batch.schema.serialize(), batch.serialize(), END_OF_STREAM)))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue())


def from_ipc(data: bytes | memoryview) -> pa.RecordBatch:
    """The batch that :func:`to_ipc` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def check_identity(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise :class:`StateError` where state was written by another task than is wanted."""
    if dict(found) == wanted:
        return
    for part in ("format", "task", "version"):
        if found.get(part) != wanted[part]:
            raise StateError(
                f"the state{where} was written by {part} {found.get(part)!r}, "
                f"this is {part} {wanted[part]!r}; start with a new checkpoint"
            )
    then, now = found.get("parameters", {}), wanted["parameters"]
    changed = [
        f"{n} was {then.get(n)!r} and is {now.get(n)!r}" for n in sorted({*then, *now}) if then.get(n) != now.get(n)
    ]
    raise StateError(
        f"the state{where} of {wanted['task']} was written with other parameters "
        f"({'; '.join(changed) or 'another state layout'}); use the old ones or start with a "
        "new checkpoint"
    )


def state_identity(task: KeyedOperator, kind: str) -> dict[str, Any]:
    """What a snapshot (full or delta) tells of the task that wrote it."""
    fields = {name: [field.dtype, field.shape] for name, field in task.state_fields().items()}
    return {"format": FORMAT, "kind": kind, **task_identity(task), "fields": fields}


def task_identity(task: Operator) -> dict[str, Any]:
    """What must agree for state to be the task's own."""
    try:
        parameters = task.to_dict()
    except ValueError:  # a task over a function that is not JSON: its name has to do
        parameters = {k: reference(v) if callable(v) else v for k, v in task.__getstate__().items()}
        parameters = json.loads(json.dumps(parameters, default=reference))
    parameters.pop("task", None)
    return {"task": task.name(), "version": task.version, "parameters": parameters}


def reference(value: Any) -> str:
    """A text for what JSON cannot hold, the same in every process."""
    text = repr(value)
    if " at 0x" not in text and not callable(value):
        return text
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def encode_field(field: StateField, array: Any, slots: npt.NDArray[np.int64]) -> pa.Array:
    """The values of some slots as a column."""
    if field.dtype == "json":
        encode = msgspec.json.encode
        return pa.array([encode(array[s]) for s in slots], pa.binary())
    if field.dtype == "rows":
        return pa.array([None if array[s] is None else to_ipc(array[s]) for s in slots], pa.binary())
    one_run = slots.size and slots[-1] - slots[0] == len(slots) - 1
    values = array[slots[0] : slots[-1] + 1] if one_run else array[slots]
    if field.grows:  # without what no key has come to yet
        used = np.flatnonzero((values != field.initial).any(axis=0))
        values = values[:, : int(used[-1]) + 1 if used.size else 1]
        ends = np.arange(len(slots) + 1) * values.shape[1]
        return pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.ascontiguousarray(values).ravel()))
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, field.shape) if field.shape else flat


def decode_field(field: StateField, column: pa.Array, array: Any, slots: npt.NDArray[np.int64]) -> Any:
    """Put the values of a column into slots of an array; returns it, or a longer one."""
    if field.dtype == "json":
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = msgspec.json.decode(data)
    elif field.dtype == "rows":
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = None if data is None else from_ipc(data)
    elif field.grows and len(slots):
        values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(slots), -1)
        array = field.widened(array, values.shape[1])
        array[slots] = field.empty(1, array)
        array[slots, : values.shape[1]] = values
    elif field.shape:
        array[slots] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(slots), field.shape)
    else:
        array[slots] = column.to_numpy(zero_copy_only=False)
    return array
