"""Records that agree but for a tolerance of their numbers, in pairs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Row", "is_tolerated", "unmatched"]

Row = tuple[Any, ...]

#: Numbers agree that differ by no more than this part of them, or by this much.
RELATIVE, ABSOLUTE = 1e-6, 1e-9


class Entry(NamedTuple):
    """A record of one side, and its numbers."""

    numbers: tuple[float, ...]
    side: int
    row: Row


def unmatched(left: Sequence[Row], right: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What is left over of each side when as many records as possible are in pairs that agree.

    Parameters
    ----------
    left, right : sequence of tuple
        Records that agree in all but finite floats, which stand in the same places.

    Examples
    --------
    >>> unmatched([(1.0,), (5.0,)], [(1.0 + 1e-9,), (2.0,)])
    ([(5.0,)], [(2.0,)])
    """
    over: tuple[list[Row], list[Row]] = ([], [])
    if len(left) == len(right) and all(_agree(_numbers(a), _numbers(b)) for a, b in zip(left, right, strict=True)):
        return over
    entries = [Entry(_numbers(row), side, row) for side, rows in enumerate((left, right)) for row in rows]
    for part in _parts(entries):
        sides = [[entry for entry in part if entry.side == side] for side in (0, 1)]
        found = _pairs(*([entry.numbers for entry in one] for one in sides)) if all(sides) else {}
        for one, paired, rest in zip(sides, (found.keys(), set(found.values())), over, strict=True):
            rest += [entry.row for i, entry in enumerate(one) if i not in paired]
    return over


def is_tolerated(value: Any) -> bool:
    """Whether a value may differ a little."""
    return isinstance(value, float) and math.isfinite(value)


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(filter(is_tolerated, row))


def _agree(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for x, y in zip(a, b, strict=True))


def _reach(value: float) -> float:
    """More than any number that agrees is away."""
    return 2 * max(RELATIVE * abs(value), ABSOLUTE)


def _parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut where there is a gap in the numbers of a column, until no column has one: no pair is of two parts."""
    width = len(entries[0].numbers) if entries else 0
    waiting = [(entries, 0, 0)]
    while waiting:
        part, column, whole = waiting.pop()
        if whole >= width or len({entry.side for entry in part}) < 2:
            yield part
            continue
        part.sort(key=lambda entry, at=column: entry.numbers[at])  # type: ignore[misc]
        values = [entry.numbers[column] for entry in part]
        cuts = [i for i in range(1, len(part)) if values[i] - values[i - 1] > _reach(values[i])]
        pieces = [part[a:b] for a, b in zip([0, *cuts], [*cuts, len(part)], strict=True)]
        waiting += [(piece, (column + 1) % width, 1 if cuts else whole + 1) for piece in pieces]


class _Places:
    """Places in a row, of which one after the other is taken."""

    def __init__(self, number: int) -> None:
        self._next = list(range(number + 1))

    def take(self, i: int) -> None:
        self._next[i] = i + 1

    def first(self, i: int) -> int:
        """The first that is left, from a place on."""
        after = self._next
        while after[i] != i:
            after[i] = after[after[i]]  # whoever asks next has half the way
            i = after[i]
        return i


def _pairs(left: list[tuple[float, ...]], right: list[tuple[float, ...]]) -> dict[int, int]:
    """As many pairs as there can be, by place on the left.

    Each takes the first free place in the order of a column. Where a record agrees with several, that may have been
    the wrong one: so who is left over looks for paths along which pairs change, in rounds that look at a place once.
    """
    if not left[0]:
        return {i: i for i in range(min(len(left), len(right)))}
    column = max(range(len(left[0])), key=lambda at: _spread([numbers[at] for numbers in left]))
    order = sorted(range(len(right)), key=lambda i: right[i][column])
    values = [right[i][column] for i in order]

    def near(one: int, places: _Places) -> Iterator[int]:
        """Those left of the places where a record agrees with one."""
        value = left[one][column]
        i = places.first(bisect_left(values, value - _reach(value)))
        while i < len(values) and values[i] <= value + _reach(value):
            if _agree(left[one], right[order[i]]):
                yield i
            i = places.first(i + 1)

    owner, found = dict[int, int](), dict[int, int]()

    def finds_a_place(one: int, unseen: _Places) -> bool:
        """Whether there is a free place for one, at the end of a path along which each takes the place of the next."""
        came, queue = dict[int, int](), [one]
        for other in queue:
            for place in near(other, unseen):
                unseen.take(place)
                came[place] = other
                if place in owner:
                    queue.append(owner[place])
                    continue
                end: int | None = place
                while end is not None:
                    taker = came[end]
                    before = found.get(taker)
                    owner[end], found[taker] = taker, end
                    end = before
                return True
        return False

    rest, more = sorted(range(len(left)), key=lambda i: left[i][column]), True
    while more and len(owner) < len(right):
        # of all in a round, of which the first is without paths; where nobody finds a place, nobody can
        unseen = _Places(len(right))
        still = [one for one in rest if not finds_a_place(one, unseen)]
        more, rest = len(still) < len(rest), still
    return {one: order[place] for one, place in found.items()}


def _spread(values: list[float]) -> float:
    low, high = min(values), max(values)
    return (high - low) / _reach(max(abs(low), abs(high)))
