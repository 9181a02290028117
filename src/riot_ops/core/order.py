"""What orders the records of a stream: the number of their message, then their places in what was made of it.

Every record has ``seq``, the number of the message that it came in. A task that makes several records of one tells
them apart by a column of its own behind those that are there: ``ordinal``, then ``ordinal_2`` for what is made of these, and
so on, each counting from 0. So there is no limit to how many records come of one, nor to how often that happens in a
row, and the order is the same wherever the records of a message were worked on.

What a task gives because time has come (:mod:`riot_ops.core.clock`) has the number of the message that moved stream
time, and three places: the stream time at which it was due, less 2^62 so that it comes before the records of the
message; a hash of its key; and its place among what the key gives at that time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = [
    "TICK_PLACES",
    "carried",
    "due",
    "is_ordinal",
    "next_ordinal",
    "ordinals",
    "place_of",
    "with_next_ordinal",
    "with_tick_places",
]

#: Places of what a task gives because time has come.
TICK_PLACES = ("ordinal", "ordinal_2", "ordinal_3")
#: Times of the years 1 to 9999 less this are negative.
_BEFORE = 1 << 62

_ORDINAL = re.compile(r"ordinal(?:_([2-9]|[1-9]\d+))?")


def is_ordinal(name: str) -> bool:
    """Whether a field is a place of records in what they come of.

    >>> [is_ordinal(name) for name in ("ordinal", "ordinal_2", "ordinal_1", "ordinal_x")]
    [True, True, False, False]
    """
    return _ORDINAL.fullmatch(name) is not None


def ordinals(names: Iterable[str]) -> list[str]:
    """Those of the fields that are such places, in order.

    >>> ordinals(["value", "ordinal_10", "ordinal_2", "ordinal"])
    ['ordinal', 'ordinal_2', 'ordinal_10']
    """
    return list(_ordinals(tuple(names)))


@functools.lru_cache(maxsize=1024)
def _ordinals(names: tuple[str, ...]) -> tuple[str, ...]:
    found = [(int(match[1] or 1), match[0]) for name in names if (match := _ORDINAL.fullmatch(name))]
    return tuple(name for _, name in sorted(found))


def next_ordinal(names: Iterable[str]) -> str:
    """The field for the places of what is made of records with these fields.

    >>> next_ordinal(["seq"]), next_ordinal(["seq", "ordinal"]), next_ordinal(["seq", "ordinal", "ordinal_2"])
    ('ordinal', 'ordinal_2', 'ordinal_3')
    """
    taken = ordinals(names)
    if not taken:
        return "ordinal"
    return f"ordinal_{int(taken[-1].partition('_')[2] or 1) + 1}"


def with_next_ordinal(schema: pa.Schema) -> pa.Schema:
    """The schema of what is made of records, several of one."""
    return schema.append(pa.field(next_ordinal(schema.names), pa.int64()))


def carried(names: Iterable[str]) -> list[str]:
    """The fields that a record hands on to what is made of it: its order and its time.

    >>> carried(["value", "event_time", "ordinal", "seq"])
    ['seq', 'ordinal', 'event_time']
    """
    names = set(names)
    return [name for name in ("seq", *ordinals(names), "event_time") if name in names]


def place_of(time: Any) -> Any:
    """The first place of what is due at a stream time, in microseconds (a number, or an array of them)."""
    return time - _BEFORE


def due(place: Any) -> Any:
    """The stream time of which a negative first place tells.

    >>> due(place_of(1_000)), place_of(1_000) < 0
    (1000, True)
    """
    return place + _BEFORE


def with_tick_places(schema: pa.Schema) -> pa.Schema:
    """The schema of a stream in which there is what a task gives because time has come."""
    for name in TICK_PLACES:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.int64()))
    return schema
