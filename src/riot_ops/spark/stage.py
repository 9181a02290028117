"""A keyed stage on Spark: state in Spark's store, arithmetic over whole buckets.

Spark calls the processor once per bucket and micro-batch with a few packed rows. The bucket's state
lives in the Python worker between micro-batches; Spark's store holds it as a base and a chain of
deltas that contain only the keys touched by a micro-batch. A *head* names the newest link. A
worker whose copy is a link behind (another worker ran the last micro-batch) reads just what it
lacks; one whose copy is not on the chain (a failed attempt) reads all.
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
from riot_ops.core.clock import NEVER
from riot_ops.core.errors import StateError
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.sink import Fan
from riot_ops.graph.lowering import AT_TIME
from riot_ops.graph.plan import Plan
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.selection import whole
from riot_ops.runtime.batches import merged
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.identity import difference
from riot_ops.spark.blocks import (
    LEFT_OVER,
    Block,
    Packer,
    blocks_of,
    blocks_to_batch,
    blocks_to_frame,
    by_stream,
    parted,
)
from riot_ops.spark.remote_lookup import ANSWER, QUESTION, TEXTS, answer, heard, named
from riot_ops.spark.sink import Outlet

__all__ = ["FLUSH", "OWNERS", "Cached", "Head", "StageProcessor", "cached_engines", "stage_zero"]

#: Stream name of the block that tells a bucket that a source, named in the payload, has ended.
FLUSH = ""
#: Name among the states of a bucket under which the sources that have ended are kept.
ENDED = ""

#: The generation under which the head is kept, before all those of links.
HEAD = (-1,)

#: Label of a bucket without records, that knows what the state belongs to.
OWNERS = -1

#: A worker keeps the engines of so many queries, and of those that it has run for within so many seconds.
CACHED_QUERIES, CACHED_SECONDS = 4, 60.0
#: Up to so many records are handed to steps in one piece: calls cost more than bringing records together.
FEW_ROWS = 32_768
#: Links behind a base, at most.
MOST_DELTAS = 512
#: About how large a link is at most: on its way into Spark's store there are several copies of it.
LINK_BYTES = 4 << 20


class Head(msgspec.Struct, array_like=True):
    """The newest link of a bucket's chain, and the first and the last of those that hold all of its state."""

    generation: int = -1
    base: int = -1
    base_end: int = -1
    delta_bytes: int = 0
    base_bytes: int = 0
    token: str = ""


class Link(msgspec.Struct, array_like=True):
    """What a micro-batch changed, or a part of that, by task, and the links on both sides."""

    previous: str
    token: str
    states: dict[str, bytes]


@dataclass
class Cached:
    """A bucket's running engine, and the link that it stands at."""

    engine: Engine
    generation: int = -1
    token: str = ""
    ended: frozenset[str] = frozenset()


_CACHE: OrderedDict[str, tuple[float, dict[tuple[int, int], Cached]]] = OrderedDict()
_LOCK = threading.Lock()


def cached_engines(run: str) -> dict[tuple[int, int], Cached]:
    """The engines that this worker keeps for a query, by stage and bucket."""
    with _LOCK:
        now = time.monotonic()
        _, found = _CACHE.pop(run, (now, {}))
        _CACHE[run] = now, found
        while len(_CACHE) > CACHED_QUERIES and next(iter(_CACHE.values()))[0] < now - CACHED_SECONDS:
            _CACHE.popitem(last=False)
        return found


class StageProcessor:
    """Runs the stages behind one shuffle of a plan, counted from 1 on, for each bucket; see the module's text.

    What the tasks have left is put out when all ``sources`` have ended. Without an ``outlet`` what ends
    in a sink is put out as blocks. Where no manifest in the checkpoint tells
    what it belongs to, the bucket ``OWNERS`` does, with the ``owner``: an earlier one must have been equal.
    """

    def __init__(
        self,
        plan: Plan,
        shuffle: int,
        labels: dict[int, list[int]],
        run: str,
        order: tuple[str, ...],
        buffering: Buffering,
        sources: frozenset[str] = frozenset(),
        outlet: Outlet | None = None,
        owner: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self._plan = plan
        self._stages = {stage.index: stage for stage in plan.shuffles[shuffle - 1]}
        self._labels = labels
        self._run = run
        self._order = order
        self._buffering = buffering
        self._sources = sources
        self._outlet = outlet
        self._owner = owner or {}

    def process(self, bucket: int, rows: Iterator[Any], chain: Any) -> Iterator[Any]:
        """Run the stage that a bucket is of; its state is kept in ``chain``."""
        self._chain = chain
        here, passing = parted((block for frame in rows for block in blocks_of(frame)), self._stages.keys())
        if passing:
            yield blocks_to_frame(passing)
        if here and bucket == OWNERS:
            self._check_owner()
        elif here:
            self._stage = self._stages[here[0].stage]
            yield from self._process(bucket, here)

    def _check_owner(self) -> None:
        """Refuse state that another query wrote, before any of it is used in vain."""
        stored = self._chain.getValue(HEAD)
        if stored is not None:
            differs = difference(msgspec.json.decode(stored[0]), self._owner)
            if differs:
                raise StateError(
                    f"the checkpoint is of another query: {differs}; use the old values or a new checkpoint"
                )
        else:
            self._chain.updateValue(HEAD, (msgspec.json.encode(self._owner),))

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

    def _writer(self, place: int) -> Fan | None:
        return None if self._outlet is None else self._outlet.writer(self._stage.index, place)

    def _run_bucket(self, cached: Cached, packer: Packer, blocks: list[Block]) -> Iterator[list[Block]]:
        ended = {bytes(b.payload).decode() for b in blocks if b.stream == FLUSH}
        flush = self._flush(cached.ended, ended)
        cached.ended |= ended
        late = [b for b in blocks if b.stream.startswith(LEFT_OVER)]
        blocks = [b for b in blocks if b.stream != FLUSH and not b.stream.startswith(LEFT_OVER)]
        for block in (*blocks, *late):
            packer.stamp(block.first_us, block.last_us)
        at_once = any(isinstance(s.operator, KeyedOperator) and s.operator.needs_full_batch for s in self._stage.steps)
        asking = [b for b in blocks if b.stream.startswith((QUESTION, ANSWER, TEXTS))]
        blocks = [b for b in blocks if not b.stream.startswith((QUESTION, ANSWER, TEXTS))]
        asked = [b for b in asking if b.stream.startswith(QUESTION)]
        if asked:
            yield from self._answered(cached.engine, packer, blocks, asked)
        else:
            streams: dict[str, list[Any]] = {**by_stream(blocks)}
            for stream, rows in heard(asking, self._plan.asking):
                streams.setdefault(stream, []).append(rows)
            for inputs in _in_sequence(streams, self._order, at_once):
                yield list(packer.add(cached.engine.process(inputs)))
        if flush or late:
            packer.left_over = True
            inputs = {name.removeprefix(LEFT_OVER): batches for name, batches in by_stream(late).items()}
            yield list(packer.add(cached.engine.process(inputs, flush=flush)))
        packer.count(cached.engine.counts())
        yield list(packer.close())

    def _answered(
        self, engine: Engine, packer: Packer, blocks: list[Block], asked: list[Block]
    ) -> Iterator[list[Block]]:
        """Run over records and questions in the order of their messages; what is asked about has no other between."""
        records = {stream: merged(batches) for stream, batches in by_stream(blocks).items()}
        asked.sort(key=lambda block: named(block.stream)[1])
        edges: list[Any] = [NEVER, *(named(block.stream)[1] for block in asked), None]
        for question, (first, end) in zip([None, *asked], itertools.pairwise(edges), strict=True):
            if question is not None:
                _, at, stream = named(question.stream)
                asking = self._plan.asking[stream]
                told = answer(question.payload, engine.process, stream, asking.step.id, self._buffering)
                yield packer.answer(asking, f"{ANSWER}{at}:{asking.step.id}", told)
            between = {name: [b for b in found if b.num_rows] for name, found in _between(records, first, end).items()}
            if any(between.values()):
                yield list(packer.add(engine.process(between)))

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        """Whether all steps, or which, give what they hold, now that these sources have ended."""
        return bool(ended) and before | ended >= self._sources

    # -- state ---------------------------------------------------------------------------------------

    def _load(self, bucket: int) -> tuple[Head, Cached]:
        """The bucket's engine, brought to the head of the chain."""
        stored = self._chain.getValue(HEAD)
        head = msgspec.msgpack.decode(stored[0], type=Head) if stored is not None else Head()
        cache = cached_engines(self._run)
        place = (self._stage.index, bucket)
        cached = cache.pop(place, None)  # put back when the micro-batch is done
        if cached is not None and (cached.generation, cached.token) == (head.generation, head.token):
            return head, cached
        if cached is not None and head.base <= cached.generation < head.generation and self._catch_up(cached, head):
            return head, cached
        cached = Cached(self._engine())
        if head.generation >= 0:
            cached.generation = head.base - 1
            if not self._catch_up(cached, head):
                raise StateError(f"the state of bucket {bucket} of stage {self._stage.index} lacks a link")
        return head, cached

    def _engine(self) -> Engine:
        stage = self._stage
        asked = any(asking.stage == stage.index for asking in self._plan.asking.values())
        return Engine(stage.steps, stage.outputs, stage.entries, self._order, whole=not asked)

    def _catch_up(self, cached: Cached, head: Head) -> bool:
        """Apply the links after the cached one; False if the cached one is not on the chain."""
        for generation in range(cached.generation + 1, head.generation + 1):
            stored = self._chain.getValue((generation,))
            if stored is None:
                return False
            link = msgspec.msgpack.decode(stored[0], type=Link)
            if generation > head.base and link.previous != cached.token:
                return False
            cached.ended = frozenset(msgspec.json.decode(link.states[ENDED], type=list[str]))
            cached.engine.restore(link.states)
            cached.generation, cached.token = generation, link.token
        return cached.token == head.token

    def _save(self, bucket: int, head: Head, cached: Cached) -> None:
        deltas = head.generation - head.base_end
        full = head.base < 0 or head.delta_bytes > head.base_bytes or deltas >= MOST_DELTAS
        ended = msgspec.json.encode(sorted(cached.ended))
        generation, token, size = head.generation, head.token, 0
        for states in cached.engine.pieces("full" if full else "delta", LINK_BYTES):
            link = Link(token, uuid.uuid4().hex, {**states, ENDED: ended})
            data = msgspec.msgpack.encode(link)
            generation, token, size = generation + 1, link.token, size + len(data)
            self._chain.updateValue((generation,), (data,))
        if full:
            for old in range(max(head.base, 0), head.generation + 1):
                self._chain.removeKey((old,))
            new = Head(generation, head.generation + 1, generation, 0, size, token)
        else:
            new = Head(generation, head.base, head.base_end, head.delta_bytes + size, head.base_bytes, token)
        self._chain.updateValue(HEAD, (msgspec.msgpack.encode(new),))
        cached.generation, cached.token = generation, token
        cached_engines(self._run)[self._stage.index, bucket] = cached


def stage_zero(
    plan: Plan,
    inputs: Iterable[Mapping[str, list[pa.RecordBatch]]],
    order: tuple[str, ...],
    packer: Packer,
    resting: Set[str] = frozenset(),
    failing: Callable[[str, Exception], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run stage 0, without steps that rest, over the records of a source, by stream; yields its blocks.

    Which step raises is told to ``failing``.
    """
    stage = plan.stages[0]
    engine = Engine(stage.steps, stage.outputs, None, order, whole=not packer.asking)
    engine.resting, engine.failing = set(resting), failing
    packer.condensing = order[0] == "seq"
    try:
        for batches in inputs:
            full = list(packer.add(engine.process(batches)))
            if full:
                yield blocks_to_batch(full)
        packer.count(engine.counts())
        rest = list(packer.close())
    except BaseException:
        packer.abort()
        raise
    if rest:
        yield blocks_to_batch(rest)


def _in_sequence(
    streams: dict[str, list[Any]], order: tuple[str, ...], at_once: bool
) -> Iterator[Mapping[str, list[Any]]]:
    """Records in pieces that may be processed one after the other, or all in one.

    Batches whose ranges of sequence numbers follow one another need not be merged and sorted.
    """
    marks = {stream: merged(streams.pop(stream)) for stream in list(streams) if stream.endswith(AT_TIME)}
    if len(streams) == 1 and order[0] == "seq":
        ((stream, batches),) = streams.items()
        if all("seq" in b.schema.names for b in batches):
            ranges = []
            for batch in batches:
                seq = int_column((batch.of if isinstance(batch, Derived) else batch).column("seq"))
                ranges.append((int(seq.min()), int(seq.max())))
            places = sorted(range(len(batches)), key=ranges.__getitem__)
            streams[stream] = [batches[place] for place in places]  # which are sorted once they are merged
            if not at_once:
                pieces = _pieces(_apart([(*ranges[place], batches[place]) for place in places]))
                edges: list[Any] = [NEVER, *(first for _, first in pieces[1:]), None]
                for (piece, _), (first, end) in zip(pieces, itertools.pairwise(edges), strict=True):
                    yield {stream: [piece], **_between(marks, first, end)}
                return
    if streams or marks:
        every = {stream: [merged([*map(whole, batches)])] for stream, batches in streams.items()}
        yield every | _between(marks, NEVER, None)


def _apart(batches: Sequence[tuple[int, int, Any]]) -> list[tuple[Any, int]]:
    """Batches with their first numbers, those that overlap as one; given in order, with first and last number."""
    found: list[tuple[list[Any], int]] = []
    reached = NEVER
    for first, last, batch in batches:
        if not found or first > reached:
            found.append(([], first))
        found[-1][0].append(batch)
        reached = max(reached, last)
    return [(some[0] if len(some) == 1 else merged([*map(whole, some)]), first) for some, first in found]


def _pieces(batches: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Batches that follow one another, each with its first number; of small ones several are made one."""
    found: list[tuple[list[Any], int]] = []
    rows = FEW_ROWS
    for batch, first in batches:
        if isinstance(batch, Derived) or rows + batch.num_rows > FEW_ROWS:
            found.append(([], first))
            rows = 0
        found[-1][0].append(batch)
        rows = FEW_ROWS if isinstance(batch, Derived) else rows + batch.num_rows
    return [(some[0] if len(some) == 1 else merged(some), first) for some, first in found]


def _between(marks: Mapping[str, pa.RecordBatch], first: int, end: int | None) -> dict[str, list[pa.RecordBatch]]:
    """The marks of messages from one number up to another."""
    found = {}
    for stream, batch in marks.items():
        seq = int_column(batch.column("seq"))
        found[stream] = [batch.filter(pa.array((seq >= first) & (True if end is None else seq < end)))]
    return found
