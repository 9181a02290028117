"""Generated lines as files, which an application and its baselines read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from riot_bench.harness.data import set_file_order
from riot_bench.harness.validation import read_lines
from riot_ops import streams
from riot_ops.core.source import Source
from riot_ops.dataflows.applications import Application

__all__ = ["FILES_PER_BATCH", "InputLines", "write_input_lines"]

#: Files of a micro-batch.
FILES_PER_BATCH = 4


@dataclass(frozen=True)
class InputLines:
    """Files of lines for each source of an application.

    Attributes
    ----------
    application : Application
    files : mapping of str to list of Path
        Files by source, in reading order.
    lines_per_file : int
    """

    application: Application
    files: Mapping[str, list[Path]]
    lines_per_file: int

    def take(self, lines: int) -> InputLines:
        """Return the first ``lines`` lines of each source, a multiple of ``lines_per_file``."""
        return InputLines(
            self.application, {n: f[: lines // self.lines_per_file] for n, f in self.files.items()}, self.lines_per_file
        )

    @property
    def total(self) -> int:
        """Number of lines of all sources."""
        return sum(map(len, self.files.values())) * self.lines_per_file

    def sources(self) -> dict[str, Source]:
        """Return the files as sources of riot_ops."""
        return {name: streams.replay(files) for name, files in self.files.items()}

    def plain_lines(self) -> dict[str, Iterator[bytes]]:
        """Return the lines of each source for plain Python."""
        return {name: itertools.chain.from_iterable(map(read_lines, files)) for name, files in self.files.items()}


def write_input_lines(
    application: Application, folder: Path, lines: int, batch: int, seed: int = 1, **options: Any
) -> InputLines:
    """Generate the input of an application's sources.

    Parameters
    ----------
    application : Application
    folder : Path
    lines : int
        Lines of each source, a multiple of ``batch``.
    batch : int
        Lines of a micro-batch, written as :data:`FILES_PER_BATCH` files.
    seed : int, default 1
    **options
        Options of all streams.

    Examples
    --------
    >>> import tempfile
    >>> from riot_ops.dataflows.applications import application
    >>> made = write_input_lines(application("wc"), Path(tempfile.mkdtemp()), 80, 40)
    >>> made.total, made.take(40).total, sum(1 for _ in made.plain_lines()["lines"])
    (80, 40, 80)
    """
    each = batch // FILES_PER_BATCH
    written: dict[str, list[Path]] = {}
    for stream in application.inputs.values():
        if stream not in written:
            source = streams.generate(stream, messages=lines, seed=seed, **options)
            written[stream] = _write(source, folder / stream, lines, each)
    return InputLines(application, {source: written[stream] for source, stream in application.inputs.items()}, each)


def _write(source: Source, folder: Path, lines: int, each: int) -> list[Path]:
    folder.mkdir(parents=True)
    files = []
    at = source.initial()
    for number in range(lines // each):
        path = folder / f"{number:05d}.txt"
        end = source.latest(at, each)
        with path.open("wb") as file:
            for split in source.splits(at, end, 1):
                for batch in source.read(split):
                    file.write(_text(batch.column("payload")))
        at = end
        set_file_order(path, number)
        files.append(path)
    return files


def _text(payload: pa.Array) -> memoryview:
    lines = pc.binary_join_element_wise(payload.cast(pa.binary()), b"\n", b"")
    ends = lines.buffers()[1]
    assert lines.offset == 0
    return memoryview(lines.buffers()[2])[: memoryview(ends).cast("i")[len(lines)]]
