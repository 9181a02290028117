"""Record batches as bytes that leave a process, compressed where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from riot_ops.core.buffering import Buffering

__all__ = ["decode", "encode", "packed"]


def encode(batches: Sequence[pa.RecordBatch], buffering: Buffering) -> bytes:
    """Record batches of one schema as an Arrow IPC stream, by the codec and the ratio that are wanted.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [len(encode([batch], one)) > 8000 for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [True, False, True]
    """
    return packed(batches, buffering)[0]


def packed(batches: Sequence[pa.RecordBatch], buffering: Buffering) -> tuple[bytes, bool]:
    """The same, and whether they are compressed.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [packed([batch], one)[1] for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [False, True, False]
    """
    if buffering.codec is None:
        return _stream(batches, None), False
    made = _stream(batches, buffering.codec)
    if buffering.ratio is not None and len(made) > buffering.ratio * _size(batches):
        return _stream(batches, None), False
    return made, True


def decode(payload: Any) -> list[pa.RecordBatch]:
    """The record batches in a payload, without copying.

    >>> batch = pa.record_batch({"value": [1.0, 2.0]})
    >>> decode(encode([batch], Buffering())) == [batch]
    True
    """
    with pa.ipc.open_stream(payload if isinstance(payload, pa.Buffer) else pa.py_buffer(payload)) as reader:
        return list(reader)


def _stream(batches: Sequence[pa.RecordBatch], codec: str | None) -> bytes:
    out = pa.BufferOutputStream()
    _write(batches, out, codec)
    return out.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _size(batches: Sequence[pa.RecordBatch]) -> int:
    """Bytes without compression."""
    out = pa.MockOutputStream()
    _write(batches, out, None)
    return out.size()  # type: ignore[no-any-return]


def _write(batches: Sequence[pa.RecordBatch], out: Any, codec: str | None) -> None:
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in batches:
            writer.write_batch(batch)
