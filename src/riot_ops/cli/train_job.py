"""The job of ``riot-ops run train``: store readings, and train models on spans of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from rich.console import Console

from riot_ops import dataflows
from riot_ops.cli.job import Job
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import TRAINING_SPANS, LocalServices
from riot_ops.ingest.memory_source import MemorySource

__all__ = ["TrainJob"]

#: Value of ``--ticks`` for spans like those of the benchmark's timer files.
BENCHMARK = "benchmark"


@dataclass
class TrainJob(Job):
    """A run of TRAIN, whose source is ticks at the pace of the options; each tick names a span to train on."""

    reads_mqtt: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None and self.ticks != BENCHMARK:
            raise ConfigError(f"--start needs --ticks {BENCHMARK}: other spans have their own times")
        self._ticks: pa.Table | None = None
        if self.ticks not in (None, BENCHMARK):
            if self.spans is not None:
                raise ConfigError(
                    f"--spans {self.spans}: the file {self.ticks} has its own number of spans; leave it out"
                )
            self._ticks = dataflows.read_ticks(self.ticks)

    def run_identity(self) -> dict[str, Any]:
        return {**super().run_identity(), "ticks": self.ticks, "spans": self.spans, "start": self.start}

    def total(self) -> None:
        """Return None: the run counts spans, and their number is not known before."""

    def sources(self, console: Console) -> Source:
        """Store the readings to train on, and return the ticks."""
        with console.status("storing the readings to train on …"):
            ticks = self.services.load(self.source(paced=False), self.spans or TRAINING_SPANS)
        if self._ticks is not None:
            ticks = self._ticks
        elif self.ticks == BENCHMARK:
            start = ticks["start"][0].as_py() if self.start is None else self.start
            ticks = dataflows.ticks(self.feed.schema.name, self.spans, start)
        return self.feed.at_pace(MemorySource(ticks))

    def dataflow(self, services: LocalServices) -> Dataflow:
        return services.train()

    def _warm_up(self) -> None:
        """Run nothing: no kernel sees every record."""
