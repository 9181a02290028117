"""What ``riot-ops run micro`` and ``riot-ops run flow.json`` do: jobs with one source and no stores of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from rich.console import Console

from riot_ops import dataflows
from riot_ops.cli.feed import Feed
from riot_ops.cli.job import Job
from riot_ops.cli.record_files import RecordFeed
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import RAW
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.micro import micro_code, micro_source
from riot_ops.ingest.memory_source import MemorySource

__all__ = ["FlowJob", "MicroJob"]


@dataclass
class MicroJob(Job):
    """A run of one task between a source and a sink; see :func:`riot_ops.dataflows.micro`."""

    unsupported_options: ClassVar[tuple[str, ...]] = (
        *("stream", "sensors", "seed", "format", "form", "table", "models", "broker", "servers"),
    )

    task: str = "KAL"

    def __post_init__(self) -> None:
        if self.input is not None:
            raise ConfigError("micro generates its input; run an application with --input, or a dataflow of your own")
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
        if isinstance(source, MQTTSource):  # it has no kernels
            return
        start = source.initial()
        first = [b for split in source.splits(start, source.latest(start, 100), 1) for b in source.read(split)]
        dataflows.micro(self.task).run(MemorySource(pa.Table.from_batches(first)), sinks=MemorySink())


@dataclass
class FlowJob(Job):
    """A run of a dataflow from the file of its descriptor."""

    unsupported_options: ClassVar[tuple[str, ...]] = ("form", "table", "models", "broker", "servers")

    def __post_init__(self) -> None:
        self._path = Path(self.name)
        if not self._path.exists():
            raise ConfigError(f"no file {self.name}")
        self._flow = Dataflow.from_json(self._path.read_bytes())
        self._flow.validate()
        found = [node.id for node in self._flow.nodes_of_kind("source")]
        if len(found) != 1:
            raise ConfigError(
                f"{self.name} has {len(found)} sources ({', '.join(found)}): the command feeds one; "
                "run it from Python with a mapping of name to source"
            )
        (self._source,) = self._flow.nodes_of_kind("source")
        self._prepare()
        self.name = self._flow.name
        self.plot = False

    def _feed(self) -> Feed:
        """Lines of text, or where the source declares other fields than these have, records."""
        assert self._source.schema is not None
        if set(self._source.schema.names) <= set(RAW.names):
            return super()._feed()
        return RecordFeed(
            self.stream,
            self.messages,
            self.sensors,
            self.seed,
            self.input,
            self.format,
            self.time,
            self.key,
            self.rate,
            self.speed,
            self.curve,
            self._source.id,
            self._source.schema,
            self.time_unit,
        )

    def check(self) -> None:
        """What its source takes is the dataflow's affair."""
        if isinstance(self.feed, RecordFeed):
            self.feed.check()
        elif self.input is not None and self.feed.first(1) is None:
            raise ConfigError(f"--input {self.input} is empty")

    def run_identity(self) -> dict[str, Any]:
        return {
            **super().run_identity(),
            "dataflow": self._flow.to_dict(),
            "time": self.time,
            "time_unit": self.time_unit,
        }

    def sources(self, console: Console) -> Source:
        return self.source(paced=True)

    def dataflow(self, services: LocalServices) -> Dataflow:
        return self.feed.adapt(Dataflow.from_json(self._path.read_bytes()))

    def _warm_up(self) -> None:
        """Its tasks may write to stores: nothing is run beforehand."""
