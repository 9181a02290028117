"""Matching of two record sets whose numbers may differ within a tolerance."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Row", "is_approximate", "unmatched"]

Row = tuple[Any, ...]

#: Relative and absolute tolerance within which numbers agree.
RELATIVE, ABSOLUTE = 1e-6, 1e-9


class _Entry(NamedTuple):
    """A record, its side and its numbers."""

    numbers: tuple[float, ...]
    side: int
    row: Row


def unmatched(left: Sequence[Row], right: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the records of each side that remain when as many agreeing pairs as possible are formed.

    Parameters
    ----------
    left, right : sequence of tuple
        Records that are equal except for finite floats, which are at the same positions.

    Examples
    --------
    >>> unmatched([(1.0,), (5.0,)], [(1.0 + 1e-9,), (2.0,)])
    ([(5.0,)], [(2.0,)])
    """
    over: tuple[list[Row], list[Row]] = ([], [])
    if len(left) == len(right) and all(_agree(_numbers(a), _numbers(b)) for a, b in zip(left, right, strict=True)):
        return over
    entries = [_Entry(_numbers(row), side, row) for side, rows in enumerate((left, right)) for row in rows]
    for part in _split_at_gaps(entries):
        sides = [[entry for entry in part if entry.side == side] for side in (0, 1)]
        found = _match(*([entry.numbers for entry in one] for one in sides)) if all(sides) else {}
        for one, paired, rest in zip(sides, (found.keys(), set(found.values())), over, strict=True):
            rest += [entry.row for i, entry in enumerate(one) if i not in paired]
    return over


def is_approximate(value: Any) -> bool:
    """Return whether a value is compared with a tolerance."""
    return isinstance(value, float) and math.isfinite(value)


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(filter(is_approximate, row))


def _agree(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for x, y in zip(a, b, strict=True))


def _tolerance(value: float) -> float:
    """Return an upper bound of the distance between ``value`` and a number that agrees with it."""
    return 2 * max(RELATIVE * abs(value), ABSOLUTE)


def _split_at_gaps(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    """Split the entries at gaps in the numbers of a column until no column has a gap: no pair crosses two parts."""
    width = len(entries[0].numbers) if entries else 0
    waiting = [(entries, 0, 0)]
    while waiting:
        part, column, whole = waiting.pop()
        if whole >= width or len({entry.side for entry in part}) < 2:
            yield part
            continue
        part.sort(key=lambda entry, at=column: entry.numbers[at])  # type: ignore[misc]
        values = [entry.numbers[column] for entry in part]
        cuts = [i for i in range(1, len(part)) if values[i] - values[i - 1] > _tolerance(values[i])]
        pieces = [part[a:b] for a, b in zip([0, *cuts], [*cuts, len(part)], strict=True)]
        waiting += [(piece, (column + 1) % width, 1 if cuts else whole + 1) for piece in pieces]


class _FreeSlots:
    """Slots in a row that are taken one after the other."""

    def __init__(self, number: int) -> None:
        self._next = list(range(number + 1))

    def take(self, i: int) -> None:
        self._next[i] = i + 1

    def first(self, i: int) -> int:
        """Return the first free slot at or after slot ``i``."""
        after = self._next
        while after[i] != i:
            after[i] = after[after[i]]  # halves the path of later calls
            i = after[i]
        return i


def _match(left: list[tuple[float, ...]], right: list[tuple[float, ...]]) -> dict[int, int]:
    """Return a maximum matching as left index to right index.

    Each left record takes the first free slot in the order of one column. A record that agrees with several slots may
    have taken the wrong one, so unmatched records search augmenting paths, in rounds that visit each slot once.
    """
    if not left[0]:
        return {i: i for i in range(min(len(left), len(right)))}
    column = max(range(len(left[0])), key=lambda at: _spread([numbers[at] for numbers in left]))
    order = sorted(range(len(right)), key=lambda i: right[i][column])
    values = [right[i][column] for i in order]

    def candidates(one: int, places: _FreeSlots) -> Iterator[int]:
        """Yield the free slots whose record agrees with record ``one``."""
        value = left[one][column]
        i = places.first(bisect_left(values, value - _tolerance(value)))
        while i < len(values) and values[i] <= value + _tolerance(value):
            if _agree(left[one], right[order[i]]):
                yield i
            i = places.first(i + 1)

    owner, found = dict[int, int](), dict[int, int]()

    def augment(one: int, unseen: _FreeSlots) -> bool:
        """Return whether an augmenting path from ``one`` to a free slot exists, and if so match along it."""
        reached_from, queue = dict[int, int](), [one]
        for other in queue:
            for place in candidates(other, unseen):
                unseen.take(place)
                reached_from[place] = other
                if place in owner:
                    queue.append(owner[place])
                    continue
                end: int | None = place
                while end is not None:
                    taker = reached_from[end]
                    before = found.get(taker)
                    owner[end], found[taker] = taker, end
                    end = before
                return True
        return False

    rest, more = sorted(range(len(left)), key=lambda i: left[i][column]), True
    while more and len(owner) < len(right):
        # the slots of one round; paths are empty in the first round, and a round without success is the last
        unseen = _FreeSlots(len(right))
        still = [one for one in rest if not augment(one, unseen)]
        more, rest = len(still) < len(rest), still
    return {one: order[place] for one, place in found.items()}


def _spread(values: list[float]) -> float:
    low, high = min(values), max(values)
    return (high - low) / _tolerance(max(abs(low), abs(high)))
