"""A thread that reads an iterator ahead, so that the consumer does not block on a slow one."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["GATHER_SECONDS", "Prefetcher"]

#: How long ``take`` waits for an item, as other sources may have some; and then for a full group.
WAIT_SECONDS, GATHER_SECONDS = 0.01, 0.005
#: How long ``close`` waits for the iterator.
CLOSE_SECONDS = 0.05

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Reads an iterator in a thread, one group of items ahead.

    Parameters
    ----------
    items : iterator
        A generator is closed at the end.
    group_size : int
        Number of items of a full group.
    first : sequence, default ()
        Items that were already read from the iterator.

    Examples
    --------
    >>> prefetcher = Prefetcher(iter("abc"), 4)
    >>> prefetcher.take(), prefetcher.take()
    (['a', 'b', 'c'], None)
    """

    def __init__(self, items: Iterator[T], group_size: int, first: Sequence[T] = ()) -> None:
        self._items = items
        self._group_size = group_size  # 0 after close()
        # the thread appends without the lock, which would cost more than many iterators
        self._buffer = list(first)
        self._changed = threading.Condition()
        self._over = False
        self._error: BaseException | None = None
        self._waiting = False  # whether take() waits for an item
        self._thread = threading.Thread(target=self._read, daemon=True, name="riot_ops-iterator")
        self._thread.start()

    def take(self) -> list[T] | None:
        """Return the items that have arrived, perhaps none; None at the end.

        Waits a moment for an item, and then for a full group.
        """
        with self._changed:
            self._waiting = True
            self._changed.wait_for(lambda: self._over or self._buffer, WAIT_SECONDS)
            self._waiting = False
            if self._buffer:
                self._changed.wait_for(lambda: self._over or len(self._buffer) >= self._group_size, GATHER_SECONDS)
            over, items = self._over, self._buffer[:]
            del self._buffer[: len(items)]
            self._changed.notify_all()
        if items or not over:
            return items
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Stop reading; a blocked iterator is abandoned when its next item arrives."""
        with self._changed:
            self._group_size = 0
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)

    def _read(self) -> None:
        try:
            for item in self._items:
                self._buffer.append(item)
                if self._waiting:
                    self._waiting = False  # one item ends the wait
                    with self._changed:
                        self._changed.notify_all()
                if len(self._buffer) >= self._group_size and not self._wait_for_room():
                    break
        except BaseException as error:  # take() raises it
            self._error = error
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if isinstance(self._items, Generator):  # runs its finally blocks if it has not ended
            self._items.close()

    def _wait_for_room(self) -> bool:
        """Wait until there is room; False after close()."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._group_size or len(self._buffer) < self._group_size)
            return self._group_size > 0
