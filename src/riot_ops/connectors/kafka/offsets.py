"""Offsets of Kafka's partitions: positions, ranges, and the numbers of records.

A position is ``{topic: {partition: offset}}``, JSON-able, so partitions are texts. The key ``""`` (no topic has this
name) holds what else a range needs: ``first`` is where partitions begin that were not in the position before or whose
records are gone, ``order`` the topics that a pattern has found, in the order in which they were found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import Offset, Split

__all__ = ["SLOTS", "Part", "Slots", "counted", "cut", "parts", "positions", "proportional", "to_offset"]

#: A record's number is its offset times this plus the slot of its partition.
SLOTS = 1 << 16
#: Of topics found by a pattern, so many have so many partitions each.
PATTERN_PARTITIONS = 256

Positions = dict[tuple[str, int], int]


class Part(NamedTuple):
    """A range of offsets of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class Slots:
    """Numbers records: equal for the same record at every read, increasing in each partition.

    Message *n* of the *i*-th partition gets the number ``65536 n + i``; partition *p* of the *k*-th of *m* topics has
    the place ``i = p m + k``. Partitions that are added later get places of their own, so no number ever changes.

    Parameters
    ----------
    topics : sequence of str
        In the order of their numbers.
    pattern : bool
        Whether further topics may be found: each then has room for 256 partitions.

    Examples
    --------
    >>> slots = Slots(["a", "b"], pattern=False)
    >>> slots.place("b", 0), slots.place("a", 1), slots.seq("a", 1, 5)
    (1, 2, 327682)
    """

    def __init__(self, topics: Sequence[str], *, pattern: bool) -> None:
        self._numbers = {topic: i for i, topic in enumerate(topics)}
        self._pattern = pattern

    def place(self, topic: str, partition: int) -> int:
        """Return the place of a partition among all."""
        number = self._numbers[topic]
        found = number * PATTERN_PARTITIONS + partition if self._pattern else partition * len(self._numbers) + number
        if found >= SLOTS or (self._pattern and partition >= PATTERN_PARTITIONS):
            room = f"{PATTERN_PARTITIONS} topics of a pattern, of {PATTERN_PARTITIONS} partitions each"
            raise ConnectorError(
                f"the partition {partition} of the topic {topic!r} cannot be numbered: there is room for "
                f"{room if self._pattern else f'{SLOTS:,} partitions of all topics'}; use several sources"
            )
        return found

    def seq(self, topic: str, partition: int, offset: int) -> int:
        """Return the number of a record."""
        return offset * SLOTS + self.place(topic, partition)


def positions(offset: Offset) -> Positions:
    """Return the position of each partition.

    >>> positions({"a": {"0": 5, "1": 7}, "": {"order": ["a"]}})
    {('a', 0): 5, ('a', 1): 7}
    """
    return {(t, int(p)): int(n) for t, found in offset.items() if t for p, n in found.items()}


def to_offset(found: Positions, first: Positions, order: Sequence[str]) -> Offset:
    """Return the offset with these positions, in the order of topics and partitions."""
    offset: Offset = _nested(found)
    extra: dict[str, Any] = {"first": _nested(first)} if first else {}
    if order:
        extra["order"] = list(order)
    return {**offset, "": extra} if extra else offset


def _nested(found: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), n in sorted(found.items()):
        nested.setdefault(topic, {})[str(partition)] = n
    return nested


def parts(start: Offset, end: Offset) -> list[Part]:
    """Return the ranges of the partitions between two offsets, without empty ones.

    >>> parts({"a": {"0": 5}}, {"a": {"0": 9, "1": 3}, "": {"first": {"a": {"1": 1}}}})
    [Part(topic='a', partition=0, start=5, end=9), Part(topic='a', partition=1, start=1, end=3)]
    """
    begun, first = positions(start), positions(end.get("", {}).get("first", {}))
    found = []
    for (topic, partition), until in sorted(positions(end).items()):
        begin = first.get((topic, partition), begun.get((topic, partition), 0))
        if begin < until:
            found.append(Part(topic, partition, begin, until))
    return found


def counted(start: Offset, end: Offset) -> int:
    """Return the number of offsets in a range: of records, if it has no gaps."""
    return sum(part.end - part.start for part in parts(start, end))


def cut(whole: Sequence[Part], n: int) -> list[Split]:
    """Cut ranges into at most n splits of about equal size; a split has consecutive ranges.

    >>> [split["parts"] for split in cut([Part("a", 0, 0, 6), Part("a", 1, 0, 2)], 2)]
    [[['a', 0, 0, 4]], [['a', 0, 4, 6], ['a', 1, 0, 2]]]
    """
    total = sum(part.end - part.start for part in whole)
    edges = [total * i // n for i in range(1, n + 1)]
    splits: list[list[list[Any]]] = [[]]
    done = 0
    for piece in _cut_at(whole, edges):
        splits[-1].append(list(piece))
        done += piece.end - piece.start
        if done in edges and done < total:
            splits.append([])
    return [{"parts": split} for split in splits if split]


def _cut_at(whole: Sequence[Part], edges: Sequence[int]) -> Iterator[Part]:
    done = 0
    for part in whole:
        size, begin = part.end - part.start, part.start
        for edge in edges:
            if done < edge < done + size and part.start + edge - done > begin:
                yield part._replace(start=begin, end=part.start + edge - done)
                begin = part.start + edge - done
        yield part._replace(start=begin)
        done += size


def proportional(start: Positions, end: Positions, limit: int | None) -> Positions:
    """Return a position at most ``limit`` records after the start: each partition advances by the same share.

    So partitions with backlogs of different sizes reach their ends together.

    >>> proportional({("a", 0): 0, ("a", 1): 0}, {("a", 0): 30, ("a", 1): 10}, 8)
    {('a', 0): 6, ('a', 1): 2}
    """
    lag = {place: until - start.get(place, 0) for place, until in end.items()}
    total = sum(lag.values())
    if limit is None or total <= limit:
        return dict(end)
    found, spare = {}, limit
    for place, size in lag.items():
        step = size * limit // total
        found[place] = start.get(place, 0) + step
        spare -= step
    for place, until in end.items():
        step = min(spare, until - found[place])
        found[place] += step
        spare -= step
    return found
