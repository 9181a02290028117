"""A set of lines, repeated."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.streams.parameters import Count, Flag
from riot_ops.streams.text_lines import Numbers, TextLineSource

__all__ = ["CyclicSource"]


class CyclicSource(TextLineSource):
    """A stream of lines that repeats its seed set: line *k* is ``seed_lines()[k mod records]``.

    So any length costs the memory of the seed set alone, and the results of a program over whole cycles follow from
    those over one.
    """

    records: Count = 10_000
    dirt: Flag = False

    @abstractmethod
    def seed_lines(self) -> pa.Array:
        """Return the lines of the seed set, as text."""

    def lines(self, numbers: Numbers) -> pa.Array:
        # a Spark task unpickles the source: its process makes the lines only once
        given = {**vars(self), "messages": None}
        return _seed_set(type(self), tuple(sorted(given.items()))).take(pa.array(np.remainder(numbers, self.records)))


@functools.lru_cache(maxsize=4)
def _seed_set(kind: type[CyclicSource], parameters: tuple[tuple[str, Any], ...]) -> pa.Array:
    made: Any = kind
    return made(**dict(parameters)).seed_lines()
