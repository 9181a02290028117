"""Results of an application held against those of the same application in plain Python."""

from __future__ import annotations

import gzip
import importlib
import math
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.harness.matching import Row, is_tolerated, unmatched
from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.dataflows.applications import Application
from riot_ops.ingest.replay import find_files

__all__ = ["Comparison", "compare", "lines_of", "plain_program", "plain_results", "validate"]

#: Records that are shown of each that differ.
SHOWN = 3


@dataclass(frozen=True)
class Comparison:
    """A stream held against what it should be, as multisets.

    Attributes
    ----------
    stream : str
    wanted, found : int
        Numbers of records.
    missing, unexpected : list of tuple
        Records that are only on one side, the first few.
    differing : int
        How many there are of these.
    """

    stream: str
    wanted: int
    found: int
    missing: list[Row]
    unexpected: list[Row]
    differing: int

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not self.differing


def compare(stream: str, wanted: Iterable[Row], found: Iterable[Row]) -> Comparison:
    """Two lists of records as multisets, numbers with a tolerance.

    >>> compare("x", [("a", 1.0), ("b", 2.0)], [("b", 2.0 + 1e-12), ("a", 1.5)]).missing
    [('a', 1.0)]
    """
    sides = [_grouped(wanted), _grouped(found)]
    only: list[list[Row]] = [[], []]
    for key in {**sides[0], **sides[1]}:
        left, right = unmatched(*(side.get(key, ()) for side in sides))
        only[0] += left
        only[1] += right
    numbers = [sum(map(len, side.values())) for side in sides]
    return Comparison(stream, numbers[0], numbers[1], only[0][:SHOWN], only[1][:SHOWN], sum(map(len, only)))


def _grouped(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Records by what must be equal in them, and where numbers with a tolerance stand."""
    found: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(float if is_tolerated(value) else _plain(value) for value in row)].append(row)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, float) and math.isnan(value):
        return float, "nan"  # equals itself
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, or of all in a folder, as a run reads them: unpacked, without byte order marks."""
    for name in find_files(path):
        with gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb") as file:
            if first := file.readline().removeprefix(BOM_UTF8):
                yield first
            yield from file


def plain_program(application: Application) -> Callable[..., dict[str, list[Row]]]:
    """The application in plain Python.

    Raises
    ------
    ModuleNotFoundError
        Where there is none of it.
    MissingExtraError
        Where it reads by a package that is not installed.
    """
    room = "streambench" if application.suite == "streambench" else "dspbench"
    try:
        module = importlib.import_module(f"riot_bench.baselines.python.{room}.{application.name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("riot_ops", "riot_bench"):
            raise
        raise MissingExtraError("the comparison with plain Python", "bench") from None
    made: Callable[..., dict[str, list[Row]]] = getattr(module, application.name)
    return made


def plain_results(
    application: Application, inputs: Mapping[str, Iterable[bytes]], parameters: Mapping[str, Any]
) -> dict[str, list[Row]]:
    """What the application in plain Python makes of lines, by stream."""
    return plain_program(application)(inputs, **parameters)


def validate(
    application: Application, files: Mapping[str, Path], folder: Path, parameters: Mapping[str, Any]
) -> list[Comparison]:
    """Hold the Parquet files of a run's folder against plain Python over the same input files.

    Parameters
    ----------
    files : mapping of str to path
        By source.
    folder : path
        Results, as ``riot-ops run`` writes them.
    parameters : mapping
        Those of the builder in the run.
    """
    wanted = plain_results(application, {name: lines_of(path) for name, path in files.items()}, parameters)
    return [
        compare(stream, wanted[stream], _read(folder / stream, stream, fields))
        for stream, fields in application.results.items()
    ]


def _read(folder: Path, stream: str, fields: Sequence[str]) -> Iterable[Row]:
    files = sorted(folder.glob("*.parquet"))
    if not folder.is_dir():
        raise ConfigError(f"{folder.parent} holds no stream {stream!r}: there is no folder {folder}")
    for file in files:
        table: pa.Table = pq.read_table(file, columns=list(fields))
        yield from zip(*(_values(table.column(name)) for name in fields), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values
