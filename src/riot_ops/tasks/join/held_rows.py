"""The records of two streams that wait for partners: their rows as Arrow, their times in search trees."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.operator import StateField
from riot_ops.kernels.arrays.arrow import concat_batches, numpy_values
from riot_ops.kernels.arrays.rows import take_or_null, take_rows
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.stats.interval_join import DONE, MAX_DEPTH, PAIRS_FULL, RIGHT, join_rows, load_nodes

__all__ = ["SIDES", "HeldRows"]

Numbers = npt.NDArray[np.int64]

#: Field with the event time of a record, by side; null in the records of the other side.
SIDES = ("left_time", "right_time")
#: Field of rows in a snapshot: the flags of the node.
FLAGS = "_flags"
#: Up to this many keys, a snapshot collects the rows of each on its own.
FEW_KEYS = 256
#: Nodes beyond twice the held ones that may be left of removed records.
SPARE_NODES = 4096


class KeyRows:
    """What the state of a key holds: where its records are; or the records themselves, until they are loaded."""

    __slots__ = ("rows", "slot", "store")

    def __init__(self, store: HeldRows, slot: int, rows: pa.RecordBatch | None = None) -> None:
        self.store, self.slot, self.rows = store, slot, rows


class RowStore:
    """Rows numbered from 0, in batches each of which is more than twice as long as the next.

    So each row is copied a logarithmic number of times, and taking rows reads few batches.
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows at the end."""
        if not rows.num_rows:
            return
        self.size += rows.num_rows
        parts = [rows]
        length = rows.num_rows
        while self.batches and self.batches[-1].num_rows <= 2 * length:
            parts.append(self.batches.pop())
            length += parts[-1].num_rows
        # also a single part is copied, so that held rows do not keep a whole batch of the input alive
        self.batches.append(
            concat_batches(parts[::-1]) if len(parts) > 1 else take_rows(rows, np.arange(rows.num_rows))
        )

    def take(self, numbers: Numbers) -> pa.RecordBatch:
        """Return rows by number; there is at least one batch."""
        if len(self.batches) == 1:
            return take_rows(self.batches[0], numbers)
        starts = np.cumsum([0, *(b.num_rows for b in self.batches[:-1])])
        owner = np.searchsorted(starts, numbers, side="right") - 1
        found = [
            (chosen, take_rows(self.batches[i], numbers[chosen] - starts[i]))
            for i in np.unique(owner).tolist()
            for chosen in (np.flatnonzero(owner == i),)
        ]
        if len(found) == 1:
            return found[0][1]
        place = np.empty(numbers.size, np.int64)
        place[np.concatenate([chosen for chosen, _ in found])] = np.arange(numbers.size)
        return take_rows(concat_batches([rows for _, rows in found]), place)

    def keep(self, numbers: Numbers) -> None:
        """Keep these rows only, numbered from 0 in the given order."""
        self.batches = [self.take(numbers)] if numbers.size else []
        self.size = numbers.size


class HeldRows:
    """The held records of all keys of one state; the state of a key refers to it by a :class:`KeyRows`.

    Parameters
    ----------
    before, after : int
        How far a right record may be before and after its left one, in microseconds.
    """

    def __init__(self, before: int, after: int) -> None:
        self.store = self  # as KeyRows has it
        self._secret = np.uint64(secrets.randbits(64))
        self._span = (before, after)
        self._held: Any = None
        self._restored = False
        self._packed_keys = 0  # in snapshots since the last change
        self._all: tuple[pa.RecordBatch, Numbers] | None = None
        self._sides = (RowStore(), RowStore())
        self._types: dict[str, pa.DataType] = {}  # of the fields of both sides
        self._sizes = np.zeros(4, np.int64)
        self._times, self._keys, self._rows = (np.empty(0, np.int64) for _ in range(3))
        self._flags, self._ranks = np.empty(0, np.uint8), np.empty(0, np.uint64)
        self._children, self._heap = np.empty((0, 2), np.int64), np.empty(0, np.int64)
        self._roots, self._counts = np.full((0, 2), -1), np.zeros((0, 2), np.int64)
        self._has_rows = np.zeros(0, np.bool_)  # by slot: whether its state is a KeyRows

    @property
    def _nodes(self) -> tuple[Any, ...]:
        """The arguments of the kernels from ``sizes`` on."""
        return (
            self._sizes, self._secret, *self._span, self._times, self._keys, self._flags, self._rows, self._ranks,
            self._children, self._roots, self._counts, self._heap,
        )  # fmt: skip

    def state_field(self) -> StateField:
        """Return the field of a key's state that holds its records."""
        return StateField("rows", initial=self, pack=self._packed, unpack=self._unpacked)

    def _packed(self, key: Any) -> pa.RecordBatch | None:
        """Return the records of a key, in the order of arrival; None if it has never held any.

        A key that no longer holds any has no rows: a worker that restores this delta drops those it had.
        """
        if isinstance(key, HeldRows) or key.rows is not None:
            return None if isinstance(key, HeldRows) else key.rows
        self._packed_keys += 1
        if self._packed_keys > FEW_KEYS:
            return self._rows_of_all(key.slot)
        found = []
        for root in self._roots[key.slot].tolist() if key.slot < len(self._roots) else ():
            waiting = [root]
            while waiting:
                if (node := waiting.pop()) >= 0:
                    found.append(node)
                    waiting += self._children[node].tolist()
        if len(found) < self._counts[key.slot].sum():  # records whose key has a null are in no tree
            live = self._heap[: self._sizes[1]]
            found = live[self._keys[live] == key.slot].tolist()
        nodes = np.sort(np.array(found, np.int64))
        rows = self.take((self._flags[nodes] & RIGHT) // RIGHT, self._rows[nodes])
        return rows.append_column(FLAGS, pa.array(self._flags[nodes]))

    def _rows_of_all(self, slot: int) -> pa.RecordBatch:
        """Return the same from the rows of all keys, which are collected once per snapshot of many keys."""
        if self._all is None:
            nodes = np.sort(self._heap[: self._sizes[1]])
            nodes = nodes[np.argsort(self._keys[nodes], kind="stable")]
            rows = self.take((self._flags[nodes] & RIGHT) // RIGHT, self._rows[nodes])
            edges = np.searchsorted(self._keys[nodes], np.arange(len(self._roots) + 1))
            self._all = rows.append_column(FLAGS, pa.array(self._flags[nodes])), edges
        rows, edges = self._all
        return rows.slice(edges[slot], edges[slot + 1] - edges[slot])

    def _unpacked(self, rows: pa.RecordBatch) -> KeyRows:
        self._restored = True
        return KeyRows(self, -1, rows)

    def take(self, sides: npt.NDArray[Any], numbers: Numbers) -> pa.RecordBatch:
        """Return rows of both sides, with nulls in the fields of the other side."""
        columns: dict[str, pa.Array] = {name: pa.nulls(sides.size, dtype) for name, dtype in self._types.items()}
        for side, store in enumerate(self._sides):
            chosen = sides == side
            if not chosen.any():
                continue
            rows = store.take(numbers[chosen])
            place = np.cumsum(chosen) - 1
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                columns[name] = column if chosen.all() else take_or_null(column, place, chosen)
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])

    def take_side(self, side: int, numbers: Numbers) -> pa.RecordBatch:
        """Return rows of one side."""
        return self._sides[side].take(numbers)

    def follow(self, held: Any, left: Sequence[str]) -> None:
        """Adapt to the state's list of keys: slots that were renumbered, added or restored."""
        if held is self._held and not self._restored:
            return
        known = [(s, one) for s, one in enumerate(held) if type(one) is KeyRows]
        restored = [(s, one.rows) for s, one in known if one.rows is not None]
        slots = np.array([s for s, one in known if one.rows is None], np.int64)
        before = np.array([one.slot for _, one in known if one.rows is None], np.int64)
        self._renumber(slots, before, len(held))
        for s, one in known:
            one.slot, one.rows = s, None
        if restored:
            self._load(restored, left)
        self._has_rows = np.zeros(len(held), np.bool_)
        self._has_rows[[s for s, _ in known]] = True
        self._held, self._restored = held, False

    def _renumber(self, slots: Numbers, before: Numbers, size: int) -> None:
        """Move keys to other slots; drop the records of all others."""
        slot_of = np.full(len(self._roots), -1)
        slot_of[before] = slots
        roots, counts = np.full((size, 2), -1), np.zeros((size, 2), np.int64)
        roots[slots], counts[slots] = self._roots[before], self._counts[before]
        self._roots, self._counts = roots, counts
        n = int(self._sizes[0])
        self._keys[:n] = slot_of[self._keys[:n]]
        live = self._heap[: self._sizes[1]]
        kept = live[self._keys[live] >= 0]
        if kept.size < live.size:  # a sorted list of nodes is a heap
            due = self._times[kept] + np.where(self._flags[kept] & RIGHT, *self._span)
            self._heap[: kept.size] = kept[np.lexsort((kept, due))]
            self._sizes[1] = kept.size

    def _load(self, restored: list[tuple[int, pa.RecordBatch]], left: Sequence[str]) -> None:
        rows = concat_batches([rows for _, rows in restored])
        keys = np.repeat([s for s, _ in restored], [rows.num_rows for _, rows in restored]).astype(np.int64)
        sides = np.asarray(rows.column(SIDES[1]).is_valid()).astype(np.int64)
        times = np.empty(keys.size, np.int64)
        for side, name in enumerate(SIDES):
            times[sides == side] = microseconds(rows.column(name))[0][sides == side]
        flags = numpy_values(rows.column(FLAGS)).astype(np.uint8)
        self._append(rows.drop_columns([FLAGS]), sides, left)
        self._make_room(keys.size)
        load_nodes(times, keys, flags, *self._nodes)

    def _append(self, rows: pa.RecordBatch, sides: Numbers, left: Sequence[str]) -> None:
        of_left = {*left, SIDES[0]}
        for field in rows.schema:
            if pa.types.is_null(self._types.get(field.name, pa.null())):
                self._types[field.name] = field.type
        for side, store in enumerate(self._sides):
            chosen = np.flatnonzero(sides == side)
            names = [name for name in rows.schema.names if (name in of_left) == (side == 0)]
            if chosen.size:
                store.append(take_rows(rows.select(names), chosen))

    def _make_room(self, more: int) -> None:
        wanted = int(self._sizes[0]) + more
        if wanted <= self._times.size:
            return
        room = max(wanted, 2 * self._times.size, 64)
        for name in ("_times", "_keys", "_rows", "_flags", "_ranks", "_children", "_heap"):
            array = getattr(self, name)
            grown = np.empty((room, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)

    def join(
        self, rows: pa.RecordBatch | None, keys: Numbers, times: Numbers, flags: npt.NDArray[np.uint8],
        limits: Numbers, room: int, outer: int, left: Sequence[str],
    ) -> tuple[npt.NDArray[np.int8], Numbers, Numbers]:  # fmt: skip
        """Join new rows with the held ones, and hold them; see :func:`join_rows` for the parameters.

        ``rows`` has the fields of both sides. Returns the status of each row, the pairs, and the records that were
        removed without a pair.
        """
        n = times.size
        self._packed_keys, self._all = 0, None
        self._make_room(n)
        status, stack = np.zeros(n, np.int8), np.empty(MAX_DEPTH, np.int64)
        pairs, expired = np.empty((4, 2 * n + 64), np.int64), np.empty((4, n + 64), np.int64)
        why, at, p, e = -1, 0, 0, 0
        while why != DONE:
            if why == PAIRS_FULL:
                pairs = np.concatenate([pairs, np.empty_like(pairs)], axis=1)
            elif why >= 0:
                expired = np.concatenate([expired, np.empty_like(expired)], axis=1)
            why, at, p, e = join_rows(
                at, times, keys, flags, limits, room, outer, stack, status, pairs, p, expired, e, *self._nodes
            )
        if rows is not None:
            held = status == 0
            sides = np.where(held, (flags & RIGHT) // RIGHT, -1)
            self._append(rows, sides, left)
            added = keys[held]
            for s in np.unique(added[~self._has_rows[added]]).tolist():
                self._held[s] = KeyRows(self, s)
                self._has_rows[s] = True
        return status, pairs[:, :p], expired[:, :e]

    def compact(self) -> None:
        """Remove what is left of removed records, once it is more than the held ones."""
        n, live = int(self._sizes[0]), int(self._sizes[1])
        if n <= 2 * live + SPARE_NODES:
            return
        nodes = np.sort(self._heap[:live])
        new = np.full(n + 1, -1)  # with -1, which stays
        new[nodes] = np.arange(live)
        self._heap = new[self._heap[:live]]
        self._roots, self._children = new[self._roots], new[self._children[nodes]]
        for name in ("_times", "_keys", "_flags", "_ranks", "_rows"):
            setattr(self, name, getattr(self, name)[nodes])
        right = (self._flags & RIGHT) != 0
        for side, store in enumerate(self._sides):
            chosen = right == (side == 1)
            store.keep(self._rows[chosen])
            self._rows[chosen] = np.arange(store.size)
            self._sizes[2 + side] = store.size
        self._sizes[0] = live
