"""A buffer of records from its definition, record by record, and a queue with two limits."""

from __future__ import annotations

from collections.abc import Iterable


def batches(sizes: Iterable[int], capacity: int, most: int) -> list[list[int]]:
    """Return the numbers of the records in each batch, for records of these sizes and without a time limit."""
    found: list[list[int]] = []
    held: list[int] = []
    used = 0
    for number, size in enumerate(sizes):
        if held and used + size > capacity:
            found.append(held)
            held, used = [], 0
        held.append(number)
        used += size
        if used >= capacity or len(held) == most:
            found.append(held)
            held, used = [], 0
    return [*found, held] if held else found


class Gate:
    """Return whether the queue accepts more after each change of its size."""

    def __init__(self, high: float, low: float) -> None:
        self.high, self.low, self.size, self.closed = high, low, 0, False

    def put(self, size: int) -> None:
        assert not self.closed
        self.size += size
        if self.size >= self.high:
            self.closed = True

    def get(self, size: int) -> None:
        self.size -= size
        if self.closed and self.size <= self.low:
            self.closed = False
