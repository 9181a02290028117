"""The job of ``riot-ops run flow.json``: a dataflow from the file with its descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from riot_ops.cli.feed import Feed
from riot_ops.cli.job import Job
from riot_ops.cli.record_feed import RecordFeed
from riot_ops.connectors.mqtt.source import MESSAGES
from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import safe_file_name
from riot_ops.core.schema import RAW
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices

__all__ = ["FlowJob"]


@dataclass
class FlowJob(Job):
    """A run of a dataflow, read from the file with its JSON descriptor."""

    unsupported_options: ClassVar[tuple[str, ...]] = ("form", "table", "models", "broker", "servers")

    def __post_init__(self) -> None:
        self._path = Path(self.name)
        if not self._path.exists():
            raise ConfigError(f"no such file: {self.name}")
        self._flow = Dataflow.from_json(self._path.read_bytes())
        self._flow.validate()
        sources = [node.id for node in self._flow.nodes_of_kind("source")]
        if len(sources) != 1:
            raise ConfigError(
                f"{self.name} has {len(sources)} sources ({', '.join(sources)}), and the command reads one; "
                "run the dataflow from Python with a mapping of source name to source"
            )
        (self._source,) = self._flow.nodes_of_kind("source")
        self._prepare()
        self.name = self._flow.name
        self.plot = False

    @property
    def folder(self) -> Path:
        return self.out if isinstance(self.out, Path) else Path("out") / safe_file_name(self._flow.name)

    def _feed(self) -> Feed:
        """Return a feed of text lines, or of records if the source declares other fields than lines have."""
        assert self._source.schema is not None
        if self.mqtt is not None and not {*self._source.schema.names} <= {*MESSAGES.names}:
            raise ConfigError(
                f"--mqtt gives the fields {', '.join(MESSAGES.names)}, but the source {self._source.id!r} declares "
                f"{', '.join(self._source.schema.names)}"
            )
        if self.mqtt is not None:
            return super()._feed()
        if set(self._source.schema.names) <= set(RAW.names):
            return super()._feed()
        return RecordFeed(
            **self._feed_options,
            source_id=self._source.id,
            fields=self._source.schema,
            time_unit=self.time_unit,
            read=self.read,
        )

    def check(self) -> None:
        """Check that records have the declared fields, and that a file of lines is not empty."""
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
            **({"read": list(self.read)} if self.read else {}),
        }

    def sources(self, console: Console) -> Source:
        return self.source(paced=True)

    def dataflow(self, services: LocalServices) -> Dataflow:
        return self.feed.adapt(Dataflow.from_json(self._path.read_bytes()))

    def _warm_up(self) -> None:
        """Run nothing: the dataflow's tasks may write to stores."""
