"""A keyed stage on Spark: state in Spark's store, arithmetic over whole buckets.

Spark calls the processor once per bucket and micro-batch with a few packed rows. The bucket's state
lives in the Python worker between micro-batches. Spark's store holds it as a base and a chain of
deltas that contain only the keys touched by a micro-batch; a *head* names the newest link. A worker
whose copy lags (because another worker ran the last micro-batch) reads only the missing links; one
whose copy is not on the chain (after a failed attempt) reads them all.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.clock import FIRST_HEARTBEAT, NEVER
from riot_ops.core.errors import StateError
from riot_ops.core.operator import emits_per_batch
from riot_ops.core.sink import FanOutWriter
from riot_ops.graph.lowering import WATERMARK_SUFFIX
from riot_ops.graph.plan import Plan
from riot_ops.ingest.renumber import Renumber
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.runtime.batches import concatenate
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.fingerprint import describe_difference
from riot_ops.spark.blocks import (
    FLUSHED_PREFIX,
    Block,
    Labels,
    Packer,
    blocks_to_batch,
    blocks_to_frame,
    read_blocks,
    records_by_stream,
    split_by_stage,
)
from riot_ops.spark.sink import SinkRoutes

__all__ = [
    "HEAD_KEY",
    "OWNER_BUCKET",
    "SOURCE_END",
    "CachedEngine",
    "Head",
    "StageProcessor",
    "cached_engines",
    "join_small",
    "run_stage_zero",
]

#: Stream name of the block that notifies a bucket of the end of a source, which the payload names.
SOURCE_END = ""
#: Key of the ended sources among the states of a bucket.
ENDED_SOURCES = ""

#: The generation of the head, before those of all links.
HEAD_KEY = (-1,)

#: Label of a bucket without records, whose state is the owner of the stage's state.
OWNER_BUCKET = -1

#: A worker keeps the engines of this many queries, and of all that it has run for within this many seconds.
CACHED_QUERIES, CACHED_SECONDS = 4, 60.0
#: Batches are merged up to this many records, as a call costs more than merging them.
MAX_MERGED_ROWS = 32_768
#: Maximum number of links after a base.
MAX_DELTAS = 512
#: Approximate maximum size of a link; several copies exist on its way into Spark's store.
LINK_BYTES = 4 << 20


class Head(msgspec.Struct, array_like=True):
    """The newest link of a bucket's chain, and the first and last link of its base."""

    generation: int = -1
    base: int = -1
    base_end: int = -1
    delta_bytes: int = 0
    base_bytes: int = 0
    token: str = ""


class Link(msgspec.Struct, array_like=True):
    """The change of a micro-batch, or a part of it, by task, and the tokens of this link and the previous one."""

    previous: str
    token: str
    states: dict[str, bytes]


@dataclass
class CachedEngine:
    """A bucket's engine in this worker, and the link of its state."""

    engine: Engine
    generation: int = -1
    token: str = ""
    ended: frozenset[str] = frozenset()


ENGINE_CACHE: OrderedDict[str, tuple[float, dict[tuple[int, int], CachedEngine]]] = OrderedDict()
_LOCK = threading.Lock()


def cached_engines(run: str) -> dict[tuple[int, int], CachedEngine]:
    """Return the engines that this worker keeps for a query, by stage and bucket."""
    with _LOCK:
        now = time.monotonic()
        _, found = ENGINE_CACHE.pop(run, (now, {}))
        ENGINE_CACHE[run] = now, found
        while len(ENGINE_CACHE) > CACHED_QUERIES and next(iter(ENGINE_CACHE.values()))[0] < now - CACHED_SECONDS:
            ENGINE_CACHE.popitem(last=False)
        return found


class StageProcessor:
    """Runs the stages after one shuffle of a plan, counted from 1, for each bucket.

    Tasks emit the records that they hold when all ``sources`` have ended. Without ``sink_routes`` the records for sinks
    are emitted as blocks. A checkpoint without a manifest is identified by ``owner``, which is kept in the bucket
    ``OWNER_BUCKET`` and must not change.
    """

    def __init__(
        self,
        plan: Plan,
        shuffle: int,
        labels: Labels,
        run: str,
        order: tuple[str, ...],
        buffering: Buffering,
        sources: frozenset[str] = frozenset(),
        sink_routes: SinkRoutes | None = None,
        owner: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self._plan = plan
        self.stages = {stage.index: stage for stage in plan.shuffles[shuffle - 1]}
        self._labels = labels
        self._run = run
        self._order = order
        self._buffering = buffering
        self._sources = sources
        self._sink_routes = sink_routes
        self._owner = owner or {}

    def process(self, bucket: int, rows: Iterator[Any], chain: Any) -> Iterator[Any]:
        """Run the stage of a bucket, with its state in ``chain``."""
        self._chain = chain
        here, passing = split_by_stage((block for frame in rows for block in read_blocks(frame)), self.stages.keys())
        if passing:
            yield blocks_to_frame(passing)
        if here and bucket == OWNER_BUCKET:
            self._check_owner()
        elif here:
            self._stage = self.stages[here[0].stage]
            yield from self._process(bucket, here)

    def _check_owner(self) -> None:
        """Refuse the state of another query, before any of it is used."""
        stored = self._chain.getValue(HEAD_KEY)
        if stored is not None:
            differs = describe_difference(msgspec.json.decode(stored[0]), self._owner)
            if differs:
                raise StateError(
                    f"the checkpoint is of another query: {differs}; use the old values or a new checkpoint"
                )
        else:
            self._chain.updateValue(HEAD_KEY, (msgspec.json.encode(self._owner),))

    def _process(self, bucket: int, blocks: list[Block]) -> Iterator[Any]:
        head, cached = self._load(bucket)
        writer = self._writer(self._labels[self._stage.index].index(bucket))
        packer = Packer(self._plan, self._stage.index, self._labels, self._buffering, bucket, writer)
        try:
            for full in self._run_bucket(cached, packer, blocks):
                if full:
                    yield blocks_to_frame(full)
        except BaseException:
            packer.abort()
            raise
        self._save(bucket, head, cached)

    def _writer(self, place: int) -> FanOutWriter | None:
        return None if self._sink_routes is None else self._sink_routes.writer(self._stage.index, place)

    def _run_bucket(self, cached: CachedEngine, packer: Packer, blocks: list[Block]) -> Iterator[list[Block]]:
        ended = {bytes(b.payload).decode() for b in blocks if b.stream == SOURCE_END}
        flush = self._flush(cached.ended, ended)
        cached.ended |= ended
        flushed = [b for b in blocks if b.stream.startswith(FLUSHED_PREFIX)]
        blocks = [b for b in blocks if b.stream != SOURCE_END and not b.stream.startswith(FLUSHED_PREFIX)]
        for block in (*blocks, *flushed):
            packer.stamp(block.first_us, block.last_us)
        # numbers of records that are renumbered here say nothing about watermarks with the new numbers
        full_batch = any(isinstance(s.operator, Renumber) or emits_per_batch(s.operator) for s in self._stage.steps)
        for inputs in _in_pieces(records_by_stream(blocks), self._order, full_batch):
            yield list(packer.add(cached.engine.process(inputs)))
        if flush or flushed:
            packer.flushing = True
            inputs = {
                name.removeprefix(FLUSHED_PREFIX): batches for name, batches in records_by_stream(flushed).items()
            }
            yield list(packer.add(cached.engine.process(inputs, flush=flush)))
        keys = sum(state.size for state in cached.engine.states.values())
        packer.count(cached.engine.counts(), state_keys=keys)
        yield list(packer.close())

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        """Whether all steps, or which, must flush because these sources have ended."""
        return bool(ended) and before | ended >= self._sources

    # -- state ---------------------------------------------------------------------------------------

    def _load(self, bucket: int) -> tuple[Head, CachedEngine]:
        """Return the bucket's engine, with the state of the chain's head."""
        stored = self._chain.getValue(HEAD_KEY)
        head = msgspec.msgpack.decode(stored[0], type=Head) if stored is not None else Head()
        cache = cached_engines(self._run)
        place = (self._stage.index, bucket)
        cached = cache.pop(place, None)  # put back when the micro-batch is done
        if cached is not None and (cached.generation, cached.token) == (head.generation, head.token):
            return head, cached
        if cached is not None and head.base <= cached.generation < head.generation and self._catch_up(cached, head):
            return head, cached
        cached = CachedEngine(self._engine())
        if head.generation >= 0:
            cached.generation = head.base - 1
            if not self._catch_up(cached, head):
                raise StateError(f"the state of bucket {bucket} of stage {self._stage.index} lacks a link")
        return head, cached

    def _engine(self) -> Engine:
        stage = self._stage
        return Engine(stage.steps, stage.outputs, stage.entries, self._order)

    def _catch_up(self, cached: CachedEngine, head: Head) -> bool:
        """Apply the links after the cached one; returns False if the cached one is not on the chain."""
        for generation in range(cached.generation + 1, head.generation + 1):
            stored = self._chain.getValue((generation,))
            if stored is None:
                return False
            link = msgspec.msgpack.decode(stored[0], type=Link)
            if generation > head.base and link.previous != cached.token:
                return False
            cached.ended = frozenset(msgspec.json.decode(link.states[ENDED_SOURCES], type=list[str]))
            cached.engine.restore(link.states)
            cached.generation, cached.token = generation, link.token
        return cached.token == head.token

    def _save(self, bucket: int, head: Head, cached: CachedEngine) -> None:
        deltas = head.generation - head.base_end
        full = head.base < 0 or head.delta_bytes > head.base_bytes or deltas >= MAX_DELTAS
        ended = msgspec.json.encode(sorted(cached.ended))
        generation, token, size = head.generation, head.token, 0
        for states in cached.engine.pieces("full" if full else "delta", LINK_BYTES):
            link = Link(token, uuid.uuid4().hex, {**states, ENDED_SOURCES: ended})
            data = msgspec.msgpack.encode(link)
            generation, token, size = generation + 1, link.token, size + len(data)
            self._chain.updateValue((generation,), (data,))
        if full:
            for old in range(max(head.base, 0), head.generation + 1):
                self._chain.removeKey((old,))
            new = Head(generation, head.generation + 1, generation, 0, size, token)
        else:
            new = Head(generation, head.base, head.base_end, head.delta_bytes + size, head.base_bytes, token)
        self._chain.updateValue(HEAD_KEY, (msgspec.msgpack.encode(new),))
        cached.generation, cached.token = generation, token
        cached_engines(self._run)[self._stage.index, bucket] = cached


def run_stage_zero(
    plan: Plan,
    inputs: Iterable[Mapping[str, list[pa.RecordBatch]]],
    order: tuple[str, ...],
    packer: Packer,
    disabled: Set[str] = frozenset(),
    on_failure: Callable[[str, Exception], None] | None = None,
    part: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Run stage 0, without the ``disabled`` steps, over the records of a source by stream; yields its blocks.

    ``on_failure`` is called with the step that raised, and its exception. ``part`` is the number of the part of the
    micro-batch that is read: the heartbeats of parts follow one another.
    """
    stage = plan.stages[0]
    engine = Engine(stage.steps, stage.outputs, None, order)
    engine.disabled, engine.on_failure = set(disabled), on_failure
    engine.heartbeat_numbers = itertools.count(FIRST_HEARTBEAT + (part << 32))
    packer.precombining = order[0] == "seq"
    try:
        for batches in inputs:
            full = list(packer.add(engine.process(batches)))
            if full:
                yield blocks_to_batch(full)
        records, _ = engine.row_counts()
        packer.count(engine.counts(), records)
        rest = list(packer.close())
    except BaseException:
        packer.abort()
        raise
    if rest:
        yield blocks_to_batch(rest)


def _in_pieces(
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
