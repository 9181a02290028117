"""Stats that keep values themselves, as one object per window: distinct values, frequencies, quantiles.

An object changes in place, so that the cost of a batch depends on its records, not on the size of the window.
"""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.operator import StateField
from riot_ops.kernels.arrays.hashing import NO_SECRET
from riot_ops.kernels.stats.hash_table import insert_hashes
from riot_ops.kernels.stats.hyperloglog import hash_values
from riot_ops.tasks.window.windowing.sample import Sample
from riot_ops.tasks.window.windowing.stats import Cells, HashWords, Numbers, Stat

__all__ = ["Collected", "DistinctHashes", "HashSet", "ObjectStat", "Samples", "ValueCounts", "object_field"]

#: Arrays of collected values that are joined beyond it.
MAX_PARTS = 64


class ObjectStat(Stat):
    """A stat with one object per window, None for a window without values."""

    @abstractmethod
    def merged(self, own: Any, other: Any) -> Any:
        """Return ``own`` (None: a new object) with the values of ``other``, which stays unchanged."""

    @abstractmethod
    def frozen(self, one: Any) -> Any:
        """Return what :attr:`BoundAggregate.result` needs of an object, unchanged by later records."""

    @abstractmethod
    def pack(self, one: Any) -> Any:
        """Return an object as JSON-able data; the same for the same values in any order."""

    @abstractmethod
    def unpack(self, data: Any) -> Any:
        """Return the object that :meth:`pack` packed."""

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        (own,), (more,) = self._cell_arrays(cells), self._cell_arrays(other)
        for g, a, b in zip(into.tolist(), first.tolist(), last.tolist(), strict=True):
            for part in order[a:b].tolist():
                if more[part] is not None:
                    own[g] = self.merged(own[g], more[part])


def object_field(stat: Stat) -> StateField:
    """Declare the state of one key for the objects of a stat: a list with one for each place, or None."""
    assert isinstance(stat, ObjectStat)
    own = stat

    def pack(ring: Any) -> Any:
        return None if ring is None else [None if one is None else own.pack(one) for one in ring]

    def unpack(data: Any) -> Any:
        return None if data is None else [None if one is None else own.unpack(one) for one in data]

    return StateField("json", initial=None, pack=pack, unpack=unpack)


@dataclass(frozen=True)
class ValueCounts(ObjectStat):
    """Frequency of each value, or the sum of its weights, as a dict."""

    weight: str | None = None

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        name = "values" if self.weight is None else f"weights {self.weight}"
        return {self._cell_name(name): ("object", 0, None)}

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        """Return pairs of value and weight, None where one is missing."""
        if batch is None:
            return []
        values = batch.column(self.field).to_pylist()
        weights = [1] * len(values) if self.weight is None else batch.column(self.weight).to_pylist()
        return [
            None if _is_missing(value) or _is_missing(weight) else (value, weight)
            for value, weight in zip(values, weights, strict=True)
        ]

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        for g, pair in zip(groups[start:stop].tolist(), values[start:stop], strict=True):
            if g < 0 or pair is None:
                continue
            counts = found[g]
            if counts is None:
                counts = found[g] = {}
            counts[pair[0]] = counts.get(pair[0], 0) + pair[1]

    def merged(self, own: dict[Any, int] | None, other: dict[Any, int]) -> dict[Any, int]:
        if own is None:
            return dict(other)
        for value, n in other.items():
            own[value] = own.get(value, 0) + n
        return own

    def frozen(self, one: dict[Any, int]) -> dict[Any, int]:
        return dict(one)

    def pack(self, one: dict[Any, int]) -> list[tuple[Any, int]]:
        return sorted(one.items(), key=lambda pair: (str(pair[0]), pair[1]))  # keys of JSON objects are texts

    def unpack(self, data: list[tuple[Any, int]]) -> dict[Any, int]:
        return dict(data)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))


@dataclass(frozen=True)
class Collected(ObjectStat):
    """The values in their order, as a list of Arrow arrays."""

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name("collected"): ("object", 0, None)}

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        """Return the values, None without a batch, and which are present."""
        if batch is None:
            return pa.nulls(0), np.empty(0, np.bool_)
        column = batch.column(self.field)
        return column, np.asarray(column.is_valid()) & ~np.asarray(pc.is_null(column, nan_is_null=True))

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        column, present = values
        rows = start + np.flatnonzero((groups[start:stop] >= 0) & present[start:stop])
        for g, mine in _by_group(groups[rows], rows):
            found[g] = _with_part(found[g] or [], column.take(pa.array(mine)))

    def merged(self, own: list[pa.Array] | None, other: list[pa.Array]) -> list[pa.Array]:
        return [*(own or []), *other]

    def frozen(self, one: list[pa.Array]) -> list[pa.Array]:
        return list(one)

    def pack(self, one: list[pa.Array]) -> bytes:
        values = pa.concat_arrays(one)
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([pa.array(values.to_pylist(), values.type)], ["values"])  # without spare room
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def unpack(self, data: str) -> list[pa.Array]:
        with pa.ipc.open_stream(b64decode(data)) as reader:
            return [batch.column(0) for batch in reader]


def _with_part(parts: list[pa.Array], part: pa.Array) -> list[pa.Array]:
    """Append an array; many small ones become one."""
    parts = [*parts, part]
    return [pa.concat_arrays(parts)] if len(parts) > MAX_PARTS else parts


class HashSet:
    """A set of 64-bit hashes; 8 bytes each, in a table that is at most half full."""

    def __init__(self) -> None:
        self.table: npt.NDArray[np.int64] = np.zeros(8, np.int64)
        self.count = 0

    def add(self, hashes: npt.NDArray[np.int64]) -> None:
        """Add hashes."""
        hashes = np.where(hashes == 0, 1, hashes)
        done = 0
        while True:
            done, self.count = map(int, insert_hashes(self.table, hashes, done, self.count))
            if done == hashes.size:
                return
            held, self.table = self.hashes(), np.zeros(2 * self.table.size, np.int64)
            insert_hashes(self.table, held, 0, 0)

    def hashes(self) -> npt.NDArray[np.int64]:
        """Return the hashes in no particular order."""
        found: npt.NDArray[np.int64] = self.table[self.table != 0]
        return found


@dataclass(frozen=True)
class DistinctHashes(ObjectStat):
    """Hashes of the distinct values."""

    hashes = True

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name("hashes"): ("object", 0, None)}

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        return hash_values(pa.nulls(0, pa.float64()) if batch is None else batch.column(self.field), key)

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        hashes, present = values
        rows = start + np.flatnonzero((groups[start:stop] >= 0) & present[start:stop])
        for g, hashed in _by_group(groups[rows], hashes[rows].view(np.int64)):
            if found[g] is None:
                found[g] = HashSet()
            found[g].add(hashed)

    def merged(self, own: HashSet | None, other: HashSet) -> HashSet:
        own = HashSet() if own is None else own
        own.add(other.hashes())
        return own

    def frozen(self, one: HashSet) -> int:
        return one.count

    def pack(self, one: HashSet) -> bytes:
        return np.sort(one.hashes()).tobytes()

    def unpack(self, data: str) -> HashSet:
        one = HashSet()
        one.add(np.frombuffer(b64decode(data), np.int64))
        return one


@dataclass(frozen=True)
class Samples(ObjectStat):
    """Values whose quantiles are wanted; see :class:`Sample`."""

    accuracy: float | None

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        kind = "sample" if self.accuracy is None else f"bins_{self.accuracy}"
        return {self._cell_name(kind): ("object", 0, None)}

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        (found,) = self._cell_arrays(cells)
        rows = start + np.flatnonzero((groups[start:stop] >= 0) & ~np.isnan(values[start:stop]))
        for g, mine in _by_group(groups[rows], values[rows]):
            if found[g] is None:
                found[g] = Sample(self.accuracy)
            found[g].add(mine)

    def merged(self, own: Sample | None, other: Sample) -> Sample:
        own = Sample(self.accuracy) if own is None else own
        own.merge(other)
        return own

    def frozen(self, one: Sample) -> Sample:
        return one.frozen()

    def pack(self, one: Sample) -> Any:
        return one.pack()

    def unpack(self, data: Any) -> Sample:
        return Sample.unpack(self.accuracy, data)


def _by_group(groups: Numbers, values: Any) -> list[tuple[int, Any]]:
    """Return the values of each group, in their order."""
    if not groups.size:
        return []
    order = np.argsort(groups, kind="stable")
    groups, values = groups[order], values[order]
    edges = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    return [(int(groups[a]), values[a:b]) for a, b in pairwise([*edges, groups.size])]
