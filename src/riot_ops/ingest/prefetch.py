"""Iterators that may wait for their next record, without keeping waiting who takes from them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["WAIT_SECONDS", "Ahead"]

#: How long one waits for a group to become full, and at the end for an iterator that is at work.
WAIT_SECONDS = 0.05
#: The same where nothing had come the last time: others may have something.
SILENT_SECONDS = 0.01

T = TypeVar("T")


class Ahead(Generic[T]):
    """An iterator that a thread reads, one group ahead.

    Parameters
    ----------
    items : iterator
        A generator is closed at the end.
    most : int
        Items of a group.
    first : sequence
        What was taken from the iterator before.

    Examples
    --------
    >>> ahead = Ahead(iter("abc"), 4)
    >>> ahead.take(), ahead.take()
    (['a', 'b', 'c'], None)
    """

    def __init__(self, items: Iterator[T], most: int, first: Sequence[T] = ()) -> None:
        self._items = items
        self._most = most  # 0 once nobody takes any more
        # the thread appends to it without the lock, which would take longer than many an iterator
        self._come = list(first)
        self._changed = threading.Condition()
        self._over = False
        self._error: BaseException | None = None
        self._silent = False  # whether nothing had come when one looked last
        self._thread = threading.Thread(target=self._read, daemon=True, name="riot_ops-iterator")
        self._thread.start()

    def take(self) -> list[T] | None:
        """What has come, which may be nothing; None at the end.

        Waits a moment for a full group, and less where nothing had come the last time.
        """
        with self._changed:
            wait = SILENT_SECONDS if self._silent else WAIT_SECONDS
            self._changed.wait_for(lambda: self._over or len(self._come) >= self._most, wait)
            over, taken = self._over, self._come[:]
            del self._come[: len(taken)]
            self._changed.notify_all()
        self._silent = not taken
        if taken or not over:
            return taken
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Have nothing more read; an iterator that waits is let go of when its next item comes."""
        with self._changed:
            self._most = 0
            self._changed.notify_all()
        self._thread.join(WAIT_SECONDS)

    def _read(self) -> None:
        try:
            for item in self._items:
                self._come.append(item)
                if len(self._come) >= self._most and not self._go_on():
                    break
        except BaseException as error:  # raised again for who takes
            self._error = error
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if isinstance(self._items, Generator):  # one that has not come to its end has something to do there
            self._items.close()

    def _go_on(self) -> bool:
        """Wait until there is room; False where nobody takes any more."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._most or len(self._come) < self._most)
            return self._most > 0
