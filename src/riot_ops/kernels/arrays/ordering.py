"""Rows in order: whether they are, and the order within runs of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = [
    "are_sorted",
    "by_number",
    "by_number_within",
    "edges_of",
    "grouped",
    "merged_order",
    "order_within",
    "places_within",
    "ranks_of",
]


#: Rows that are sorted by insertion.
PIECE = 16
#: Runs of so many rows each are sorted faster by NumPy, which does not keep the order of equal ones.
LONG = 1024


@kernel
def _rises(column: Any, decided: Any) -> Any:
    """How many rows stand behind the one before by now: by columns before this (``decided``) or by this; -1: one falls.

    Of the first row there is nothing to decide.
    """
    n = 0
    for i in range(1, column.size):
        if not decided[i]:
            if column[i] < column[i - 1]:
                return -1
            decided[i] = column[i] > column[i - 1]
        if decided[i]:
            n += 1
    return n


@kernel
def _both_rise(first: Any, second: Any) -> Any:
    """Whether rows are in the order of two columns, in one pass without branches."""
    falls = False
    for i in range(1, first.size):
        k = np.uint64(i)
        j = np.uint64(i - 1)
        falls |= (first[k] < first[j]) | ((first[k] == first[j]) & (second[k] < second[j]))
    return not falls


def are_sorted(columns: Iterable[npt.NDArray[np.int64]], n: int) -> bool:
    """Whether n rows are in the order of columns, of which the first counts most.

    >>> are_sorted([np.array([1, 1, 2]), np.array([3, 4, 0])], 3), are_sorted([np.array([1, 1]), np.array([4, 3])], 2)
    (True, False)
    """
    columns = list(columns)
    if len(columns) in (1, 2):
        return bool(_both_rise(readonly(columns[0]), readonly(columns[-1])))
    decided = np.zeros(n, np.bool_)
    for column in columns:
        found = _rises(readonly(column), decided)
        if found < 0:
            return False
        if found == n - 1:
            break
    return True


@kernel
def _merge(first: Any, second: Any, of_second: Any) -> None:
    a = 0
    b = 0
    for k in range(of_second.size):
        take = a == first.shape[1]
        if not take and b < second.shape[1]:
            for c in range(first.shape[0]):
                if first[c, a] != second[c, b]:
                    take = first[c, a] > second[c, b]
                    break
        of_second[k] = take
        b += int(take)
        a += int(not take)


def merged_order(first: list[npt.NDArray[np.int64]], second: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
    """Which rows of two parts as one are of the second; both are in order by these columns.

    Of equal rows those of the first part come first.

    >>> merged_order([np.array([1, 3, 5])], [np.array([0, 3, 9])]).tolist()
    [True, False, False, True, False, True]
    """
    of_second = np.empty(first[0].size + second[0].size, np.bool_)
    _merge(_stacked(first), _stacked(second), of_second)
    return of_second


def _stacked(columns: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return readonly(np.stack(columns) if len(columns) > 1 else columns[0][None])


@kernel
def _behind(i: Any, j: Any, first: Any, second: Any) -> Any:
    """Whether row i comes behind row j: by both columns, then by their numbers."""
    if first[i] != first[j]:
        return first[i] > first[j]
    if second[i] != second[j]:
        return second[i] > second[j]
    return i > j


@kernel
def _order_runs(edges: Any, order: Any, room: Any, first: Any, second: Any) -> None:
    """Sort each run: few rows by insertion, and of more rows such pieces by merging them, two by two."""
    for r in range(edges.size - 1):
        low, high = edges[r], edges[r + 1]
        for k in range(low, high):
            row = order[k]
            j = k
            while j > low + (k - low) // PIECE * PIECE and _behind(order[j - 1], row, first, second):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
        width = PIECE
        while width < high - low:
            for begin in range(low, high, 2 * width):
                middle, end = min(begin + width, high), min(begin + 2 * width, high)
                a, b = begin, middle
                for k in range(begin, end):
                    if b == end or (a < middle and _behind(order[b], order[a], first, second)):
                        room[k] = order[a]
                        a += 1
                    else:
                        room[k] = order[b]
                        b += 1
            for k in range(low, high):
                order[k] = room[k]
            width *= 2


def order_within(
    edges: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    first: npt.NDArray[Any],
    second: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The order with the rows of each run sorted by two columns without NaN, then by their numbers.

    Run r is ``order[edges[r] : edges[r + 1]]``. O(n log n) for the longest run, with no cost per run but a few steps.

    >>> order_within(np.array([0, 2, 4]), np.arange(4), np.array([7, 5, 9, 9]), np.array([0, 0, 1, 0])).tolist()
    [1, 0, 3, 2]
    """
    found = np.array(order, np.int64)
    if LONG * (edges.size - 1) <= found.size:
        for low, high in pairwise(edges.tolist()):
            run = found[low:high]
            run[:] = run[np.argsort(first[run])]
            if (np.diff(first[run]) == 0).any():
                found[:] = order
                break
        else:
            return found
    _order_runs(readonly(edges), found, np.empty(found.size, np.int64), readonly(first), readonly(second))
    return found


@kernel
def _group(slots: Any, begins: Any, order: Any) -> None:
    for i in range(slots.size):
        s = np.uint64(slots[i])
        order[np.uint64(begins[s])] = i
        begins[s] += 1


def grouped(slots: npt.NDArray[np.int64], keys: int) -> npt.NDArray[np.int64]:
    """The order of rows by their slots, of which there are so many; those of one stay in order.

    What a key has is near while all its rows are done. As they are where there are fewer rows than keys.

    >>> grouped(np.array([1, 0, 1, 0]), 2).tolist()
    [1, 3, 0, 2]
    """
    return by_number(slots, keys) if 1 < keys <= slots.size else np.arange(slots.size)


def by_number(numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The order of rows by numbers from 0 on, of which there are so many: O(rows + count); equal ones stay in order.

    >>> by_number(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    """
    sizes = np.bincount(numbers, minlength=count)
    order = np.empty(numbers.size, np.int64)
    _group(readonly(numbers), np.cumsum(sizes) - sizes, order)
    return order


@kernel
def _group_within(edges: Any, order: Any, numbers: Any, begins: Any, at: Any, rows: Any, runs: Any, out: Any) -> None:
    """Rows by their numbers, each with its run, and from there to where their runs go on."""
    for r in range(edges.size - 1):
        for j in range(edges[r], edges[r + 1]):
            row = order[np.uint64(j)]
            s = np.uint64(numbers[np.uint64(row)])
            place = np.uint64(begins[s])
            begins[s] += 1
            rows[place] = row
            runs[place] = r
    for k in range(order.size):
        run = np.uint64(runs[np.uint64(k)])
        out[np.uint64(at[run])] = rows[np.uint64(k)]
        at[run] += 1


def by_number_within(
    edges: npt.NDArray[np.int64], order: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """The order with the rows of each run sorted by numbers from 0 on, of which there are so many; equal ones stay.

    Run r is ``order[edges[r] : edges[r + 1]]``; together they are all rows. O(rows + count), however many runs.

    >>> by_number_within(np.array([0, 2, 4]), np.arange(4), np.array([1, 0, 0, 0]), 2).tolist()
    [1, 0, 2, 3]
    """
    sizes = np.bincount(numbers, minlength=count)
    rows, runs, out = (np.empty(order.size, np.int64) for _ in range(3))
    begins = np.cumsum(sizes) - sizes
    _group_within(readonly(edges), readonly(order), readonly(numbers), begins, np.array(edges), rows, runs, out)
    return out


def edges_of(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where runs of rows with the same values begin, and the number of rows.

    >>> edges_of(np.array([3, 3, 4, 4]), np.array([0, 0, 0, 1])).tolist()
    [0, 2, 3, 4]
    """
    n = columns[0].size
    differs = np.zeros(max(0, n - 1), np.bool_)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.concatenate([np.zeros(min(n, 1), np.int64), np.flatnonzero(differs) + 1, [n]])


def places_within(edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of each row in its run, where runs begin at these edges.

    >>> places_within(np.array([0, 2, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))


def ranks_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """The place of each value among the different values of a column without nulls.

    >>> ranks_of(pa.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # -0.0 is 0.0
    coded = column.dictionary_encode()
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[np.asarray(pc.sort_indices(coded.dictionary))] = np.arange(ranks.size)
    found: npt.NDArray[np.int64] = ranks[np.asarray(coded.indices)]
    return found
