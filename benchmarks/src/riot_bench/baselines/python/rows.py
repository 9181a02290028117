"""Containers of the results of programs in plain Python: kept for a comparison, or discarded while time is measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

__all__ = ["discarding_rows", "new_rows"]

Row = tuple[Any, ...]
_discarding: ContextVar[bool] = ContextVar("discarding", default=False)


def new_rows() -> list[Row]:
    """Make a container to append result rows to.

    >>> rows = new_rows()
    >>> rows.append(("a", 1))
    >>> rows
    [('a', 1)]
    """
    return cast("list[Row]", deque(maxlen=0)) if _discarding.get() else []


@contextmanager
def discarding_rows() -> Iterator[None]:
    """Let containers created within the block discard each row at once, as a discarding sink does.

    >>> with discarding_rows():
    ...     rows = new_rows()
    >>> rows.append(("a", 1))
    >>> len(rows)
    0
    """
    token = _discarding.set(True)
    try:
        yield
    finally:
        _discarding.reset(token)
