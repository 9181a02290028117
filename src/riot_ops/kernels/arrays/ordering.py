"""Sorting rows: checks whether they are in order, sorts within runs, counting sorts, merges."""

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
    "dense_ranks",
    "group_by_slot",
    "merged_order",
    "order_by_number",
    "order_by_number_within",
    "places_in_runs",
    "run_edges",
    "sort_runs",
]


#: Rows per piece that is sorted by insertion, before pieces are merged.
PIECE = 16
#: Average length from which on runs are sorted faster by NumPy, whose sort is not stable.
LONG_RUN = 1024


@kernel
def _count_greater(column: Any, decided: Any) -> Any:
    """Return the number of rows known to be greater than the row before, -1 if one is less.

    ``decided`` flags those known by earlier columns; ``column`` decides further ones. The first row is not counted.
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
def _is_sorted_by_two(first: Any, second: Any) -> Any:
    """Whether rows are sorted by two columns; one pass without branches."""
    falls = False
    for i in range(1, first.size):
        k = np.uint64(i)
        j = np.uint64(i - 1)
        falls |= (first[k] < first[j]) | ((first[k] == first[j]) & (second[k] < second[j]))
    return not falls


def are_sorted(columns: Iterable[npt.NDArray[np.int64]], n: int) -> bool:
    """Whether n rows are sorted by columns, the first being the most significant.

    >>> are_sorted([np.array([1, 1, 2]), np.array([3, 4, 0])], 3), are_sorted([np.array([1, 1]), np.array([4, 3])], 2)
    (True, False)
    """
    columns = list(columns)
    if len(columns) in (1, 2):
        return bool(_is_sorted_by_two(readonly(columns[0]), readonly(columns[-1])))
    decided = np.zeros(n, np.bool_)
    for column in columns:
        found = _count_greater(readonly(column), decided)
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
    """Merge two parts that are sorted by their columns: for each row of the result, whether it is of the second part.

    Among equal rows those of the first part come first.

    >>> merged_order([np.array([1, 3, 5])], [np.array([0, 3, 9])]).tolist()
    [True, False, False, True, False, True]
    """
    of_second = np.empty(first[0].size + second[0].size, np.bool_)
    _merge(_stacked(first), _stacked(second), of_second)
    return of_second


def _stacked(columns: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return readonly(np.stack(columns) if len(columns) > 1 else columns[0][None])


@kernel
def _sorts_after(i: Any, j: Any, first: Any, second: Any) -> Any:
    """Whether row i sorts after row j: by both columns, then by row number."""
    if first[i] != first[j]:
        return first[i] > first[j]
    if second[i] != second[j]:
        return second[i] > second[j]
    return i > j


@kernel
def _order_runs(edges: Any, order: Any, room: Any, first: Any, second: Any) -> None:
    """Sort each run: pieces by insertion, then merge them pairwise."""
    for r in range(edges.size - 1):
        low, high = edges[r], edges[r + 1]
        for k in range(low, high):
            row = order[k]
            j = k
            while j > low + (k - low) // PIECE * PIECE and _sorts_after(order[j - 1], row, first, second):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
        width = PIECE
        while width < high - low:
            for begin in range(low, high, 2 * width):
                middle, end = min(begin + width, high), min(begin + 2 * width, high)
                a, b = begin, middle
                for k in range(begin, end):
                    if b == end or (a < middle and _sorts_after(order[b], order[a], first, second)):
                        room[k] = order[a]
                        a += 1
                    else:
                        room[k] = order[b]
                        b += 1
            for k in range(low, high):
                order[k] = room[k]
            width *= 2


def sort_runs(
    edges: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    first: npt.NDArray[Any],
    second: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Sort the rows of each run by two columns without NaN, then by row number; returns the new order.

    Run r is ``order[edges[r] : edges[r + 1]]``. O(n log n) in the longest run, with hardly any cost per run.

    >>> sort_runs(np.array([0, 2, 4]), np.arange(4), np.array([7, 5, 9, 9]), np.array([0, 0, 1, 0])).tolist()
    [1, 0, 3, 2]
    """
    found = np.array(order, np.int64)
    if LONG_RUN * (edges.size - 1) <= found.size:
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


def group_by_slot(slots: npt.NDArray[np.int64], keys: int) -> npt.NDArray[np.int64]:
    """Return the order of rows by slot, below ``keys``; stable.

    Processing rows by key keeps the state of a key in the cache. With fewer rows than keys the order is unchanged.

    >>> group_by_slot(np.array([1, 0, 1, 0]), 2).tolist()
    [1, 3, 0, 2]
    """
    return order_by_number(slots, keys) if 1 < keys <= slots.size else np.arange(slots.size)


def order_by_number(numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the order of rows by numbers from 0 to below ``count``: a stable counting sort, O(rows + count).

    >>> order_by_number(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    """
    sizes = np.bincount(numbers, minlength=count)
    order = np.empty(numbers.size, np.int64)
    _group(readonly(numbers), np.cumsum(sizes) - sizes, order)
    return order


@kernel
def _group_within(edges: Any, order: Any, numbers: Any, begins: Any, at: Any, rows: Any, runs: Any, out: Any) -> None:
    """Sort rows by number, remembering the run of each, then distribute them to their runs."""
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


def order_by_number_within(
    edges: npt.NDArray[np.int64], order: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """Sort the rows of each run by numbers from 0 to below ``count``; stable; returns the new order.

    Run r is ``order[edges[r] : edges[r + 1]]``; the runs cover all rows. O(rows + count), for any number of runs.

    >>> order_by_number_within(np.array([0, 2, 4]), np.arange(4), np.array([1, 0, 0, 0]), 2).tolist()
    [1, 0, 2, 3]
    """
    sizes = np.bincount(numbers, minlength=count)
    rows, runs, out = (np.empty(order.size, np.int64) for _ in range(3))
    begins = np.cumsum(sizes) - sizes
    _group_within(readonly(edges), readonly(order), readonly(numbers), begins, np.array(edges), rows, runs, out)
    return out


def run_edges(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where runs of rows with equal values begin, followed by the number of rows.

    >>> run_edges(np.array([3, 3, 4, 4]), np.array([0, 0, 0, 1])).tolist()
    [0, 2, 3, 4]
    """
    n = columns[0].size
    differs = np.zeros(max(0, n - 1), np.bool_)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.concatenate([np.zeros(min(n, 1), np.int64), np.flatnonzero(differs) + 1, [n]])


def places_in_runs(edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of each row within its run; ``edges`` as of :func:`run_edges`.

    >>> places_in_runs(np.array([0, 2, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))


def dense_ranks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the rank of each value among the distinct values of a column without nulls.

    >>> dense_ranks(pa.array(["b", "a", "b"])).tolist()
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
