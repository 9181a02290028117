"""A keyed stage of a fragment: a Spark stage whose steps may be idle, join later, and end with the sources upstream."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.reuse.spark.failures import record_error
from riot_ops.reuse.spark.files import read_json, write_bytes
from riot_ops.reuse.spark.layout import LayoutStore
from riot_ops.reuse.spark.source import EXPORT, START, BatchInfo, StartPoint
from riot_ops.reuse.spark.topic_writer import TopicOutput
from riot_ops.runtime.engine import Engine
from riot_ops.spark.blocks import Block
from riot_ops.spark.stage import SOURCE_END, StageProcessor, StateChain, cached_engines

__all__ = ["SEED", "FragmentStage", "bucket_file", "read_states", "write_states"]

#: The folder with the initial state of buckets.
SEED = "seed"


def bucket_file(stage: int, place: int) -> str:
    """Return the name of the file with the state of a bucket."""
    return f"{stage}-{place}.msgpack"


def write_states(path: Path, states: Mapping[str, bytes]) -> None:
    """Write snapshots by step."""
    write_bytes(path, msgspec.msgpack.encode(states))


def read_states(path: Path) -> dict[str, bytes]:
    """Read snapshots by step; each has a checksum of its own."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes])
    except (OSError, msgspec.MsgspecError) as error:
        raise StateError(f"the state {path} cannot be read: {error}") from None


class FragmentStage(StageProcessor):
    """See :class:`~riot_ops.spark.stage.StageProcessor`.

    Parameters
    ----------
    output : TopicOutput
        Makes the writers of the forwarded streams.
    layouts : LayoutStore
        The steps, which later layouts may extend.
    folder : path
        The fragment's folder. Its start point names the sources that had ended at the start, ``seed`` holds the initial
        state of buckets, and ``export`` receives their state when the fragment is on hold.
    """

    def __init__(
        self,
        *given: Any,
        output: TopicOutput,
        layouts: LayoutStore,
        folder: Path,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._output = output
        self._layouts = layouts
        self._folder = folder

    def _process(self, bucket: int, blocks: list[Block], variable: Any) -> Iterator[Any]:
        flushes = [b for b in blocks if b.stream == SOURCE_END]
        self._info = msgspec.msgpack.decode(flushes[0].payload, type=BatchInfo)
        self._layout = self._layouts.get(self._info.control)
        self._plan = self._layout.plan
        self._stage = self._plan.stages[self._stage.index]
        self._sink_routes = self._output.forwarding(self._info.control.forward)
        blocks = [b for b in blocks if b.stream != SOURCE_END]
        blocks += [replace(flushes[0], payload=source.encode()) for source in self._info.ended]
        yield from super()._process(bucket, blocks, variable)
        if self._info.control.hold:
            self._export(bucket)

    def _export(self, bucket: int) -> None:
        """Export all state, and drop the engine: its next snapshot would refer to one that is not in Spark's state."""
        cached = cached_engines(self._run).pop((self._stage.index, bucket))
        write_states(self._folder / EXPORT / self._name(bucket), cached.engine.snapshot())

    def _prepare(self, engine: Engine, bucket: int, chain: StateChain) -> None:
        seed = self._folder / SEED / self._name(bucket)
        if chain.head.generation < 0 and seed.exists():
            engine.restore(read_states(seed))
        self._fit_engine(engine)
        engine.disabled = self._layout.idle_steps(self._info.version, self._info.control)
        engine.on_failure = functools.partial(record_error, self._folder)

    def _fit_engine(self, engine: Engine) -> None:
        """Give an engine exactly the steps of the layout; all state of those that have joined since is in the links."""
        engine.drop({step.id for step in engine.steps} - {step.id for step in self._stage.steps})
        engine.extend([step for step in self._stage.steps if not engine.has(step.id)])
        engine.outputs, engine.entries = self._stage.outputs, self._stage.entries

    def _name(self, bucket: int) -> str:
        return bucket_file(self._stage.index, self._labels[self._stage.index].index(bucket))

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        if not ended:
            return False
        then = before | {*read_json(self._folder / START, StartPoint).over}
        now = then | ended
        return {s for s, above in self._layout.origins.items() if above <= now and not above <= then}
