"""Received blocks: which of them a stage reads, and their records in pieces that are processed one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa

from riot_ops.core.clock import NEVER
from riot_ops.core.ipc import decode
from riot_ops.graph.lowering import WATERMARK_SUFFIX
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.runtime.batches import concatenate
from riot_ops.spark.blocks import BLOCKS, Block

__all__ = ["in_pieces", "join_small", "read_blocks", "records_by_stream", "split_by_stage"]

#: Batches are merged up to this many records, as a call costs more than merging them.
MAX_MERGED_ROWS = 32_768


def read_blocks(rows: Any) -> list[Block]:
    """Read blocks from the rows of a table, a batch or a pandas frame."""
    return [Block(*values) for values in zip(*(_values(rows[name]) for name in BLOCKS.names), strict=True)]


def _values(column: Any) -> list[Any]:
    return column.to_pylist() if isinstance(column, (pa.Array, pa.ChunkedArray)) else list(column)


def split_by_stage(blocks: Iterable[Block], stages: Set[int]) -> tuple[list[Block], list[Block]]:
    """Split blocks into those that some stages read, and those that they pass on unchanged."""
    here: list[Block] = []
    passing: list[Block] = []
    for block in blocks:
        (here if block.stage in stages else passing).append(block)
    return here, passing


def records_by_stream(blocks: Iterable[Block]) -> dict[str, list[pa.RecordBatch]]:
    """Decode the records of blocks, by stream."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for block in blocks:
        found.setdefault(block.stream, []).extend(decode(block.payload))
    return found


def in_pieces(
    streams: dict[str, list[pa.RecordBatch]], order: tuple[str, ...], full_batch: bool
) -> Iterator[Mapping[str, list[pa.RecordBatch]]]:
    """Yield records in pieces that may be processed one by one, or all in one piece.

    Batches whose ranges of message numbers do not overlap need not be merged and sorted.
    """
    watermarks = {
        stream: concatenate(streams.pop(stream)) for stream in list(streams) if stream.endswith(WATERMARK_SUFFIX)
    }
    if len(streams) == 1 and order[0] == "seq":
        ((stream, batches),) = streams.items()
        if all("seq" in b.schema.names for b in batches):
            ranges = []
            for batch in batches:
                seq = int_column(batch.column("seq"))
                ranges.append((int(seq.min()), int(seq.max())))
            places = sorted(range(len(batches)), key=ranges.__getitem__)
            streams[stream] = [batches[place] for place in places]  # already sorted when they are merged
            if not full_batch:
                pieces = join_small(_merge_overlapping([(*ranges[place], batches[place]) for place in places]))
                edges: list[Any] = [NEVER, *(first for _, first in pieces[1:]), None]
                for (piece, _), (first, end) in zip(pieces, itertools.pairwise(edges), strict=True):
                    yield {stream: [piece], **_between(watermarks, first, end)}
                return
    if streams or watermarks:
        every = {stream: [concatenate(batches)] for stream, batches in streams.items()}
        yield every | _between(watermarks, NEVER, None)


def _merge_overlapping(batches: Sequence[tuple[int, int, pa.RecordBatch]]) -> list[tuple[pa.RecordBatch, int]]:
    """Merge batches, given with first and last number in order, that overlap; returns them with first numbers."""
    found: list[tuple[list[pa.RecordBatch], int]] = []
    reached = NEVER
    for first, last, batch in batches:
        if not found or first > reached:
            found.append(([], first))
        found[-1][0].append(batch)
        reached = max(reached, last)
    return [(some[0] if len(some) == 1 else concatenate(some), first) for some, first in found]


def join_small(batches: Sequence[tuple[pa.RecordBatch, int]]) -> list[tuple[pa.RecordBatch, int]]:
    """Concatenate consecutive small batches; returns them with first numbers."""
    found: list[tuple[list[pa.RecordBatch], int]] = []
    rows = MAX_MERGED_ROWS
    for batch, first in batches:
        if rows + batch.num_rows > MAX_MERGED_ROWS:
            found.append(([], first))
            rows = 0
        found[-1][0].append(batch)
        rows += batch.num_rows
    return [(some[0] if len(some) == 1 else concatenate(some), first) for some, first in found]


def _between(watermarks: Mapping[str, pa.RecordBatch], first: int, end: int | None) -> dict[str, list[pa.RecordBatch]]:
    """Select the rows of messages from one number up to another."""
    found = {}
    for stream, batch in watermarks.items():
        seq = int_column(batch.column("seq"))
        found[stream] = [batch.filter(pa.array((seq >= first) & (True if end is None else seq < end)))]
    return found
