"""Snapshots of state as bytes: rows and keys as Arrow IPC streams, the identity of the task, and a checksum."""

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
    "FIELDS_METADATA",
    "IDENTITY_METADATA",
    "TIME_METADATA",
    "check_identity",
    "decode_field",
    "encode_field",
    "encode_rows",
    "encode_snapshot",
    "from_ipc",
    "pack_snapshot",
    "restamp",
    "stable_repr",
    "state_identity",
    "task_identity",
    "to_ipc",
    "unpack_snapshot",
]

#: Version of the snapshot format.
FORMAT = "1"
#: Below this size the IPC messages are joined by hand, at a fifth of a stream's cost; a larger one would be copied.
SMALL_BYTES = 1 << 16
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
#: Metadata key of the rows: identity of the task that wrote the snapshot.
IDENTITY_METADATA = b"riot_ops.state"
#: Metadata key of the keys: fields of the task's output.
FIELDS_METADATA = b"riot_ops.output"
#: Metadata key of the keys: stream time and the message that moved it; an empty list for a task without a clock.
TIME_METADATA = b"riot_ops.time"


def encode_snapshot(
    identity: bytes,
    names: list[str],
    time: list[int],
    rows: Mapping[str, pa.Array],
    keys: pa.RecordBatch,
    new: int,
) -> bytes:
    """Encode some slots, with all keys from slot ``new`` on.

    ``identity`` is that of :func:`state_identity`, as JSON.
    """
    slots = rows["slot"]
    end = slots[-1].as_py() + 1 if len(slots) else 0
    if new < min(end, keys.num_rows):
        added = keys.slice(new, end - new)
    else:  # for an empty slice Arrow would write all text offsets
        added = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in keys.schema], schema=keys.schema)
    return encode_rows(identity, names, time, pa.RecordBatch.from_arrays([*rows.values()], names=[*rows]), added, new)


def encode_rows(
    identity: bytes, names: list[str], time: list[int], rows: pa.RecordBatch, keys: pa.RecordBatch, new: int
) -> bytes:
    """Encode the rows of some slots, and the keys from slot ``new`` on; see :func:`encode_snapshot`."""
    notes = {FIELDS_METADATA: json.dumps(names).encode(), TIME_METADATA: json.dumps(time).encode()}
    rows = rows.replace_schema_metadata({IDENTITY_METADATA: identity})
    return pack_snapshot(new, to_ipc(rows), to_ipc(keys.replace_schema_metadata(notes)))


def pack_snapshot(new: int, rows: bytes | memoryview, keys: bytes | memoryview) -> bytes:
    """Pack rows and keys, both as Arrow IPC, and the slot of the first key."""
    head = msgspec.msgpack.encode([_checksum(new, rows, keys), new])[1:]
    # a MessagePack list of four, joined here: the encoder would copy large parts several times
    return b"".join((b"\x94", head, _binary(rows), rows, _binary(keys), keys))


def _binary(part: bytes | memoryview) -> bytes:
    """Return the MessagePack header of bytes."""
    return struct.pack(">BI", 0xC6, memoryview(part).nbytes)


def unpack_snapshot(
    data: bytes, where: str = ""
) -> tuple[dict[str, Any], list[str], list[int], int, pa.RecordBatch, pa.RecordBatch]:
    """Return identity, output fields, stream time, slot of the first key, rows and keys of a snapshot."""
    try:
        # the keys are kept in memory, so they must not reference the other parts
        checksum, new, rows_ipc, keys_ipc = msgspec.msgpack.decode(data, type=tuple[int, int, memoryview, bytes])
        if checksum != _checksum(new, rows_ipc, keys_ipc):
            raise ValueError("the checksum does not fit")
        rows, keys = from_ipc(rows_ipc), from_ipc(keys_ipc)
        identity = json.loads((rows.schema.metadata or {})[IDENTITY_METADATA])
        names = json.loads((keys.schema.metadata or {})[FIELDS_METADATA])
        time = json.loads((keys.schema.metadata or {})[TIME_METADATA])
    except (msgspec.MsgspecError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise StateError(f"the state{where} is damaged or not riot_ops state: {error}") from None
    return identity, names, time, new, rows, keys


def restamp(data: bytes, identity: Mapping[str, Any], where: str = "") -> bytes:
    """Return a snapshot with the identity of another task, which can read its state; the kind stays."""
    found, names, time, new, rows, keys = unpack_snapshot(data, where)
    wanted = {**identity, "kind": found["kind"]}
    return data if found == wanted else encode_rows(json.dumps(wanted).encode(), names, time, rows, keys, new)


def _checksum(new: int, *parts: bytes | memoryview) -> int:
    """Compute the CRC-32 over a snapshot's parts, without joining them."""
    checksum = zlib.crc32(str(new).encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def to_ipc(batch: pa.RecordBatch) -> memoryview:
    """Encode a batch as an Arrow IPC stream."""
    if batch.nbytes < SMALL_BYTES:
        return memoryview(b"".join((batch.schema.serialize(), batch.serialize(), END_OF_STREAM)))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue())


def from_ipc(data: bytes | memoryview) -> pa.RecordBatch:
    """Decode the batch that :func:`to_ipc` encoded."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def check_identity(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise :class:`StateError` unless state was written by an equal task."""
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
    """Return the identity of a task for its snapshots of a kind, full or delta."""
    fields = {name: [field.dtype, field.shape] for name, field in task.state_fields().items()}
    return {"format": FORMAT, "kind": kind, **task_identity(task), "fields": fields}


def task_identity(task: Operator) -> dict[str, Any]:
    """Return what must be equal for a task to load state: name, version and parameters."""
    tags = task.secret_tags()
    plain = task.replace(**dict.fromkeys(tags)) if tags else task
    try:
        parameters = plain.to_dict()
    except ValueError:  # a parameter, such as a function, is not JSON: use its name
        parameters = {k: stable_repr(v) if callable(v) else v for k, v in plain.__getstate__().items()}
        parameters = json.loads(json.dumps(parameters, default=stable_repr))
    parameters.pop("task", None)
    return {"task": task.name(), "version": task.version, "parameters": {**parameters, **tags}}


def stable_repr(value: Any) -> str:
    """Return a text for a value that JSON cannot hold, the same in every process."""
    text = repr(value)
    if " at 0x" not in text and not callable(value):
        return text
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def encode_field(field: StateField, array: Any, slots: npt.NDArray[np.int64]) -> pa.Array:
    """Encode the values of some slots as a column."""
    if field.dtype == "json":
        encode = msgspec.json.encode
        pack = field.pack or (lambda one: one)
        return pa.array([encode(pack(array[s])) for s in slots], pa.binary())
    if field.dtype == "rows":
        pack = field.pack or (lambda one: one)
        packed = (None if array[s] is None else pack(array[s]) for s in slots)
        return pa.array([None if rows is None else to_ipc(rows) for rows in packed], pa.binary())
    one_run = slots.size and slots[-1] - slots[0] == len(slots) - 1
    values = array[slots[0] : slots[-1] + 1] if one_run else array[slots]
    if field.growable:  # without columns that no key has reached yet
        used = np.flatnonzero((values != field.initial).any(axis=0))
        values = values[:, : int(used[-1]) + 1 if used.size else 1]
        ends = np.arange(len(slots) + 1) * values.shape[1]
        return pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.ascontiguousarray(values).ravel()))
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, field.shape) if field.shape else flat


def decode_field(field: StateField, column: pa.Array, array: Any, slots: npt.NDArray[np.int64]) -> Any:
    """Decode a column into slots of an array; returns the array, or a longer one."""
    if field.dtype == "json":
        unpack = field.unpack or (lambda one: one)
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = unpack(msgspec.json.decode(data))
    elif field.dtype == "rows":
        unpack = field.unpack or (lambda one: one)
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = field.initial if data is None else unpack(from_ipc(data))
    elif field.growable and len(slots):
        values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(slots), -1)
        array = field.widen(array, values.shape[1])
        array[slots] = field.empty(1, array)
        array[slots, : values.shape[1]] = values
    elif field.shape:
        array[slots] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(slots), field.shape)
    else:
        array[slots] = column.to_numpy(zero_copy_only=False)
    return array
