"""The generated lines that an application and its opponents read, as files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from riot_bench.harness.data import numbered
from riot_bench.harness.validation import lines_of
from riot_ops import streams
from riot_ops.core.source import Source
from riot_ops.dataflows.applications import Application

__all__ = ["PARTS", "Lines", "write_lines"]

#: Files of a micro-batch.
PARTS = 4


@dataclass(frozen=True)
class Lines:
    """Files of lines for each source of an application.

    Attributes
    ----------
    application : Application
    files : mapping of str to list of Path
        By source, in the order in which they are read.
    each : int
        Lines of a file.
    """

    application: Application
    files: Mapping[str, list[Path]]
    each: int

    def first(self, lines: int) -> Lines:
        """So many lines of each source; a multiple of those of a file."""
        return Lines(self.application, {n: f[: lines // self.each] for n, f in self.files.items()}, self.each)

    @property
    def total(self) -> int:
        """Lines of all sources."""
        return sum(map(len, self.files.values())) * self.each

    def sources(self) -> dict[str, Source]:
        """The files as riot_ops reads them."""
        return {name: streams.replay(files) for name, files in self.files.items()}

    def plain(self) -> dict[str, Iterator[bytes]]:
        """The files as Python reads them."""
        return {name: itertools.chain.from_iterable(map(lines_of, files)) for name, files in self.files.items()}


def write_lines(application: Application, folder: Path, lines: int, batch: int, seed: int = 1) -> Lines:
    """Generate what the sources of an application read.

    Parameters
    ----------
    lines : int
        Of each source, a multiple of ``batch``.
    batch : int
        Lines of a micro-batch, which are in :data:`PARTS` files.

    Examples
    --------
    >>> import tempfile
    >>> from riot_ops.dataflows.applications import application
    >>> made = write_lines(application("wc"), Path(tempfile.mkdtemp()), 80, 40)
    >>> made.total, made.first(40).total, sum(1 for _ in made.plain()["lines"])
    (80, 40, 80)
    """
    each = batch // PARTS
    written: dict[str, list[Path]] = {}
    for stream in application.inputs.values():
        if stream not in written:
            written[stream] = _write(streams.generate(stream, messages=lines, seed=seed), folder / stream, lines, each)
    return Lines(application, {source: written[stream] for source, stream in application.inputs.items()}, each)


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
        numbered(path, number)
        files.append(path)
    return files


def _text(payload: pa.Array) -> memoryview:
    lines = pc.binary_join_element_wise(payload.cast(pa.binary()), b"\n", b"")
    ends = lines.buffers()[1]
    assert lines.offset == 0
    return memoryview(lines.buffers()[2])[: memoryview(ends).cast("i")[len(lines)]]
