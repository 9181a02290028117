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

from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.dataflows.applications import Application

__all__ = ["Comparison", "compare", "lines_of", "plain_program", "plain_results", "validate"]

#: Numbers agree that differ by no more than this part of them, or by this much.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
#: Records that are shown of each that differ.
SHOWN = 3

Row = tuple[Any, ...]


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
        left, right = (sorted(side.get(key, ()), key=_rounded) for side in sides)
        if len(left) == len(right) and all(map(_alike, left, right)):
            continue
        for row in left:
            place = next((i for i, other in enumerate(right) if _alike(row, other)), None)
            if place is None:
                only[0].append(row)
            else:
                del right[place]
        only[1] += right
    numbers = [sum(map(len, side.values())) for side in sides]
    return Comparison(stream, numbers[0], numbers[1], only[0][:SHOWN], only[1][:SHOWN], sum(map(len, only)))


def _grouped(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Records by what must be equal in them, and where numbers with a tolerance stand."""
    found: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(float if isinstance(value, float) else _plain(value) for value in row)].append(row)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _rounded(row: Row) -> list[float]:
    return [float(f"{value:.6g}") for value in row if isinstance(value, float)]


def _alike(a: Row, b: Row) -> bool:
    return all(
        math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(x) and math.isnan(y))
        for x, y in zip(a, b, strict=True)
        if isinstance(x, float) and isinstance(y, float)
    )


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, or of one that is compressed by gzip, without a byte order mark."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
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
        module = importlib.import_module(f"riot_ops.bench.opponents.{room}.{application.name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "riot_ops":
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
