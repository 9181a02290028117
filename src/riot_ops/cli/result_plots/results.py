"""The data of plots: the files of a run's result streams, and its parsed input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.parquet_file import read_parquet

__all__ = ["NothingToDrawError", "Results", "datetimes", "downsample", "most_frequent", "required"]

#: Maximum records of a stream that are read.
MAX_RECORDS = 1_000_000
#: Maximum points of a line.
MAX_POINTS = 2_000


class NothingToDrawError(Exception):
    """A run has no results to draw."""


@dataclass(frozen=True)
class Results:
    """The results of a run.

    Attributes
    ----------
    folder : Path
        Folder with a folder of Parquet files per stream.
    parsed : function
        Returns the first records of a source, by its name, as the application's parser reads them.
    """

    folder: Path
    parsed: Callable[[str], pa.Table]

    def stream(self, name: str, *fields: str) -> pa.Table:
        """Return the first records of a result stream in order, with ``seq`` and ``fields``."""
        tables: list[pa.Table] = []
        rows = 0
        for file in sorted((self.folder / name).glob("*.parquet")):
            columns = list(dict.fromkeys(["seq", *fields]))
            tables.append(read_parquet(file, columns))
            rows += tables[-1].num_rows
            if rows >= MAX_RECORDS:
                break
        if not tables:
            return pa.table({name: pa.nulls(0) for name in ("seq", *fields)})
        table = pa.concat_tables(tables)
        return table.take(pc.sort_indices(table, [("seq", "ascending")]))


def required(table: pa.Table) -> pa.Table:
    """Return a table; raise :class:`NothingToDrawError` if it is empty."""
    if not table.num_rows:
        raise NothingToDrawError
    return table


def most_frequent(column: Any, n: int) -> list[Any]:
    """Return the ``n`` most frequent values, the most frequent first.

    >>> most_frequent(pa.array(["a", "b", "b"]), 1)
    ['b']
    """
    counts = pc.value_counts(column).to_pylist()
    counts.sort(key=lambda entry: (-entry["counts"], str(entry["values"])))
    return [entry["values"] for entry in counts[:n]]


def downsample(table: pa.Table, points: int = MAX_POINTS) -> pa.Table:
    """Return at most ``points`` rows at equal distances, the last row included."""
    if table.num_rows <= points:
        return table
    return table.take(pa.array(np.linspace(0, table.num_rows - 1, points).round().astype(np.int64)))


def datetimes(column: Any) -> npt.NDArray[np.datetime64]:
    """Return times in UTC without a time zone, which matplotlib takes."""
    times: npt.NDArray[np.datetime64] = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).to_numpy()
    return times
