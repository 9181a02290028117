"""Generations of a checkpoint: a changed query continues from the state and the offsets of the one before.

Spark fixes the stages with state, the number of shuffle partitions and the order of the sources when a query begins. So
a changed dataflow gets a new checkpoint of Spark's, ``generation-N`` within ours. Its micro-batch 0 is not one of the
dataflow: it puts the state of the steps that are kept into Spark's store, and stands where the old query stood.
``docs/adr/0026-a-changed-dataflow-continues.md`` has the steps, and what a crash between them leaves.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import StateError
from riot_ops.graph.lowering import Step
from riot_ops.graph.plan import Plan, Stage
from riot_ops.runtime.fingerprint import StepContract
from riot_ops.runtime.repartition import repartition_state
from riot_ops.runtime.restart import kept_state
from riot_ops.runtime.state import KeyedState
from riot_ops.spark.blocks import Block, Labels, blocks_to_batch
from riot_ops.spark.dataframe_transform import chain_stages
from riot_ops.spark.manifest import Manifest
from riot_ops.spark.session import PARTITIONS, active_session, query_settings
from riot_ops.spark.stage import ENDED_SOURCES, OWNER_BUCKET, SEED, SOURCE_END, StageProcessor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NewGeneration", "forged_offsets", "renumbered", "seed_blocks", "with_watermark"]

#: Version of Spark's offset log that is understood.
LOG_VERSION = "v1"
#: Offset of a source from which nothing has been read.
NO_OFFSET = "-"
#: Watermark of Spark's own in the logs of offsets and of commits.
WATERMARK, NEXT_WATERMARK = "batchWatermarkMs", "nextBatchWatermarkMs"
#: Name of a file with the first version of a state store.
STATE_FILE = re.compile(r"1((?:_[^.]+)?\.(?:zip|changelog|snapshot|delta)(?:\..+)?)")
#: Setting by which Spark writes changes instead of whole states.
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True, kw_only=True)
class NewGeneration:
    """What a new generation is made of.

    Attributes
    ----------
    stages, labels, order : Plan, Labels, tuple of str
        Of the new query.
    shuffle_partitions : int
        Its number of shuffle partitions.
    contracts : dict of str to StepContract
        Of its steps with state.
    kept : sequence of str
        Steps whose state it takes over.
    ended : sequence of str
        Its sources that had ended.
    layout : mapping
        Where the old query kept the state of each step: fields of the partition, and labels of the buckets.
    owner, notes : dict and Manifest, optional
        See :class:`~riot_ops.spark.stage.StageProcessor`.
    """

    stages: Plan
    labels: Labels
    order: tuple[str, ...]
    contracts: Mapping[str, StepContract]
    kept: Sequence[str]
    ended: Sequence[str]
    layout: Mapping[str, Mapping[str, Any]]
    shuffle_partitions: int
    owner: dict[str, dict[str, Any]] | None = None
    notes: Manifest | None = None

    def build(self, spark: SparkSession, blocks: list[Block], new: str, seed: str, renumbered: bool) -> None:
        """Run the micro-batch that puts the state in ``blocks`` into ``new``, a checkpoint of Spark's.

        ``seed`` is a folder for the state in between. State that is ``renumbered`` later is written whole.
        """
        packed = blocks_to_batch(blocks)
        settings = {PARTITIONS: str(self.shuffle_partitions)} | ({CHANGELOG: "false"} if renumbered else {})
        with active_session(spark), query_settings(spark, settings):
            spark.createDataFrame(pa.Table.from_batches([packed])).coalesce(1).write.mode("overwrite").parquet(seed)
            schema = spark.read.parquet(seed).schema
            frame = spark.readStream.schema(schema).parquet(seed)
            run = uuid.uuid4().hex
            made = partial(StageProcessor, owner=self.owner, notes=self.notes)
            processors = [
                made(self.stages, number, self.labels, run, self.order, Buffering())
                for number in range(1, len(self.stages.shuffles) + 1)
            ]
            writer = chain_stages(spark, frame, processors).writeStream.format("noop")
            query = writer.option("checkpointLocation", new).trigger(availableNow=True).start()
            query.awaitTermination()


def seed_blocks(new: NewGeneration, found: Mapping[str, Mapping[int, Sequence[bytes]]], where: str) -> list[Block]:
    """Return the blocks with the state of each bucket; ``found`` is that of the old query by step and bucket."""
    states: dict[tuple[int, int], dict[str, bytes]] = {}
    for stage in new.stages.stages[1:]:
        labels = new.labels[stage.index]
        if new.ended:
            for label in labels:
                states.setdefault((stage.index, label), {})
        for step in stage.steps:
            if step.keyed and step.id in new.kept:
                parts = _moved(step, stage, new, found.get(step.id, {}), len(labels), where)
                for label, data in zip(labels, parts, strict=True):
                    states.setdefault((stage.index, label), {})[step.id] = data
    ended = msgspec.json.encode(sorted(new.ended))
    blocks = [
        Block(index, label, SEED, 0, 0.0, 0.0, msgspec.msgpack.encode({ENDED_SOURCES: ended, **{step: data}}))
        for (index, label), held in states.items()
        for step, data in (held or {ENDED_SOURCES: ended}).items()
    ]
    if new.owner is not None:
        blocks += [Block(s.index, OWNER_BUCKET, SOURCE_END, 0, 0.0, 0.0, b"") for s in new.stages.stages[1:]]
    return blocks


def _moved(
    step: Step, stage: Stage, new: NewGeneration, found: Mapping[int, Sequence[bytes]], n: int, where: str
) -> list[bytes]:
    """Return the state of a step by bucket of the new query."""
    named = f" of step {step.id!r} in {where}"
    contract = new.contracts[step.id]

    def whole(snapshots: Sequence[bytes]) -> bytes:
        state = KeyedState(step.operator, step.key, step.clock)  # type: ignore[arg-type]
        for data in snapshots:
            state.restore(kept_state(data, contract, named), named)
        return state.snapshot()

    before = new.layout.get(step.id, {})
    labels = before.get("labels", [])
    if before.get("partition") == list(stage.partition) and len(labels) == n:
        return [whole(found.get(label, ())) for label in labels]
    parts = [whole(snapshots) for snapshots in found.values()]
    return repartition_state(step, parts, stage.partition, n) if parts else [whole(())] * n


def forged_offsets(seeded: str, old: str, places: Sequence[int | None], where: str) -> str:
    r"""Return an entry of the offset log: the settings of ``seeded`` with the offsets of ``old``.

    ``places`` has the place in ``old`` of each source; None for a source from which nothing has been read.

    >>> print(forged_offsets("v1\n{}\n0", "v1\n{}\n10\n20", [1, None], "it"))
    v1
    {}
    20
    -
    """
    version, settings, *_ = seeded.split("\n")
    then, before, *offsets = old.rstrip("\n").split("\n")
    if {version, then} != {LOG_VERSION}:
        raise StateError(f"{where} has an offset log of version {then}, only {LOG_VERSION} is understood")
    lines = [NO_OFFSET if place is None else offsets[place] for place in places]
    if WATERMARK in (earlier := json.loads(before)):
        settings = json.dumps({**json.loads(settings), WATERMARK: earlier[WATERMARK]}, separators=(",", ":"))
    return "\n".join([version, settings, *lines])


def with_watermark(commit: str, old: str) -> str:
    r"""Return an entry of the log of commits with the watermark of another.

    >>> with_watermark('v1\n{"nextBatchWatermarkMs":0,"more":{}}', 'v1\n{"nextBatchWatermarkMs":5}')
    'v1\n{"nextBatchWatermarkMs":5,"more":{}}'
    """
    version, text = commit.split("\n", 1)
    _, before = old.split("\n", 1)
    earlier = {name: value for name, value in json.loads(before).items() if name == NEXT_WATERMARK}
    return f"{version}\n{json.dumps({**json.loads(text), **earlier}, separators=(',', ':'))}"


def renumbered(name: str, number: int) -> str | None:
    """Return the name that a file with the state of micro-batch 0 has as that of ``number``; None if it is no such.

    >>> renumbered("1.zip", 7), renumbered("1_a-b.zip", 7), renumbered("000012-ab.sst", 7)
    ('8.zip', '8_a-b.zip', None)
    """
    found = STATE_FILE.fullmatch(name)
    return None if found is None else f"{number + 1}{found[1]}"
