"""The first item of an iterator, which may come late."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["FirstItem"]

T = TypeVar("T")


class FirstItem(Generic[T]):
    """Reads the first item of an iterator in a thread, so that the consumer does not block on it.

    Examples
    --------
    >>> first = FirstItem(iter("abc"))
    >>> first.wait(60), list(first.all_items())
    (['a'], ['a', 'b', 'c'])
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True, name="riot_ops-first-item")
        self._thread.start()

    def wait(self, seconds: float | None = None) -> list[T] | None:
        """Return the item in a list, which is empty if there is none, or None if it has not come in time.

        Raises the error of the iterator.
        """
        self._thread.join(seconds)
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._found

    def all_items(self) -> Iterator[T]:
        """Yield the first item, once it has come, and all others."""
        self.wait()
        yield from self._found
        yield from self._items

    def _read(self) -> None:
        try:
            self._found.extend(itertools.islice(self._items, 1))
        except BaseException as error:  # wait() raises it
            self._error = error
