"""What a checkpoint on Spark notes of its query: what must agree, and where the state of each step is."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from riot_ops.core.operator import KeyedOperator
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan
from riot_ops.runtime.fingerprint import StepContract, fingerprint
from riot_ops.runtime.restart import step_contracts
from riot_ops.spark.blocks import Labels

__all__ = ["FORMAT", "Manifest", "describe_query", "state_layout"]

FORMAT = 2


class Manifest(msgspec.Struct):
    """What must agree for a checkpoint to be continued; ``flow`` and ``state`` by step."""

    format: int
    partitions: int
    order: str
    fuse: str
    flow: dict[str, dict[str, Any]]
    state: dict[str, dict[str, Any]]
    checksum: int = 0
    run: str = ""  # identity of the query for its sinks; manifests of earlier versions have none
    steps: dict[str, StepContract] = {}  # of the steps with state; as the rest, not in manifests of earlier versions
    layout: dict[str, dict[str, Any]] = {}  # where the state of each step is
    sources: dict[str, str] = {}  # their kinds, in the order of Spark's log
    base: int = 0  # number of the micro-batch that Spark calls 0

    def with_checksum(self) -> Manifest:
        """Return the manifest with the CRC-32 of all its other fields."""
        plain = msgspec.to_builtins(msgspec.structs.replace(self, checksum=0))
        for name in ("run", "steps", "layout", "sources", "base"):
            if not plain[name]:
                del plain[name]
        return msgspec.structs.replace(self, checksum=zlib.crc32(msgspec.json.encode(plain)))


def describe_query(flow: Graph, stages: Plan, order: str, fuse: str, kinds: dict[str, str]) -> Manifest:
    """Return the manifest of a query, without what follows from its number of partitions.

    ``kinds`` are those of its sources, see :func:`~riot_ops.runtime.restart.source_kind`.
    """
    state = {
        f"state of step {s.id!r}": {"key": list(s.key), "stage": number}
        for number, together in enumerate(stages.shuffles, 1)
        for stage in together
        for s in stage.steps
        if isinstance(s.operator, KeyedOperator)
    }
    return Manifest(FORMAT, 0, order, fuse, fingerprint(flow), state, steps=step_contracts(flow), sources=kinds)


def state_layout(stages: Plan, labels: Labels) -> dict[str, dict[str, Any]]:
    """Return where the state of each step is: the fields of the partition, and the labels of its buckets."""
    return {
        s.id: {"partition": list(stage.partition), "labels": list(labels[stage.index])}
        for stage in stages.stages[1:]
        for s in stage.steps
        if s.keyed
    }
