"""Record batches as Arrow IPC bytes that leave the process, compressed if that saves enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from riot_ops.core.buffering import Buffering

__all__ = ["CompressionTrial", "decode", "encode", "encode_with_flag"]

#: Bytes of a sample, the number of places in each buffer that it comes from, and the share by which a sample may miss
#: the ratio: small samples compress a little less.
SAMPLE_BYTES, SAMPLE_PLACES, SAMPLE_SLACK = 16 << 10, 4, 1.1
#: Maximum number of batches that are sent without a trial after one that did not compress enough.
MAX_SKIPPED = 64


class CompressionTrial:
    """What the last batches of a stream say about the next one, for selective compression.

    While batches compress enough, each is compressed, and nothing else is tried. After one that does not, the next ones
    are sent uncompressed without a trial: 1, then 2, 4 and up to 64, as long as a sample between them does not compress
    enough either.
    """

    def __init__(self) -> None:
        self.skip: int = 0  # batches to send without a trial
        self._skipped = 0  # after the last trial
        self.trials: int = 0  # samples and whole batches that were compressed in vain

    def failed(self) -> None:
        """Note that a sample or a batch did not compress enough."""
        self.trials += 1
        self._skipped = min(max(2 * self._skipped, 1), MAX_SKIPPED)
        self.skip = self._skipped

    def succeeded(self) -> None:
        """Note that a batch compressed enough."""
        self._skipped = 0

    @property
    def is_trusted(self) -> bool:
        """Whether the last batch compressed enough, or there was none."""
        return self._skipped == 0


def encode(batches: Sequence[pa.RecordBatch], buffering: Buffering, trial: CompressionTrial | None = None) -> bytes:
    """Encode record batches of one schema as an Arrow IPC stream, with the codec and the ratio of ``buffering``.

    ``trial`` is the memory of selective compression for a stream of batches.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [len(encode([batch], one)) > 8000 for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [True, False, True]
    """
    return encode_with_flag(batches, buffering, trial)[0]


def encode_with_flag(
    batches: Sequence[pa.RecordBatch], buffering: Buffering, trial: CompressionTrial | None = None
) -> tuple[bytes, bool]:
    """Like :func:`encode`; also return whether the bytes are compressed.

    >>> batch = pa.record_batch({"value": pa.array([0.0] * 1000)})
    >>> [encode_with_flag([batch], one)[1] for one in (Buffering(codec=None), Buffering(), Buffering(ratio=0.01))]
    [False, True, False]
    """
    codec, ratio = buffering.codec, buffering.ratio
    if codec is None:
        return _stream(batches, None), False
    if ratio is None:
        return _stream(batches, codec), True
    trial = CompressionTrial() if trial is None else trial
    if trial.skip:
        trial.skip -= 1
        return _stream(batches, None), False
    if not trial.is_trusted and _sample_ratio(batches, codec) > ratio * SAMPLE_SLACK:
        trial.failed()
        return _stream(batches, None), False
    compressed = _stream(batches, codec)
    if len(compressed) > ratio * _size(batches):
        trial.failed()
        return _stream(batches, None), False
    trial.succeeded()
    return compressed, True


def _sample_ratio(batches: Sequence[pa.RecordBatch], codec: str) -> float:
    """Return the size of a compressed sample, from several places of each buffer, as a share of its size."""
    buffers = [b for batch in batches for column in batch.columns for b in column.buffers() if b is not None and b.size]
    total = sum(buffer.size for buffer in buffers)
    parts = []
    for buffer in buffers:
        size = min(buffer.size, SAMPLE_BYTES * buffer.size // max(total, 1) // SAMPLE_PLACES + 1)
        places = range(0, buffer.size - size + 1, max((buffer.size - size) // SAMPLE_PLACES, 1))[:SAMPLE_PLACES]
        parts += [buffer[start : start + size] for start in places]
    sample = b"".join(parts)
    return len(pa.compress(sample, codec=codec, asbytes=True)) / len(sample) if sample else 1.0


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
    """Return the size without compression, in bytes."""
    out = pa.MockOutputStream()
    _write(batches, out, None)
    return out.size()  # type: ignore[no-any-return]


def _write(batches: Sequence[pa.RecordBatch], out: Any, codec: str | None) -> None:
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in batches:
            writer.write_batch(batch)
