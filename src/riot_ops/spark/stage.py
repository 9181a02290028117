"""A keyed stage on Spark: the blocks that it receives, arithmetic over whole buckets, and state in Spark's store.

Spark calls the processor once per bucket and micro-batch with a few packed rows. The engine of a bucket stays in the
Python worker between micro-batches. Spark's store holds its state as a base and a chain of deltas. A delta holds only
the keys touched by a micro-batch; a *head* names the newest link. A worker whose copy lags (because another worker ran
the last micro-batch) reads only the missing links; one whose copy is not on the chain (after a failed attempt) reads
them all.
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
from riot_ops.graph.lowering import WATERMARK_SUFFIX
from riot_ops.graph.plan import Plan
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.runtime.batches import concatenate
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.fingerprint import describe_difference
from riot_ops.runtime.memory import return_freed_memory
from riot_ops.spark.blocks import BLOCKS, FLUSHED_PREFIX, Block, Labels, Packer, blocks_to_batch, blocks_to_frame
from riot_ops.spark.manifest import Manifest, state_layout
from riot_ops.spark.sink import SinkRoutes

__all__ = [
    "ENDED_SOURCES",
    "HEAD_KEY",
    "NOTES_KEY",
    "OWNER_BUCKET",
    "SEED",
    "SOURCE_END",
    "CachedEngine",
    "Head",
    "Link",
    "StageProcessor",
    "StateChain",
    "cached_engines",
    "merge_batches",
    "read_blocks",
    "records_by_stream",
    "run_stage_zero",
]

#: Stream name of the block that notifies a bucket of the end of a source, which the payload names.
SOURCE_END = ""
#: Stream name of a block with state of an earlier generation of the checkpoint; no node can have such a name.
SEED = "@seed"
#: Label of a bucket without records, whose state is the owner of the stage's state.
OWNER_BUCKET = -1
#: Batches are merged up to this many records, as a call costs more than merging them.
MAX_MERGED_ROWS = 32_768


class StageProcessor:
    """Runs the stages after one shuffle of a plan, counted from 1, for each bucket.

    Tasks emit the records that they hold when all ``sources`` have ended. Without ``sink_routes`` the records for sinks
    are emitted as blocks. A checkpoint without a manifest is identified by ``owner``, which is kept in the bucket
    ``OWNER_BUCKET`` and must not change. Beside it stand the ``notes``, from which a changed dataflow can continue.
    With ``small_memory`` a worker returns what each bucket has freed.
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
        notes: Manifest | None = None,
        small_memory: bool = False,
    ) -> None:
        self._plan = plan
        self.stages = {stage.index: stage for stage in plan.shuffles[shuffle - 1]}
        self._labels = labels
        self._run = run
        self._order = order
        self._buffering = buffering
        self._sources = sources
        self._sink_routes: Any = sink_routes  # a fragment has others in each micro-batch
        self._owner = owner or {}
        self._notes = notes
        self.small_memory = small_memory

    def process(self, bucket: int, rows: Iterator[Any], variable: Any) -> Iterator[Any]:
        """Run the stage of a bucket, with its state in Spark's state variable."""
        blocks = [block for frame in rows for block in read_blocks(frame)]
        if passing := [block for block in blocks if block.stage not in self.stages]:
            yield blocks_to_frame(passing)
        here = [block for block in blocks if block.stage in self.stages]
        if here and bucket == OWNER_BUCKET:
            self._check_owner(variable)
        elif here:
            self._stage = self.stages[here[0].stage]
            yield from self._process(bucket, here, variable)
        if self.small_memory:
            del blocks, passing, here
            return_freed_memory()

    def _check_owner(self, variable: Any) -> None:
        """Refuse the state of another query, before any of it is used."""
        stored = variable.getValue(HEAD_KEY)
        if stored is not None:
            differs = describe_difference(msgspec.json.decode(stored[0]), self._owner)
            if differs:
                raise StateError(
                    f"the checkpoint is of another query: {differs}; use the old values or a new checkpoint"
                )
        else:
            variable.updateValue(HEAD_KEY, (msgspec.json.encode(self._owner),))
        if self._notes is not None and not variable.containsKey(NOTES_KEY):
            layout = state_layout(self._plan, self._labels)
            notes = msgspec.structs.replace(self._notes, layout=layout)
            variable.updateValue(NOTES_KEY, (msgspec.json.encode(notes.with_checksum()),))

    def _process(self, bucket: int, blocks: list[Block], variable: Any) -> Iterator[Any]:
        chain = StateChain(variable, self._run, (self._stage.index, bucket))
        cached = chain.load(self._create_engine, self._fit_engine)
        if blocks and blocks[0].stream == SEED:
            for block in blocks:
                states = msgspec.msgpack.decode(block.payload, type=dict[str, bytes])
                cached.ended |= frozenset(msgspec.json.decode(states.pop(ENDED_SOURCES), type=list[str]))
                cached.engine.restore(states)
            chain.save(cached)
            return
        engine = cached.engine
        self._prepare(engine, bucket, chain)
        ended = {bytes(block.payload).decode() for block in blocks if block.stream == SOURCE_END}
        flush = self._flush(cached.ended, ended)
        cached.ended |= ended
        blocks = [block for block in blocks if block.stream != SOURCE_END]
        streams = records_by_stream(blocks)
        flushed = {s.removeprefix(FLUSHED_PREFIX): streams.pop(s) for s in [*streams] if s.startswith(FLUSHED_PREFIX)}
        pieces = in_pieces(streams, self._order, self._stage.needs_whole_batch)
        index, routes = self._stage.index, self._sink_routes
        writer = None if routes is None else routes.writer(index, self._labels[index].index(bucket))
        packer = Packer(self._plan, index, self._labels, self._buffering, bucket, writer)
        packer.first_us = min((block.first_us for block in blocks), default=packer.first_us)
        packer.last_us = max((block.last_us for block in blocks), default=packer.last_us)
        try:
            for inputs in pieces:
                if full := list(packer.add(engine.process(inputs))):
                    yield blocks_to_frame(full)
            if flush or flushed:
                packer.flushing = True
                if full := list(packer.add(engine.process(flushed, flush=flush))):
                    yield blocks_to_frame(full)
            if rest := list(packer.close(engine.counts(), state_keys=engine.keys)):
                yield blocks_to_frame(rest)
        except BaseException:
            packer.abort()
            raise
        chain.save(cached)

    def _create_engine(self) -> Engine:
        return Engine(self._stage.steps, self._stage.outputs, self._stage.entries, self._order)

    def _fit_engine(self, engine: Engine) -> None:
        """Make an engine fit the steps of the stage, which do not change, before it reads links."""

    def _prepare(self, engine: Engine, bucket: int, chain: StateChain) -> None:
        """Prepare a loaded engine for a micro-batch."""

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        """Whether all steps, or which, must flush because these sources have ended."""
        return bool(ended) and before | ended >= self._sources


# -- received blocks ---------------------------------------------------------------------------------


def read_blocks(rows: Any) -> list[Block]:
    """Read blocks from the rows of a table, a batch or a pandas frame."""
    columns = (rows[name] for name in BLOCKS.names)
    values = (c.to_pylist() if isinstance(c, (pa.Array, pa.ChunkedArray)) else c for c in columns)
    return [Block(*block) for block in zip(*values, strict=True)]


def records_by_stream(blocks: Iterable[Block]) -> dict[str, list[pa.RecordBatch]]:
    """Decode the records of blocks, by stream."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for block in blocks:
        found.setdefault(block.stream, []).extend(pa.ipc.open_stream(block.payload))
    return found


def in_pieces(
    streams: dict[str, list[pa.RecordBatch]], order: tuple[str, ...], whole: bool
) -> list[dict[str, list[pa.RecordBatch]]]:
    """Return records in pieces that may be processed one by one, or all in one piece.

    Batches whose ranges of message numbers do not overlap need not be merged and sorted.
    """
    watermarks = {stream: streams.pop(stream) for stream in list(streams) if stream.endswith(WATERMARK_SUFFIX)}
    pieces: list[tuple[dict[str, list[pa.RecordBatch]], int]] = []  # with the first number of their watermarks
    if len(streams) == 1 and order[0] == "seq":
        ((stream, batches),) = streams.items()
        if all("seq" in b.schema.names for b in batches):
            numbers = [int_column(batch.column("seq")) for batch in batches]
            ranges = [(int(seq.min()), int(seq.max())) for seq in numbers]
            places = sorted(range(len(batches)), key=ranges.__getitem__)
            streams[stream] = [batches[place] for place in places]  # already sorted when they are merged
            if not whole:
                merged = merge_batches([(*ranges[place], batches[place]) for place in places])
                pieces = [({stream: [piece]}, first if place else NEVER) for place, (piece, first) in enumerate(merged)]
    if not pieces and (streams or watermarks):
        pieces = [({stream: [concatenate(batches)] for stream, batches in streams.items()}, NEVER)]
    ends = [*(first for _, first in pieces[1:]), None]
    for stream, batches in watermarks.items():
        batch = concatenate(batches)
        seq = int_column(batch.column("seq"))
        for (piece, first), end in zip(pieces, ends, strict=True):
            own = seq >= first if end is None else (seq >= first) & (seq < end)
            piece[stream] = [batch.filter(pa.array(own))]
    return [piece for piece, _ in pieces]


def merge_batches(batches: Sequence[tuple[int, int, pa.RecordBatch]]) -> list[tuple[pa.RecordBatch, int]]:
    """Merge consecutive batches that overlap, or that are small, and return them with their first numbers.

    The batches are given with first and last number, in order.
    """
    found: list[tuple[list[pa.RecordBatch], int]] = []
    rows, reached = 0, NEVER
    for first, last, batch in batches:
        if not found or (first > reached and rows + batch.num_rows > MAX_MERGED_ROWS):
            found.append(([], first))
            rows = 0
        found[-1][0].append(batch)
        rows += batch.num_rows
        reached = max(reached, last)
    return [(concatenate(some), first) for some, first in found]


# -- state --------------------------------------------------------------------------------------------

#: Key of the ended sources among the states of a bucket.
ENDED_SOURCES = ""
#: The generation of the head, before those of all links.
HEAD_KEY = (-1,)
#: In the bucket of the owner, the generation of the notes on the query.
NOTES_KEY = (-2,)

#: A worker keeps the engines of this many queries, and of all that it has run for within this many seconds.
CACHED_QUERIES, CACHED_SECONDS = 4, 60.0
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


class StateChain:
    """The chain of a bucket, ``place``: from it a query's engine is loaded, and to it saved.

    ``variable`` is Spark's state variable of the bucket: generation to link.
    """

    def __init__(self, variable: Any, run: str, place: tuple[int, int]) -> None:
        self._variable = variable
        self._run = run
        self._place = place
        self.head = Head()

    def load(self, create_engine: Callable[[], Engine], fit_engine: Callable[[Engine], None]) -> CachedEngine:
        """Return the bucket's engine, with the state of the chain's head; ``fit_engine`` precedes reading links."""
        stored = self._variable.getValue(HEAD_KEY)
        self.head = head = msgspec.msgpack.decode(stored[0], type=Head) if stored is not None else Head()
        cached = cached_engines(self._run).pop(self._place, None)  # put back when the micro-batch is done
        if cached is not None and (cached.generation, cached.token) == (head.generation, head.token):
            return cached
        if (
            cached is not None
            and head.base <= cached.generation < head.generation
            and self._catch_up(cached, fit_engine)
        ):
            return cached
        cached = CachedEngine(create_engine())
        if head.generation >= 0:
            cached.generation = head.base - 1
            if not self._catch_up(cached, fit_engine):
                stage, bucket = self._place
                raise StateError(f"the state of bucket {bucket} of stage {stage} lacks a link")
        return cached

    def _catch_up(self, cached: CachedEngine, fit_engine: Callable[[Engine], None]) -> bool:
        """Apply the links after the cached one; returns False if the cached one is not on the chain."""
        fit_engine(cached.engine)
        for generation in range(cached.generation + 1, self.head.generation + 1):
            stored = self._variable.getValue((generation,))
            if stored is None:
                return False
            link = msgspec.msgpack.decode(stored[0], type=Link)
            if generation > self.head.base and link.previous != cached.token:
                return False
            cached.ended = frozenset(msgspec.json.decode(link.states[ENDED_SOURCES], type=list[str]))
            cached.engine.restore(link.states)
            cached.generation, cached.token = generation, link.token
        return cached.token == self.head.token

    def save(self, cached: CachedEngine) -> None:
        """Add the change of a micro-batch to the chain, or a new base, and keep the engine."""
        head = self.head
        deltas = head.generation - head.base_end
        full = head.base < 0 or head.delta_bytes > head.base_bytes or deltas >= MAX_DELTAS
        ended = msgspec.json.encode(sorted(cached.ended))
        generation, token, size = head.generation, head.token, 0
        for states in cached.engine.pieces("full" if full else "delta", LINK_BYTES):
            link = Link(token, uuid.uuid4().hex, {**states, ENDED_SOURCES: ended})
            data = msgspec.msgpack.encode(link)
            generation, token, size = generation + 1, link.token, size + len(data)
            self._variable.updateValue((generation,), (data,))
        if full:
            for old in range(max(head.base, 0), head.generation + 1):
                self._variable.removeKey((old,))
            new = Head(generation, head.generation + 1, generation, 0, size, token)
        else:
            new = Head(generation, head.base, head.base_end, head.delta_bytes + size, head.base_bytes, token)
        self._variable.updateValue(HEAD_KEY, (msgspec.msgpack.encode(new),))
        cached.generation, cached.token = generation, token
        cached_engines(self._run)[self._place] = cached


# -- stage 0 ------------------------------------------------------------------------------------------


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
        rest = list(packer.close(engine.counts(), records))
    except BaseException:
        packer.abort()
        raise
    if rest:
        yield blocks_to_batch(rest)
