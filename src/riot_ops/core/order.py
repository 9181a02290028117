"""The order of the records of a stream: the number of their message, then their ordinals within it.

Every record has ``seq``, the number of its message. A task that derives several records from one numbers them in an
additional column: ``ordinal``, then ``ordinal_2`` for the records derived from these, and so on, each counting from 0.
So neither the number of records derived from one nor the number of such tasks in a row has a limit, and the order does
not depend on where the records of a message were processed.

Timer output (:mod:`riot_ops.core.clock`) has the number of the message that moved stream time, and three ordinals: the
stream time at which it was due, less 2^62 so that it sorts before the records of the message; a hash of its key; and
its position in the output of the key at that time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Set

import pyarrow as pa

__all__ = [
    "TIMER_OFFSET",
    "TIMER_ORDINALS",
    "carried_fields",
    "is_ordinal",
    "next_ordinal",
    "ordinals",
    "result_fields",
    "with_next_ordinal",
    "with_timer_ordinals",
]

#: The ordinals of timer output.
TIMER_ORDINALS = ("ordinal", "ordinal_2", "ordinal_3")
#: What the first ordinal of timer output is less than the stream time, in microseconds, at which it was due. Times of
#: the years 1 to 9999 less this are negative.
TIMER_OFFSET = 1 << 62

_ORDINAL = re.compile(r"ordinal(?:_([2-9]|[1-9]\d+))?")


def is_ordinal(name: str) -> bool:
    """Whether a field is an ordinal.

    >>> [is_ordinal(name) for name in ("ordinal", "ordinal_2", "ordinal_1", "ordinal_x")]
    [True, True, False, False]
    """
    return _ORDINAL.fullmatch(name) is not None


def ordinals(names: Iterable[str]) -> list[str]:
    """Return the ordinals among the fields, in order.

    >>> ordinals(["value", "ordinal_10", "ordinal_2", "ordinal"])
    ['ordinal', 'ordinal_2', 'ordinal_10']
    """
    return list(_ordinals(tuple(names)))


@functools.lru_cache(maxsize=1024)
def _ordinals(names: tuple[str, ...]) -> tuple[str, ...]:
    found = [(int(match[1] or 1), match[0]) for name in names if (match := _ORDINAL.fullmatch(name))]
    return tuple(name for _, name in sorted(found))


def result_fields(names: Iterable[str], kept: Set[str] | None) -> list[str]:
    """The fields of a stream that its results have: all but the ordinals that are not in ``kept``; all if that is None.

    >>> result_fields(["seq", "ordinal", "word"], frozenset())
    ['seq', 'word']
    """
    names = list(names)
    if kept is None:
        return names
    hidden = {*ordinals(names)} - kept
    return [name for name in names if name not in hidden]


def next_ordinal(names: Iterable[str]) -> str:
    """Return the name of the ordinal for records derived from records with these fields.

    >>> next_ordinal(["seq"]), next_ordinal(["seq", "ordinal"]), next_ordinal(["seq", "ordinal", "ordinal_2"])
    ('ordinal', 'ordinal_2', 'ordinal_3')
    """
    present = ordinals(names)
    if not present:
        return "ordinal"
    return f"ordinal_{int(present[-1].partition('_')[2] or 1) + 1}"


def with_next_ordinal(schema: pa.Schema) -> pa.Schema:
    """Return the schema with one more ordinal, for a task that derives several records from one.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from riot_ops.task import with_next_ordinal
    >>> once = with_next_ordinal(pa.schema([pa.field("seq", pa.int64(), nullable=False), ("word", pa.string())]))
    >>> once.names, with_next_ordinal(once).names
    (['seq', 'word', 'ordinal'], ['seq', 'word', 'ordinal', 'ordinal_2'])
    """
    return schema.append(pa.field(next_ordinal(schema.names), pa.int64()))


def carried_fields(names: Iterable[str]) -> list[str]:
    """Return the fields that a record passes to the records derived from it: its order and its time.

    >>> carried_fields(["value", "event_time", "ordinal", "seq"])
    ['seq', 'ordinal', 'event_time']
    """
    names = set(names)
    return [name for name in ("seq", *ordinals(names), "event_time") if name in names]


def with_timer_ordinals(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the ordinals of timer output.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from riot_ops.task import with_timer_ordinals
    >>> schema = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("mean", pa.float64())])
    >>> with_timer_ordinals(schema).names
    ['seq', 'mean', 'ordinal', 'ordinal_2', 'ordinal_3']
    """
    for name in TIMER_ORDINALS:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.int64()))
    return schema
