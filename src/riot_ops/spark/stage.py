"""A keyed stage on Spark: state in Spark's store, arithmetic over whole buckets.

Spark calls the processor once per bucket and micro-batch with a few packed rows. The bucket's state lives in the Python
worker between micro-batches, and in Spark's store, see :mod:`riot_ops.spark.state_chain`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.clock import FIRST_HEARTBEAT
from riot_ops.core.errors import StateError
from riot_ops.core.operator import emits_per_batch
from riot_ops.core.sink import FanOutWriter
from riot_ops.graph.plan import Plan
from riot_ops.ingest.renumber import Renumber
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.fingerprint import describe_difference
from riot_ops.spark.blocks import FLUSHED_PREFIX, Block, Labels, Packer, blocks_to_batch, blocks_to_frame
from riot_ops.spark.received_blocks import in_pieces, read_blocks, records_by_stream, split_by_stage
from riot_ops.spark.sink import SinkRoutes
from riot_ops.spark.state_chain import HEAD_KEY, CachedEngine, StateChain, cached_engines

__all__ = ["OWNER_BUCKET", "SOURCE_END", "StageProcessor", "run_stage_zero"]

#: Stream name of the block that notifies a bucket of the end of a source, which the payload names.
SOURCE_END = ""
#: Label of a bucket without records, whose state is the owner of the stage's state.
OWNER_BUCKET = -1


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

    def process(self, bucket: int, rows: Iterator[Any], variable: Any) -> Iterator[Any]:
        """Run the stage of a bucket, with its state in Spark's state variable."""
        here, passing = split_by_stage((block for frame in rows for block in read_blocks(frame)), self.stages.keys())
        if passing:
            yield blocks_to_frame(passing)
        if here and bucket == OWNER_BUCKET:
            self._check_owner(variable)
        elif here:
            self._stage = self.stages[here[0].stage]
            yield from self._process(bucket, here, variable)

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

    def _process(self, bucket: int, blocks: list[Block], variable: Any) -> Iterator[Any]:
        place = self._stage.index, bucket
        chain = StateChain(variable, lambda: cached_engines(self._run), place, self._create_engine, self._fit_engine)
        cached = self._load(bucket, chain)
        writer = self._writer(self._labels[self._stage.index].index(bucket))
        packer = Packer(self._plan, self._stage.index, self._labels, self._buffering, bucket, writer)
        try:
            for full in self._run_bucket(cached, packer, blocks):
                if full:
                    yield blocks_to_frame(full)
        except BaseException:
            packer.abort()
            raise
        chain.save(cached)

    def _load(self, bucket: int, chain: StateChain) -> CachedEngine:
        return chain.load()

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
        for inputs in in_pieces(records_by_stream(blocks), self._order, full_batch):
            yield list(packer.add(cached.engine.process(inputs)))
        if flush or flushed:
            packer.flushing = True
            inputs = {
                name.removeprefix(FLUSHED_PREFIX): batches for name, batches in records_by_stream(flushed).items()
            }
            yield list(packer.add(cached.engine.process(inputs, flush=flush)))
        keys = sum(state.size for state in cached.engine.states.values())
        yield list(packer.close(cached.engine.counts(), state_keys=keys))

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        """Whether all steps, or which, must flush because these sources have ended."""
        return bool(ended) and before | ended >= self._sources

    def _create_engine(self) -> Engine:
        return Engine(self._stage.steps, self._stage.outputs, self._stage.entries, self._order)

    def _fit_engine(self, engine: Engine) -> None:
        """Make an engine fit the steps of the stage, which do not change."""


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
