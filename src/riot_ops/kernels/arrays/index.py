"""Keys to slots: an open-addressing table over 128-bit hashes of keys.

Keys that a stranger may choose are hashed by :func:`~riot_ops.kernels.arrays.hashing.hash_keys`, with a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.dictionaries import dictionary_codes, first_occurrences, slots_of_codes
from riot_ops.kernels.arrays.hashing import hash_keys
from riot_ops.kernels.arrays.ordering import run_edges
from riot_ops.kernels.arrays.rows import repeat_values
from riot_ops.kernels.jit import kernel

__all__ = ["KeyIndex", "distinct_slots", "first_rows", "key_numbers", "mark_slots"]


#: An empty table entry.
EMPTY = np.uint32(0xFFFFFFFF)
#: Table entries per slot: at a load factor of a quarter, most keys are found at the first probe.
ENTRIES_PER_SLOT = 4
#: Entries of a table that fits into a core's own cache.
CACHED = 1 << 16
#: Rows that are looked up together: the table entries and keys that they touch fit into a core's own cache.
BLOCK = 512
#: Up to this many combinations of codes, plus four per row, keys are resolved by combination rather than by row.
MAX_COMBINATIONS = 1024


@kernel(inline=True)
def _place(a: Any, b: Any, table: Any, keys: Any) -> Any:
    """Return the position of a key in the table, or of the empty entry where it belongs.

    An entry holds a slot in as many low bits as index the table, and bits of the hash above them. So a probe hardly
    ever compares the wrong key, which would be a cache miss.
    """
    low = np.uint32(table.size - 1)
    tag = np.uint32(a >> np.uint64(32)) & ~low
    p = a & np.uint64(low)
    while True:
        e = table[p]
        if e == EMPTY:
            return p
        if e & ~low == tag:
            s = np.int64(e & low)
            if keys[s, 0] == a and keys[s, 1] == b:
                return p
        p = (p + np.uint64(1)) & np.uint64(low)


@kernel(inline=True)
def _enter(a: Any, slot: Any, table: Any, p: Any) -> None:
    low = np.uint32(table.size - 1)
    table[p] = (np.uint32(a >> np.uint64(32)) & ~low) | np.uint32(slot)


@kernel
def _lookup(
    h1: Any, h2: Any, times: Any, ttl: Any, table: Any, keys: Any, last: Any, n: Any, start: Any, end: Any, slots: Any
) -> Any:
    """Resolve the keys of rows from ``start`` to ``end`` to slots; new keys get the next slots.

    A key not seen for longer than ttl gets a new slot, so its state starts empty. Returns the new number of slots and
    the row reached, which is before the end if the table is full.
    """
    low = np.uint32(table.size - 1)
    for i in range(start, end):
        p = _place(h1[i], h2[i], table, keys)
        e = table[p]
        s = np.int64(e & low)
        if e == EMPTY or (ttl > 0 and times[i] - last[s] > ttl):
            if n == keys.shape[0]:
                return n, i
            _enter(h1[i], n, table, p)
            keys[n, 0] = h1[i]
            keys[n, 1] = h2[i]
            s = n
            n += 1
            if ttl > 0:
                last[s] = times[i]
        slots[i] = s
        if ttl > 0 and times[i] > last[s]:
            last[s] = times[i]
    return n, end


@kernel
def _seek(
    h1: Any, h2: Any, times: Any, ttl: Any, table: Any, keys: Any, last: Any, start: Any, end: Any, slots: Any
) -> Any:
    """Find the slots of known keys, -1 for the others; returns whether one of the keys has expired.

    Each pass does so little per row that the processor overlaps the cache misses of many rows.
    """
    low = np.uint32(table.size - 1)
    met = EMPTY
    for i in range(start, end):  # prefetch for the next pass, in which a row may depend on the one before
        met &= table[h1[i] & np.uint64(low)]
    if met == EMPTY:
        for i in range(start, end):
            slots[i] = -1
        return False
    for i in range(start, end):
        tag = np.uint32(h1[i] >> np.uint64(32)) & ~low
        p = h1[i] & np.uint64(low)
        e = table[p]
        while e & ~low != tag and e != EMPTY:
            p = (p + np.uint64(1)) & np.uint64(low)
            e = table[p]
        slots[i] = -1 if e == EMPTY else np.int64(e & low)
    ended = False
    for i in range(start, end):
        s = max(slots[i], 0)
        other = (keys[s, 0] ^ h1[i]) | (keys[s, 1] ^ h2[i])
        if ttl > 0:
            ended |= (slots[i] >= 0) & (times[i] - last[s] > ttl)
        slots[i] = slots[i] if other == 0 else -1
    return ended


@kernel
def _lookup_coded(
    codes: Any, h1: Any, h2: Any, times: Any, ttl: Any, slot_of: Any, table: Any, keys: Any, last: Any, n: Any,
    start: Any, slots: Any,
) -> Any:  # fmt: skip
    """Like :func:`_lookup` for codes of keys, with hashes by code; ``slot_of`` caches the slot of a code."""
    low = np.uint32(table.size - 1)
    for i in range(start, codes.size):
        c = np.uint64(codes[i])
        s = slot_of[c]
        if s < 0 or times[i] - last[s] > ttl:
            p = _place(h1[c], h2[c], table, keys)
            e = table[p]
            s = np.int64(e & low)
            if e == EMPTY or times[i] - last[s] > ttl:
                if n == keys.shape[0]:
                    return n, i
                _enter(h1[c], n, table, p)
                keys[n, 0] = h1[c]
                keys[n, 1] = h2[c]
                s = n
                n += 1
                last[s] = times[i]
            slot_of[c] = s
        slots[i] = s
        if times[i] > last[s]:
            last[s] = times[i]
    return n, codes.size


@kernel
def _resolve(
    h1: Any, h2: Any, times: Any, ttl: Any, table: Any, keys: Any, last: Any, n: Any, start: Any, slots: Any
) -> Any:
    """Like :func:`_lookup` to the last row; with a table that exceeds the cache, for blocks of rows at a time."""
    if table.size <= CACHED:
        return _lookup(h1, h2, times, ttl, table, keys, last, n, start, h1.size, slots)
    for first in range(start, h1.size, BLOCK):
        end = min(h1.size, first + BLOCK)
        if _seek(h1, h2, times, ttl, table, keys, last, first, end, slots):  # an expired key may get another slot
            n, row = _lookup(h1, h2, times, ttl, table, keys, last, n, first, end, slots)
            if row < end:
                return n, row
            continue
        for i in range(first, end):
            s = slots[i]
            if s < 0:
                n, row = _lookup(h1, h2, times, ttl, table, keys, last, n, i, i + 1, slots)
                if row == i:
                    return n, i
            elif ttl > 0 and times[i] > last[s]:
                last[s] = times[i]
    return n, h1.size


@kernel
def _find(h1: Any, h2: Any, table: Any, keys: Any, slots: Any) -> None:
    """Find the slot of each key, -1 if it is unknown."""
    low = np.uint32(table.size - 1)
    for i in range(h1.size):
        e = table[_place(h1[i], h2[i], table, keys)]
        slots[i] = -1 if e == EMPTY else np.int64(e & low)


@kernel
def _insert(keys: Any, slots: Any, table: Any) -> None:
    """Enter slots into a table; of two slots with the same key the higher one wins."""
    low = np.uint32(table.size - 1)
    for i in range(slots.size):
        s = slots[i]
        p = _place(keys[s, 0], keys[s, 1], table, keys)
        if table[p] == EMPTY or np.int64(table[p] & low) < s:
            _enter(keys[s, 0], s, table, p)


@kernel
def _mark_entered(table: Any, entered: Any) -> None:
    """Flag the slots that are in a table; empty entries flag the last possible slot, which is never used."""
    low = np.uint32(table.size - 1)
    for i in range(table.size):
        entered[table[i] & low] = True


@kernel
def mark_slots(slots: Any, marks: Any) -> None:
    """Set the flags of slots."""
    for i in range(slots.size):
        marks[np.uint64(slots[i])] = True


@kernel
def first_rows(slots: Any, start: Any, rows: Any) -> None:
    """Write the first row of each slot from ``start`` on; these slots appear in ascending order."""
    n = 0
    for i in range(slots.size):
        if n < rows.size and slots[i] == start + n:
            rows[n] = i
            n += 1


_NO_TIMES = np.empty(0, np.int64)


class KeyIndex:
    """Slots 0, 1, 2 … for keys in order of appearance.

    Parameters
    ----------
    ttl : int
        Time to live of a key in microseconds of event time; 0 keeps keys for ever.

    >>> index = KeyIndex()
    >>> index.resolve(np.array([7, 9, 7], np.uint64), np.array([0, 0, 0], np.uint64)).tolist()
    [0, 1, 0]
    """

    def __init__(self, ttl: int = 0) -> None:
        self.ttl = ttl
        self.size = 0
        self._table = np.full(16 * ENTRIES_PER_SLOT, EMPTY)
        self._keys = np.empty((16, 2), np.uint64)
        self._last = np.empty(16 if ttl else 0, np.int64)

    @property
    def hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Both hashes of each slot's key."""
        return self._keys[: self.size, 0], self._keys[: self.size, 1]

    @property
    def last_seen(self) -> npt.NDArray[np.int64]:
        """Latest event time of each slot; empty without a ttl."""
        return self._last[: self.size]

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self._table.nbytes + self._keys.nbytes + self._last.nbytes

    def resolve(
        self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64], times: npt.NDArray[np.int64] = _NO_TIMES
    ) -> npt.NDArray[np.int64]:
        """Return the slot of each key; unknown and expired keys get new slots."""
        slots = np.empty(h1.size, np.int64)
        row = 0
        while row < h1.size:
            self.size, row = _resolve(
                h1, h2, times, self.ttl, self._table, self._keys, self._last, self.size, row, slots
            )
            if row < h1.size:
                self._grow(2 * self.size)
        return slots

    def resolve_coded(
        self, columns: Sequence[pa.Array], n: int, times: npt.NDArray[np.int64] = _NO_TIMES
    ) -> tuple[npt.NDArray[np.int64], Any]:
        """Return the slots of n rows of dictionary columns; each combination of values is looked up once per lifetime.

        Also returns rows that contain all of these slots: the first of each combination, in order, so that slots are
        numbered in order of appearance. With too many combinations, all rows are looked up.
        """
        found = [dictionary_codes(column) for column in columns]
        codes, many = np.zeros(n, np.int32), 1
        for more, known in found:
            many *= len(known) + 1
            if many > MAX_COMBINATIONS + 4 * n:
                return self.resolve(*hash_keys(list(columns), n), times), slice(None)
            above = more + np.int32(1)
            codes = above if many == len(known) + 1 else codes * np.int32(len(known) + 1) + above
        rows = first_occurrences(codes, many)
        heads = [(known, part[rows]) for part, known in found]
        keys = [known.take(pa.array(part, mask=part < 0)) for known, part in heads]
        hashes, first = hash_keys(keys, rows.size), codes[rows]
        slot_of = np.full(many, -1)
        if not self.ttl:
            slot_of[first] = self.resolve(*hashes)
            return slots_of_codes(codes, slot_of), rows
        h1, h2, slots = np.empty(many, np.uint64), np.empty(many, np.uint64), np.empty(n, np.int64)
        h1[first], h2[first] = hashes
        row = 0
        while row < n:
            self.size, row = _lookup_coded(
                readonly(codes), h1, h2, times, self.ttl, slot_of, self._table, self._keys, self._last, self.size, row,
                slots,
            )  # fmt: skip
            if row < n:
                self._grow(2 * self.size)
        return slots, slice(None)

    def find(self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the slot of each key, -1 if it is unknown; ignores the ttl."""
        slots = np.empty(h1.size, np.int64)
        _find(h1, h2, self._table, self._keys, slots)
        return slots

    def assign(
        self,
        slots: npt.NDArray[np.int64],
        h1: npt.NDArray[np.uint64],
        h2: npt.NDArray[np.uint64],
        last_seen: npt.NDArray[np.int64] = _NO_TIMES,
    ) -> None:
        """Assign keys to given slots, as when a snapshot is restored."""
        size = max(self.size, int(slots.max()) + 1) if slots.size else self.size
        if size > len(self._keys):
            self._grow(1 << (size - 1).bit_length())
        self._keys[slots, 0] = h1
        self._keys[slots, 1] = h2
        if self.ttl:
            self._last[slots] = last_seen
        self.size = size
        _insert(self._keys, slots, self._table)

    def live(self, now: int) -> npt.NDArray[np.int64]:
        """Return the slots of keys that have not expired; the newest one of a key that returned."""
        if not self.ttl:
            return np.arange(self.size)
        entered = np.zeros(self._table.size, np.bool_)
        _mark_entered(self._table, entered)
        slots = np.flatnonzero(entered[: self.size])
        return slots[now - self._last[slots] <= self.ttl]

    def _grow(self, room: int) -> None:
        self._keys = _extended(self._keys, room)
        if self.ttl:
            self._last = _extended(self._last, room)
        self._table = np.full(ENTRIES_PER_SLOT * room, EMPTY)
        _insert(self._keys, np.arange(self.size), self._table)


def _extended(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    longer = np.empty((room, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def distinct_slots(slots: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Return the distinct slots in ascending order; all are below ``size``.

    >>> distinct_slots(np.array([3, 1, 3]), 4).tolist()
    [1, 3]
    """
    if 16 * slots.size < size:
        return np.unique(slots)
    seen = np.zeros(size, np.bool_)
    seen[slots] = True
    return np.flatnonzero(seen)


def key_numbers(columns: list[pa.Array], n: int) -> npt.NDArray[np.int64]:
    """Return a number from 0 on for each distinct key of n rows, in order of appearance.

    >>> key_numbers([pa.array([7, 9, 7])], 3).tolist()
    [0, 1, 0]
    """
    if not columns:
        return np.zeros(n, np.int64)
    if all(pa.types.is_int64(c.type) and not c.null_count for c in columns):
        edges = run_edges(*(int_column(c) for c in columns))
        if 2 * edges.size < n:  # consecutive rows with the same key are looked up once
            heads = pa.array(edges[:-1])
            found = KeyIndex().resolve(*hash_keys([c.take(heads) for c in columns], len(heads)))
            return repeat_values(found, np.diff(edges))
    return KeyIndex().resolve(*hash_keys(columns, n))
