"""Keys to slots: an open-addressing table over 128-bit key hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.codes import appearing, coded, followed
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.ordering import edges_of
from riot_ops.kernels.arrays.rows import repeated_words
from riot_ops.kernels.jit import kernel

__all__ = ["KeyIndex", "distinct", "first_rows", "key_numbers", "mark"]


#: A place of the table that holds no key.
EMPTY = np.uint32(0xFFFFFFFF)
#: Places per slot that there is room for: with a quarter of them taken, few keys are not at the first place looked at.
PLACES = 4
#: A table of so many places is in a core's own cache.
NEAR = 1 << 16
#: Rows that are looked up together: what they need of the table and the keys fits into a core's own cache.
TOGETHER = 512
#: Values of codes, beside four for each row, up to which they are looked for by value.
ROOM = 1024


@kernel(inline=True)
def _place(a: Any, b: Any, table: Any, keys: Any) -> Any:
    """The place of a key in the table, or the empty one where it belongs.

    A place holds a slot, in as many low bits as number the places, and above them bits of the hash: so that of other
    keys hardly one is looked at, each of which is far away in memory.
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
    """Resolve the keys of some rows to slots, giving new keys the next slots.

    A key not seen for longer than ttl gets a new slot, which is how its state starts afresh.
    Returns the new number of slots and the row reached: before the end where the table is full.
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
    """The slots of those keys of some rows that are known, -1 of others; returns whether one was not seen for too long.

    Each pass does so little for a row that the processor waits for the memory of many rows at once.
    """
    low = np.uint32(table.size - 1)
    met = EMPTY
    for i in range(start, end):  # brings near what the next pass reads, where a row may wait for the one before
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
    """The same of numbers of keys, with a hash for each number, of which the slot is known until it dies."""
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
    """The same as :func:`_lookup` from row ``start`` on; of what is far away, for many rows together."""
    if table.size <= NEAR:
        return _lookup(h1, h2, times, ttl, table, keys, last, n, start, h1.size, slots)
    for first in range(start, h1.size, TOGETHER):
        end = min(h1.size, first + TOGETHER)
        if _seek(h1, h2, times, ttl, table, keys, last, first, end, slots):  # rows of its key may get another slot
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
    """The slot of each key that is known, -1 of the others."""
    low = np.uint32(table.size - 1)
    for i in range(h1.size):
        e = table[_place(h1[i], h2[i], table, keys)]
        slots[i] = -1 if e == EMPTY else np.int64(e & low)


@kernel
def _insert(keys: Any, slots: Any, table: Any) -> None:
    """Enter slots in a table; of two slots with one key the later one counts."""
    low = np.uint32(table.size - 1)
    for i in range(slots.size):
        s = slots[i]
        p = _place(keys[s, 0], keys[s, 1], table, keys)
        if table[p] == EMPTY or np.int64(table[p] & low) < s:
            _enter(keys[s, 0], s, table, p)


@kernel
def _mark_entered(table: Any, entered: Any) -> None:
    """Which slots are in a table; an empty place stands for the last one that there might be, which there never is."""
    low = np.uint32(table.size - 1)
    for i in range(table.size):
        entered[table[i] & low] = True


@kernel
def mark(slots: Any, marks: Any) -> None:
    """Set the marks of some slots."""
    for i in range(slots.size):
        marks[np.uint64(slots[i])] = True


@kernel
def first_rows(slots: Any, start: Any, rows: Any) -> None:
    """The first row of each slot from ``start`` on, which the rows have in order of appearance."""
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
        Time to live in microseconds of event time; 0 keeps keys for ever.

    >>> index = KeyIndex()
    >>> index.resolve(np.array([7, 9, 7], np.uint64), np.array([0, 0, 0], np.uint64)).tolist()
    [0, 1, 0]
    """

    def __init__(self, ttl: int = 0) -> None:
        self.ttl = ttl
        self.size = 0
        self._table = np.full(16 * PLACES, EMPTY)
        self._keys = np.empty((16, 2), np.uint64)
        self._last = np.empty(16 if ttl else 0, np.int64)

    @property
    def hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        return self._keys[: self.size, 0], self._keys[: self.size, 1]

    @property
    def last_seen(self) -> npt.NDArray[np.int64]:
        """Latest event time of each slot; empty without a time to live."""
        return self._last[: self.size]

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._keys.nbytes + self._last.nbytes

    def resolve(
        self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64], times: npt.NDArray[np.int64] = _NO_TIMES
    ) -> npt.NDArray[np.int64]:
        """The slot of each key; unknown and expired keys get new ones."""
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
        """The slots of n rows of dictionary columns, of which each value is looked for once; again where its key dies.

        Also rows in which all of these slots are: the first one of each value, in order, so that slots come in order of
        appearance. Of several columns values are put together; should there be too many, all rows are looked for.
        """
        found = [coded(column) for column in columns]
        codes, many = np.zeros(n, np.int32), 1
        for more, known in found:
            many *= len(known) + 1
            if many > ROOM + 4 * n:
                return self.resolve(*hash_columns(list(columns), n), times), slice(None)
            above = more + np.int32(1)
            codes = above if many == len(known) + 1 else codes * np.int32(len(known) + 1) + above
        rows = appearing(codes, many)
        heads = [(known, part[rows]) for part, known in found]
        keys = [known.take(pa.array(part, mask=part < 0)) for known, part in heads]
        hashes, first = hash_columns(keys, rows.size), codes[rows]
        slot_of = np.full(many, -1)
        if not self.ttl:
            slot_of[first] = self.resolve(*hashes)
            return followed(codes, slot_of), rows
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
        """The slot of each key, -1 of those that are unknown; without a time to live."""
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
        """Put known keys at known slots (restoring a snapshot)."""
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
        """The slots in use: of expired keys none, of renewed keys the newest."""
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
        self._table = np.full(PLACES * room, EMPTY)
        _insert(self._keys, np.arange(self.size), self._table)


def _extended(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    longer = np.empty((room, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
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
            return repeated_words(found, np.diff(edges))
    return KeyIndex().resolve(*hash_columns(columns, n))
