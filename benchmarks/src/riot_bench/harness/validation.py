"""Comparison of an application's results with those of the same application in plain Python."""

from __future__ import annotations

import gzip
import importlib
import math
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from riot_bench.harness.matching import ABSOLUTE, RELATIVE, Row, is_approximate, unmatched
from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.dataflows.applications import Application
from riot_ops.ingest.replay import find_files

__all__ = ["Comparison", "compare", "compare_columns", "plain_program", "plain_results", "read_lines", "validate"]

#: Differing records that are shown of each side.
MAX_SHOWN = 3


@dataclass(frozen=True)
class Comparison:
    """A stream compared with the expected records, as multisets.

    Attributes
    ----------
    stream : str
    wanted, found : int
        Numbers of expected and of actual records.
    missing, unexpected : list of tuple
        The first records that are only expected, and only actual.
    differing : int
        Number of all such records.
    """

    stream: str
    wanted: int
    found: int
    missing: list[Row]
    unexpected: list[Row]
    differing: int

    @property
    def equal(self) -> bool:
        """Whether no record differs."""
        return not self.differing


def compare(stream: str, wanted: Iterable[Row], found: Iterable[Row]) -> Comparison:
    """Compare two record sets as multisets, numbers with a tolerance.

    >>> compare("x", [("a", 1.0), ("b", 2.0)], [("b", 2.0 + 1e-12), ("a", 1.5)]).missing
    [('a', 1.0)]
    """
    sides = [_group(wanted), _group(found)]
    only: list[list[Row]] = [[], []]
    for key in {**sides[0], **sides[1]}:
        left, right = unmatched(*(side.get(key, ()) for side in sides))
        only[0] += left
        only[1] += right
    numbers = [sum(map(len, side.values())) for side in sides]
    return Comparison(stream, numbers[0], numbers[1], only[0][:MAX_SHOWN], only[1][:MAX_SHOWN], sum(map(len, only)))


def compare_columns(stream: str, wanted: pa.Table | Sequence[Row], found: pa.Table) -> Comparison:
    """Compare two record sets as :func:`compare` does, in columns, with less time and memory.

    Both sides are sorted, and compared by position. Records that differ there, for example because rounding changed the
    order of equal ones, are compared again as multisets.

    Parameters
    ----------
    stream : str
    wanted : Table or sequence of tuple
        The expected records, with values in the order of the columns of ``found``.
    found : Table

    Examples
    --------
    >>> found = pa.table({"word": ["b", "a"], "score": [2.0 + 1e-12, 1.5]})
    >>> compare_columns("x", [("a", 1.0), ("b", 2.0)], found).missing
    [('a', 1.0)]
    """
    if not isinstance(wanted, pa.Table):
        columns = zip(*wanted, strict=True) if wanted else [()] * found.num_columns
        wanted = pa.table(
            {f.name: pa.array(column, f.type) for f, column in zip(found.schema, columns, strict=True)},
        )
    wanted = wanted.cast(found.schema)
    if wanted.num_rows != found.num_rows:
        return compare(stream, _rows(wanted), _rows(found))
    left, right = (_sorted(side) for side in (wanted, found))
    differs = np.zeros(len(left), bool)
    for a, b in zip(left.columns, right.columns, strict=True):
        differs |= ~_equal(a, b)
    rest = compare(stream, *(_rows(side.filter(pa.array(differs))) for side in (left, right)))
    return replace(rest, wanted=wanted.num_rows, found=found.num_rows)


def _sorted(table: pa.Table) -> pa.Table:
    """Sort by the exact columns first, so that a float that differs by rounding moves its record little."""
    names = sorted(table.column_names, key=lambda name: pa.types.is_floating(table.schema.field(name).type))
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in names])).combine_chunks()


def _equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """Compare values by position; null equals null, NaN equals NaN."""
    absent = pc.is_null(a).to_numpy(), pc.is_null(b).to_numpy()
    if pa.types.is_floating(a.type):
        same = np.isclose(a.fill_null(0.0).to_numpy(), b.fill_null(0.0).to_numpy(), RELATIVE, ABSOLUTE, equal_nan=True)
    else:
        same = pc.fill_null(pc.equal(a, b), True).to_numpy()
    equal: np.ndarray[Any, Any] = (absent[0] == absent[1]) & (absent[0] | same)
    return equal


def _rows(table: pa.Table) -> Iterator[Row]:
    return zip(*(_values(table.column(name)) for name in table.column_names), strict=True)


def _group(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Group records by the values that must be equal and the positions of approximate numbers."""
    found: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(float if is_approximate(value) else _comparable(value) for value in row)].append(row)
    return found


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, float) and math.isnan(value):
        return float, "nan"  # which equals itself, unlike NaN
    return tuple(map(_comparable, value)) if isinstance(value, list | tuple) else value


def read_lines(path: Path) -> Iterator[bytes]:
    """Read the lines of a file, or of all files in a folder, as a run does: unzipped, without byte order marks."""
    for name in find_files(path):
        with gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb") as file:
            if first := file.readline().removeprefix(BOM_UTF8):
                yield first
            yield from file


def plain_program(application: Application) -> Callable[..., dict[str, list[Row]]]:
    """Load the application's baseline in plain Python.

    Raises
    ------
    ModuleNotFoundError
        The application has no such baseline.
    MissingExtraError
        The baseline needs a package that is not installed.
    """
    package = "streambench" if application.suite == "streambench" else "dspbench"
    try:
        module = importlib.import_module(f"riot_bench.baselines.python.{package}.{application.name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("riot_ops", "riot_bench"):
            raise
        raise MissingExtraError("the comparison with plain Python", package="riot-bench") from None
    program: Callable[..., dict[str, list[Row]]] = getattr(module, application.name)
    return program


def plain_results(
    application: Application, inputs: Mapping[str, Iterable[bytes]], parameters: Mapping[str, Any]
) -> dict[str, list[Row]]:
    """Run the application in plain Python over lines and return its results by stream."""
    return plain_program(application)(inputs, **parameters)


def validate(
    application: Application, files: Mapping[str, Path], folder: Path, parameters: Mapping[str, Any]
) -> list[Comparison]:
    """Compare the Parquet files of a run's folder with plain Python over the same input files.

    Parameters
    ----------
    application : Application
    files : mapping of str to path
        Input files by source.
    folder : path
        Results, as ``riot-ops run`` writes them.
    parameters : mapping
        Builder parameters of the run.
    """
    wanted = plain_results(application, {name: read_lines(path) for name, path in files.items()}, parameters)
    return [
        compare(stream, wanted[stream], _read(folder / stream, stream, fields))
        for stream, fields in application.results.items()
    ]


def _read(folder: Path, stream: str, fields: Sequence[str]) -> Iterable[Row]:
    files = sorted(folder.glob("*.parquet"))
    if not folder.is_dir():
        raise ConfigError(f"{folder.parent} has no stream {stream!r}: there is no folder {folder}")
    for file in files:
        table: pa.Table = pq.read_table(file, columns=list(fields))
        yield from zip(*(_values(table.column(name)) for name in fields), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values
