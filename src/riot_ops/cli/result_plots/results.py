"""What pictures are made of: the files of a run's result streams, and its input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["Results", "datetimes", "downsample", "most_frequent"]

#: Records of a stream that are looked at.
MAX_RECORDS = 1_000_000
#: Points of a line.
MAX_POINTS = 2_000


@dataclass(frozen=True)
class Results:
    """The results of a run.

    Attributes
    ----------
    folder : Path
        Holds a folder of Parquet files per stream.
    parsed : function
        Records of a source by its name, the first of them, as the application's parser makes them.
    """

    folder: Path
    parsed: Callable[[str], pa.Table]

    def stream(self, name: str, *fields: str) -> pa.Table:
        """The first records of a result stream, in order; ``seq`` and these fields."""
        tables: list[pa.Table] = []
        rows = 0
        for file in sorted((self.folder / name).glob("*.parquet")):
            columns = list(dict.fromkeys(["seq", *fields]))
            tables.append(pq.read_table(file, columns=columns))
            rows += tables[-1].num_rows
            if rows >= MAX_RECORDS:
                break
        if not tables:
            return pa.table({name: pa.nulls(0) for name in ("seq", *fields)})
        whole = pa.concat_tables(tables)
        return whole.take(pc.sort_indices(whole, [("seq", "ascending")]))


def most_frequent(column: Any, n: int) -> list[Any]:
    """The n most frequent values, most frequent first.

    >>> most_frequent(pa.array(["a", "b", "b"]), 1)
    ['b']
    """
    found = pc.value_counts(column).to_pylist()
    found.sort(key=lambda one: (-one["counts"], str(one["values"])))
    return [one["values"] for one in found[:n]]


def downsample(table: pa.Table, points: int = MAX_POINTS) -> pa.Table:
    """Evenly so many of the rows, the last among them."""
    if table.num_rows <= points:
        return table
    return table.take(pa.array(np.linspace(0, table.num_rows - 1, points).round().astype(np.int64)))


def datetimes(column: Any) -> npt.NDArray[np.datetime64]:
    """Times as matplotlib takes them: UTC, without a zone."""
    made: npt.NDArray[np.datetime64] = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).to_numpy()
    return made
