"""Record batches as Arrow IPC bytes that leave the process, compressed if that saves enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from riot_ops.core.buffering import Buffering

__all__ = ["decode", "encode", "encode_with_flag"]


def encode(batches: Sequence[pa.RecordBatch], buffering: Buffering) -> bytes:
    """Encode record batches of one schema as an Arrow IPC stream, with the codec and the ratio of ``buffering``.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [len(encode([batch], one)) > 8000 for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [True, False, True]
    """
    return encode_with_flag(batches, buffering)[0]


def encode_with_flag(batches: Sequence[pa.RecordBatch], buffering: Buffering) -> tuple[bytes, bool]:
    """Like :func:`encode`; also return whether the bytes are compressed.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [encode_with_flag([batch], one)[1] for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [False, True, False]
    """
    if buffering.codec is None:
        return _stream(batches, None), False
    compressed = _stream(batches, buffering.codec)
    if buffering.ratio is not None and len(compressed) > buffering.ratio * _size(batches):
        return _stream(batches, None), False
    return compressed, True


def decode(payload: Any) -> list[pa.RecordBatch]:
    """Decode the record batches of an Arrow IPC stream, without copying.

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
    """The size without compression, in bytes."""
    out = pa.MockOutputStream()
    _write(batches, out, None)
    return out.size()  # type: ignore[no-any-return]


def _write(batches: Sequence[pa.RecordBatch], out: Any, codec: str | None) -> None:
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in batches:
            writer.write_batch(batch)
