"""Checkpoints of queries that the user starts, which only Spark writes: a changed dataflow continues from one.

They have no manifest. The state of each stage notes what a restart must know. Other sinks than ours know a micro-batch
by the query's id and Spark's number of it, so a generation of such a checkpoint keeps both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.locations import generation_folder
from riot_ops.spark.manifest import FORMAT, Manifest
from riot_ops.spark.session import PARTITIONS
from riot_ops.spark.state_reader import has_own_state, read_notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["UserCheckpoint"]


class UserCheckpoint(SparkCheckpoint):
    """The checkpoint of a query that the user starts; ``kinds`` are those of the sources of now."""

    keeps_numbers = True

    def __init__(self, spark: SparkSession, place: str | Path, kinds: dict[str, str]) -> None:
        super().__init__(spark, place)
        self._kinds = kinds

    def exists(self) -> bool:
        """Whether a micro-batch has been committed."""
        return self.next_batch() > 0

    @property
    def base(self) -> int:
        """Number of the micro-batch that Spark calls 0."""
        return 0

    def keeps_state(self) -> bool:
        """Whether the query that has written the checkpoint had steps with state."""
        with self._translating_errors("read"):
            system, path = self._hadoop("state")
            found = bool(system.exists(path))
        return found and has_own_state(self._spark, self.location)

    def _read(self) -> Manifest:
        if self._number():
            return super()._read()
        with self._translating_errors("read"):
            settings = json.loads(self._text(f"offsets/{self.next_batch() - 1}").split("\n")[1])
        shuffles = int(settings["conf"][PARTITIONS])
        if not self.keeps_state():  # nothing is known of the dataflow but its sources
            return Manifest(FORMAT, shuffles, "arrival", "coarse", {}, {}, sources=self._kinds)
        found = read_notes(self._spark, self.location)
        if found is None:
            raise StateError(
                f"the checkpoint {self.folder} does not note what identifies its state, as those of earlier versions: "
                "continue it once with the dataflow that wrote it, and change the dataflow then"
            )
        owner, notes = found
        try:
            manifest = msgspec.json.decode(notes, type=Manifest)
        except msgspec.MsgspecError as error:
            raise StateError(f"the state in {self.folder} is damaged: {error}; use a new checkpoint") from None
        if manifest.with_checksum() != manifest:
            raise StateError(f"the state in {self.folder} is damaged: the checksum does not fit; use a new checkpoint")
        return msgspec.structs.replace(manifest, partitions=owner["the query"].get("partitions", shuffles))

    def _remove_old(self) -> None:
        """Remove the generations before the previous one, but not what the user's own folder has."""
        for generation in range(1, self._number() - 1):
            with self._translating_errors("written"):
                self._delete(generation_folder(self.folder, generation))
