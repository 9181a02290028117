"""The job of ``riot-ops run`` for applications that read lines in a format of their own, such as DSPBench's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from rich.console import Console

from riot_ops import streams
from riot_ops.cli import result_plots
from riot_ops.cli.job import Job
from riot_ops.cli.settings import configure, place_to_read
from riot_ops.core.errors import ConfigError
from riot_ops.core.file_paths import absolute_path
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.core.storage import Address
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import Application, application
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.ingest.pace import paced
from riot_ops.tasks.parse.line_parser import LineParser

__all__ = ["ApplicationJob"]

#: Maximum messages that a plot reads.
MAX_PARSED = 500_000
#: Messages of the warm-up run, which compiles the kernels.
WARM_UP_MESSAGES = 200


@dataclass
class ApplicationJob(Job):
    """A run of an application over generated lines, or the lines of files.

    ``inputs`` are the values of ``--input``: a file, or ``NAME=FILE`` for a source or for a parameter that names a
    file. ``settings`` are the values of ``--set``.
    """

    unsupported_options: ClassVar[tuple[str, ...]] = (
        *("stream", "sensors", "format", "time", "time_unit", "read", "key", "curve"),
        *("form", "table", "models", "broker", "servers"),
    )

    inputs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    _files: dict[str, Path | Address] = field(default_factory=dict, init=False, repr=False)

    reads_mqtt: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.application: Application = application(self.name)
        self.name = self.application.name
        self._prepare()
        configured = configure(self.application, self.inputs, self.settings)
        self._files, self._parameters, self._flow = dict(configured.files), configured.parameters, configured.flow
        #: The generated stream of each source that the dataflow has with these parameters.
        feeds = {**self.application.inputs, **self.application.optional_inputs}
        self._inputs = {node.id: feeds[node.id] for node in self._flow.nodes_of_kind("source")}
        if self.speed is not None:
            for name, source in self._inputs.items():
                if name in self._files and self._timestamp_parser(name) is None:
                    raise ConfigError(f"--speed needs event times, which the records of {source} lack; use --rate")

    @property
    def _has_input(self) -> bool:
        return bool(self.inputs)

    @property
    def _files_to_read(self) -> list[Path | Address]:
        known = {*self.application.inputs, *self.application.optional_inputs, *self.application.files}
        named = ((name in known) * path or text for text in self.inputs for name, _, path in [text.partition("=")])
        return [place_to_read(path, "--input") for path in named]

    def _timestamp_parser(self, source: str) -> LineParser | None:
        """Return the parser that reads event times from a source's lines, if there is one."""
        parser = self._parser(source)
        return parser if parser is not None and "event_time" in parser.schema else None

    def _parser(self, source: str) -> LineParser | None:
        """Return the parser of a source's lines, if there is one."""
        consumers = (self._flow.nodes[edge.target].task for edge in self._flow.outputs(source))
        return next((task for task in consumers if isinstance(task, LineParser)), None)

    # -- input -------------------------------------------------------------------------------------

    def _open_source(self, name: str) -> Source:
        """Return a source without a pace."""
        if name in self._files:
            return streams.replay(str(self._files[name]), encoding=self.encoding, times=self._timestamp_parser(name))
        return streams.generate(self._inputs[name], messages=self.messages, seed=self.seed)

    def sources(self, console: Console) -> dict[str, Source]:
        return {name: paced(self._open_source(name), self.speed, self.rate) for name in self._inputs}

    def total(self) -> int | None:
        """Return the number of messages."""
        messages = 0
        for name in self._inputs:
            source = self._open_source(name)
            start = source.initial()
            messages += source.count(start, source.latest(start)) or 0
        return messages

    def check(self) -> None:
        for name, path in self._files.items():
            source = self._open_source(name)
            if source.latest(source.initial(), 1) == source.initial():
                raise ConfigError(f"--input {path} is empty")

    def describe_input(self) -> str:
        if self._files:
            return ", ".join(map(str, dict.fromkeys(self._files.values())))
        return f"{self.messages:,} generated {' and '.join(dict.fromkeys(self._inputs.values()))} messages"

    def run_identity(self) -> dict[str, Any]:
        return {
            "application": self.name,
            "input": {n: absolute_path(str(p)) for n, p in self._files.items()} or self._inputs,
            "seed": self.seed,
            "parameters": {name: repr(value) for name, value in sorted(self._parameters.items())},
            "runner": self.runner,
        }

    # -- run ---------------------------------------------------------------------------------------

    def dataflow(self, services: LocalServices) -> Dataflow:
        return self._flow

    def _warm_up(self) -> None:
        """Run over a few messages to compile the kernels once and not in every worker."""
        samples = {}
        for name in self._inputs:
            source = self._open_source(name)
            start = source.initial()
            end = source.latest(start, WARM_UP_MESSAGES)
            batches = [b for split in source.splits(start, end, 1) for b in source.read(split)]
            samples[name] = MemorySource(pa.Table.from_batches(batches, source.schema))
        self._flow.run(samples, sinks=MemorySink())

    def draw(self, console: Console) -> None:
        """Draw the plot of the application's results."""
        path = self.folder / f"{self.name}.png"
        drawn = result_plots.draw(self.name, result_plots.Results(self.folder, self._parse_source), path)
        console.print(f"plot: {path}" if drawn else "no plot: there is nothing to draw", soft_wrap=True)

    def _parse_source(self, name: str) -> pa.Table:
        """Parse the first records of a source."""
        parser = self._parser(name)
        assert parser is not None, f"the lines of {name} have no parser"
        source, session = self._open_source(name), parser.session()
        start = source.initial()
        splits = source.splits(start, source.latest(start, MAX_PARSED), 1)
        parsed = [session.push_batch(batch) for split in splits for batch in source.read(split)]
        return pa.Table.from_batches(parsed, parser.output_schema(source.schema))
