"""A keyed stage of a fragment: as any on Spark, but that steps may rest, and end when the sources above them have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

import msgspec

from riot_ops.core.sink import Fan
from riot_ops.reuse.spark.outlet import FragmentOutlet
from riot_ops.reuse.spark.source import Told
from riot_ops.runtime.spark.blocks import Block, Packer
from riot_ops.runtime.spark.stage import FLUSH, Cached, StageProcessor

__all__ = ["FragmentStage"]


class FragmentStage(StageProcessor):
    """See :class:`~riot_ops.runtime.spark.stage.StageProcessor`.

    Parameters
    ----------
    topic : FragmentOutlet
        What is forwarded goes there.
    origins : mapping of str to set of str
        By step, the sources above it.
    over : set of str
        The sources that had ended when the fragment began.
    """

    def __init__(
        self, *given: Any, topic: FragmentOutlet, origins: Mapping[str, Set[str]], over: Set[str], **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._topic = topic
        self._origins = origins
        self._over = over

    def _process(self, bucket: int, blocks: list[Block]) -> Iterator[Any]:
        marks = [b for b in blocks if b.stream == FLUSH]
        self._told = msgspec.msgpack.decode(marks[0].payload, type=Told)
        blocks = [b for b in blocks if b.stream != FLUSH]
        blocks += [replace(marks[0], payload=source.encode()) for source in self._told.ended]
        yield from super()._process(bucket, blocks)

    def _writer(self, place: int) -> Fan | None:
        return self._topic.told(self._told.control.forward).writer(self._stage.index, place)

    def _run_bucket(self, cached: Cached, packer: Packer, blocks: list[Block]) -> Iterator[list[Block]]:
        cached.engine.resting = set(self._told.control.resting)
        yield from super()._run_bucket(cached, packer, blocks)

    def _flush(self, before: frozenset[str], ended: Set[str]) -> bool | Set[str]:
        then = before | self._over
        now = then | ended
        return {s for s, above in self._origins.items() if above <= now and not above <= then}
