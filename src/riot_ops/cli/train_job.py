"""What ``riot-ops run train`` does: store readings, and learn from spans of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

#: Instead of a timer file: spans as the benchmark's own timers have them.
BENCHMARK = "benchmark"


@dataclass
class TrainJob(Job):
    """A run of TRAIN: its source gives ticks, at the pace that the options ask for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None and self.ticks != BENCHMARK:
            raise ConfigError(f"--start moves the spans of --ticks {BENCHMARK}; others have their own places")
        self._ticks: pa.Table | None = None
        if self.ticks not in (None, BENCHMARK):
            if self.spans is not None:
                raise ConfigError(f"--spans {self.spans}: the file {self.ticks} says how many spans there are")
            self._ticks = dataflows.read_ticks(self.ticks)

    def run_identity(self) -> dict[str, Any]:
        return {**super().run_identity(), "ticks": self.ticks, "spans": self.spans, "start": self.start}

    def total(self) -> None:
        """Readings come in, and spans are counted."""

    def sources(self, console: Console) -> Source:
        """The ticks; for that, readings are stored."""
        with console.status("storing readings to learn from …"):
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
        """It has no kernels that every record passes."""
