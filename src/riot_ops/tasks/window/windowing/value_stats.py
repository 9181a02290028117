"""Stats that keep the values themselves: exact distinct counts and most frequent values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.stats.hyperloglog import hash_values
from riot_ops.tasks.window.windowing.stats import Cells, Numbers, Stat

__all__ = ["DistinctHashes", "ValueCounts"]


@dataclass(frozen=True)
class ValueCounts(Stat):
    """Frequency of each value, as pairs of value and count."""

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name("values"): ("json", 0, None)}

    def column(self, batch: pa.RecordBatch | None) -> Any:
        return [] if batch is None else batch.column(self.field).to_pylist()

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        for i in range(start, stop):
            if (g := groups[i]) >= 0 and values[i] is not None and values[i] == values[i]:
                _count(found, g, values[i], 1)

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        (found,), (more,) = self._cell_arrays(cells), self._cell_arrays(other)
        for g, a, b in zip(into.tolist(), first.tolist(), last.tolist(), strict=True):
            for part in order[a:b].tolist():
                for value, n in more[part] or ():
                    _count(found, g, value, n)


@dataclass(frozen=True)
class DistinctHashes(Stat):
    """Hashes of the distinct values, in ascending order."""

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name("hashes"): ("json", 0, None)}

    def column(self, batch: pa.RecordBatch | None) -> Any:
        return hash_values(pa.nulls(0, pa.float64()) if batch is None else batch.column(self.field))

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        hashes, present = values
        rows = start + np.flatnonzero((groups[start:stop] >= 0) & present[start:stop])
        mine, hashed = groups[rows], hashes[rows].view(np.int64)
        order = np.lexsort((hashed, mine))
        mine, hashed = mine[order], hashed[order]
        new = (np.diff(mine, prepend=-1) != 0) | (np.diff(hashed, prepend=0) != 0)
        mine, hashed = mine[new], hashed[new].tolist()
        edges = np.flatnonzero(np.diff(mine, prepend=-1))
        for g, (a, b) in zip(mine[edges].tolist(), pairwise([*edges.tolist(), len(hashed)]), strict=True):
            _unite(found, g, hashed[a:b])

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        (found,), (more,) = self._cell_arrays(cells), self._cell_arrays(other)
        for g, a, b in zip(into.tolist(), first.tolist(), last.tolist(), strict=True):
            for part in order[a:b].tolist():
                _unite(found, g, more[part] or [])


def _unite(found: list[Any], group: int, more: list[int]) -> None:
    """Add hashes to those of a group, which are sorted and never changed in place."""
    found[group] = sorted({*found[group], *more}) if found[group] else more


def _count(found: list[Any], group: int, value: Any, n: int) -> None:
    """Add to the count of a value; pairs, because the keys of JSON objects cannot be numbers."""
    pairs = found[group]
    if pairs is None:
        pairs = found[group] = []
    for pair in pairs:
        if pair[0] == value and type(pair[0]) is type(value):
            pair[1] += n
            return
    pairs.append([value, n])
