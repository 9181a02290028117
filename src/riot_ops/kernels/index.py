"""Keys to slots: an open-addressing table over 128-bit key hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrow import int_column
from riot_ops.kernels.hashing import hash_columns
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.ordering import edges_of

__all__ = ["KeyIndex", "distinct", "first_rows", "key_numbers"]


@kernel
def _lookup(
    h1: Any, h2: Any, times: Any, ttl: Any, table: Any, k1: Any, k2: Any, last: Any, n: Any, start: Any, slots: Any
) -> Any:
    """Resolve keys to slots from row ``start`` on, giving new keys the next slots.

    A key not seen for longer than ttl gets a new slot, which is how its state starts afresh.
    Returns the new number of slots and the row reached: before the last where the table is full.
    """
    mask = np.uint64(table.size - 1)
    for i in range(start, h1.size):
        a = h1[i]
        b = h2[i]
        p = a & mask
        s = np.int64(table[p])
        while s >= 0 and (k1[np.uint64(s)] != a or k2[np.uint64(s)] != b):
            p = (p + np.uint64(1)) & mask
            s = np.int64(table[p])
        if s < 0 or (ttl > 0 and times[i] - last[s] > ttl):
            if n == k1.size:
                return n, i
            table[p] = n
            k1[n] = a
            k2[n] = b
            s = n
            n += 1
            if ttl > 0:
                last[s] = times[i]
        slots[i] = s
        if ttl > 0 and times[i] > last[s]:
            last[s] = times[i]
    return n, h1.size


@kernel
def _find(h1: Any, h2: Any, table: Any, k1: Any, k2: Any, slots: Any) -> None:
    """The slot of each key that is known, -1 of the others."""
    mask = np.uint64(table.size - 1)
    for i in range(h1.size):
        p = h1[i] & mask
        while table[p] >= 0 and not (k1[table[p]] == h1[i] and k2[table[p]] == h2[i]):
            p = (p + np.uint64(1)) & mask
        slots[i] = table[p]


@kernel
def _insert(k1: Any, k2: Any, slots: Any, table: Any) -> None:
    """Enter slots in a table; of two slots with one key the later one counts."""
    mask = np.uint64(table.size - 1)
    for i in range(slots.size):
        s = slots[i]
        p = k1[s] & mask
        while table[p] >= 0 and not (k1[table[p]] == k1[s] and k2[table[p]] == k2[s]):
            p = (p + np.uint64(1)) & mask
        if table[p] < s:
            table[p] = s


@kernel
def first_rows(slots: Any, start: Any, rows: Any) -> None:
    """The first row of each slot from ``start`` on, which the rows have in order of appearance."""
    n = 0
    for i in range(slots.size):
        if n < rows.size and slots[i] == start + n:
            rows[n] = i
            n += 1


_NO_TIMES = np.empty(0, np.int64)
#: Places in the table for each key that there is room for: how many others stand in a key's way cannot be guessed, so
#: that it takes longer to find out than to look at a place.
SPARSE = 4


class KeyIndex:
    """Slots 0, 1, 2 … for keys in order of appearance.

    Parameters
    ----------
    ttl : int
        Time to live in microseconds of event time; 0 keeps keys for ever.

    >>> index = KeyIndex()
    >>> index.resolve(np.array([7, 9, 7], np.uint64), np.array([0, 0, 0], np.uint64)).tolist()
    [0, 1, 0]
    """

    def __init__(self, ttl: int = 0) -> None:
        self.ttl = ttl
        self.size = 0
        self._table = np.full(SPARSE * 16, -1, np.int32)
        self._k1 = np.empty(16, np.uint64)
        self._k2 = np.empty(16, np.uint64)
        self._last = np.empty(16 if ttl else 0, np.int64)

    @property
    def hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        return self._k1[: self.size], self._k2[: self.size]

    @property
    def last_seen(self) -> npt.NDArray[np.int64]:
        """Latest event time of each slot; empty without a time to live."""
        return self._last[: self.size]

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._k1.nbytes + self._k2.nbytes + self._last.nbytes

    def resolve(
        self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64], times: npt.NDArray[np.int64] = _NO_TIMES
    ) -> npt.NDArray[np.int64]:
        """The slot of each key; unknown and expired keys get new ones."""
        slots = np.empty(h1.size, np.int64)
        row = 0
        while row < h1.size:
            self.size, row = _lookup(
                h1, h2, times, self.ttl, self._table, self._k1, self._k2, self._last, self.size, row, slots
            )
            if row < h1.size:
                self._grow(2 * self.size)
        return slots

    def find(self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The slot of each key, -1 of those that are unknown; without a time to live."""
        slots = np.empty(h1.size, np.int64)
        _find(h1, h2, self._table, self._k1, self._k2, slots)
        return slots

    def assign(
        self,
        slots: npt.NDArray[np.int64],
        h1: npt.NDArray[np.uint64],
        h2: npt.NDArray[np.uint64],
        last_seen: npt.NDArray[np.int64] = _NO_TIMES,
    ) -> None:
        """Put known keys at known slots (restoring a snapshot)."""
        size = max(self.size, int(slots.max()) + 1) if slots.size else self.size
        if size > self._k1.size:
            self._grow(1 << (size - 1).bit_length())
        self._k1[slots] = h1
        self._k2[slots] = h2
        if self.ttl:
            self._last[slots] = last_seen
        self.size = size
        _insert(self._k1, self._k2, slots, self._table)

    def live(self, now: int) -> npt.NDArray[np.int64]:
        """The slots in use: of expired keys none, of renewed keys the newest."""
        slots = np.sort(self._table[self._table >= 0]).astype(np.int64)
        if self.ttl:
            slots = slots[now - self._last[slots] <= self.ttl]
        return slots

    def _grow(self, room: int) -> None:
        self._k1 = _extended(self._k1, room)
        self._k2 = _extended(self._k2, room)
        if self.ttl:
            self._last = _extended(self._last, room)
        self._table = np.full(SPARSE * room, -1, np.int32)
        _insert(self._k1, self._k2, np.arange(self.size), self._table)


def _extended(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    longer = np.empty(room, array.dtype)
    longer[: array.size] = array
    return longer


def distinct(slots: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The different ones of some slots, of which there are so many, in ascending order.

    >>> distinct(np.array([3, 1, 3]), 4).tolist()
    [1, 3]
    """
    if 16 * slots.size < size:
        return np.unique(slots)
    seen = np.zeros(size, np.bool_)
    seen[slots] = True
    return np.flatnonzero(seen)


def key_numbers(columns: list[pa.Array], n: int) -> npt.NDArray[np.int64]:
    """A number from 0 on for each distinct key of n rows, in order of appearance.

    >>> key_numbers([pa.array([7, 9, 7])], 3).tolist()
    [0, 1, 0]
    """
    if not columns:
        return np.zeros(n, np.int64)
    if all(pa.types.is_int64(c.type) and not c.null_count for c in columns):
        edges = edges_of(*(int_column(c) for c in columns))
        if 2 * edges.size < n:  # rows with one key that follow one another are looked for once
            heads = pa.array(edges[:-1])
            found = KeyIndex().resolve(*hash_columns([c.take(heads) for c in columns], len(heads)))
            return np.repeat(found, np.diff(edges))
    return KeyIndex().resolve(*hash_columns(columns, n))
