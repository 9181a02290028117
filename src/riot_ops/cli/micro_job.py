"""The job of ``riot-ops run micro``: one task between a source and a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from rich.console import Console

from riot_ops import dataflows
from riot_ops.cli.job import Job
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.micro import micro_code, micro_source
from riot_ops.ingest.memory_source import MemorySource

__all__ = ["MicroJob"]


@dataclass
class MicroJob(Job):
    """A run of one task between a source and a sink; see :func:`riot_ops.dataflows.micro`."""

    unsupported_options: ClassVar[tuple[str, ...]] = (
        *("stream", "sensors", "seed", "format", "form", "table", "models", "broker", "servers"),
    )

    task: str = "KAL"

    reads_mqtt: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.input is not None:
            raise ConfigError("micro generates its input: --input is for applications and for a dataflow's JSON file")
        self._prepare()
        self.name, self.task = f"micro-{self.task.lower()}", micro_code(self.task)
        self.plot = False

    def total(self) -> int | None:
        return self.messages

    def source(self, *, paced: bool) -> Source:
        source = micro_source(self.task, self.messages)
        return self.feed.at_pace(source) if paced else source

    def describe_input(self) -> str:
        return f"{self.messages:,} messages for the task {self.task}"

    def sources(self, console: Console) -> Source:
        return self.source(paced=True)

    def dataflow(self, services: LocalServices) -> Dataflow:
        return dataflows.micro(self.task)

    def _warm_up(self) -> None:
        source = self.source(paced=False)
        if isinstance(source, MQTTSource):  # has no kernels
            return
        start = source.initial()
        first = [b for split in source.splits(start, source.latest(start, 100), 1) for b in source.read(split)]
        dataflows.micro(self.task).run(MemorySource(pa.Table.from_batches(first)), sinks=MemorySink())
