"""A keyed stage of a fragment: as any on Spark, but that steps may rest, and end when the sources above them have."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.core.sink import Fan
from riot_ops.reuse.spark.broken import note_raised
from riot_ops.reuse.spark.control import read_json, write_bytes
from riot_ops.reuse.spark.layout import Layouts
from riot_ops.reuse.spark.outlet import FragmentOutlet
from riot_ops.reuse.spark.source import BEGIN, EXPORT, Begin, Told
from riot_ops.runtime.engine import Engine
from riot_ops.spark.blocks import Block, Packer
from riot_ops.spark.stage import FLUSH, Cached, Head, StageProcessor, cached_engines

__all__ = ["SEED", "FragmentStage", "bucket_file", "read_states", "write_states"]

#: The folder with the state that buckets begin with.
SEED = "seed"


def bucket_file(stage: int, place: int) -> str:
    """The file with the state of a bucket."""
    return f"{stage}-{place}.msgpack"


def write_states(path: Path, states: Mapping[str, bytes]) -> None:
    """Keep snapshots by step."""
    write_bytes(path, msgspec.msgpack.encode(states))


def read_states(path: Path) -> dict[str, bytes]:
    """The same again; each snapshot is under a checksum of its own."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes])
    except (OSError, msgspec.MsgspecError) as error:
        raise StateError(f"the state {path} cannot be read: {error}") from None


class FragmentStage(StageProcessor):
    """See :class:`~riot_ops.spark.stage.StageProcessor`.

    Parameters
    ----------
    topic : FragmentOutlet
        What is forwarded goes there.
    layouts : Layouts
        The steps, of which more may join.
    folder : path
        The fragment's, which says which sources had ended when it began; what is in ``seed`` a bucket begins with,
        and to ``export`` it leaves its state when the fragment is held.
    """

    def __init__(
        self,
        *given: Any,
        topic: FragmentOutlet,
        layouts: Layouts,
        folder: Path,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._topic = topic
        self._layouts = layouts
        self._folder = folder

    def _process(self, bucket: int, blocks: list[Block]) -> Iterator[Any]:
        marks = [b for b in blocks if b.stream == FLUSH]
        self._told = msgspec.msgpack.decode(marks[0].payload, type=Told)
        self._layout = self._layouts.of(self._told.control)
        self._plan = self._layout.plan
        self._stage = self._plan.stages[self._stage.index]
        blocks = [b for b in blocks if b.stream != FLUSH]
        blocks += [replace(marks[0], payload=source.encode()) for source in self._told.ended]
        yield from super()._process(bucket, blocks)
        if self._told.control.hold:
            self._export(bucket)

    def _export(self, bucket: int) -> None:
        """Leave all state; the engine that gave it is not used again, as it counts on a snapshot that is elsewhere."""
        cached = cached_engines(self._run).pop((self._stage.index, bucket))
        write_states(self._folder / EXPORT / self._name(bucket), cached.engine.snapshot())

    def _load(self, bucket: int) -> tuple[Head, Cached]:
        head, cached = super()._load(bucket)
        seed = self._folder / SEED / self._name(bucket)
        if head.generation < 0 and seed.exists():
            cached.engine.restore(read_states(seed))
        self._fit(cached.engine)
        return head, cached

    def _catch_up(self, cached: Cached, head: Head) -> bool:
        self._fit(cached.engine)  # of steps that have joined since it stood there, the links hold all state
        return super()._catch_up(cached, head)

    def _fit(self, engine: Engine) -> None:
        """Let an engine have the steps of the layout, and no others."""
        engine.drop({step.id for step in engine.steps} - {step.id for step in self._stage.steps})
        engine.extend([step for step in self._stage.steps if not engine.has(step.id)])
        engine.outputs, engine.entries = self._stage.outputs, self._stage.entries

    def _name(self, bucket: int) -> str:
        return bucket_file(self._stage.index, self._labels[self._stage.index].index(bucket))

    def _writer(self, place: int) -> Fan | None:
        return self._topic.told(self._told.control.forward).writer(self._stage.index, place)

    def _run_bucket(self, cached: Cached, packer: Packer, blocks: list[Block]) -> Iterator[list[Block]]:
        cached.engine.resting = self._layout.resting(self._told.version, self._told.control)
        cached.engine.failing = functools.partial(note_raised, self._folder)
        yield from super()._run_bucket(cached, packer, blocks)

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        if not ended:
            return False
        then = before | {*read_json(self._folder / BEGIN, Begin).over}
        now = then | ended
        return {s for s, above in self._layout.origins.items() if above <= now and not above <= then}
