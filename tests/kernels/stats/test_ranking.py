"""Candidates and top rows by tick, against dicts and sorted lists."""

from __future__ import annotations

import numpy as np
import pytest

from riot_ops.kernels.stats.ranking import next_ticks, select_candidates, top_rows


@pytest.mark.long
@pytest.mark.parametrize("rows", [0, 1, 40, 3000])
@pytest.mark.parametrize("known", [1, 7, 500])
@pytest.mark.parametrize("k", [1, 2, 10, 5000])
@pytest.mark.parametrize("zeros", [False, True])
def test_top_rows_are_the_largest_of_the_last_row_of_each_item(rows, known, k, zeros):
    rng = np.random.default_rng(rows + known + k)
    tick, slot = rng.integers(-2, 4, rows), rng.integers(0, 3, rows)
    codes = rng.integers(0, known, rows).astype(np.int32)
    values = rng.choice([-np.inf, -1.0, 0.0, *range(40), np.inf], rows)
    order = np.lexsort((slot, tick))
    found, ends, used = np.empty(rows, np.int64), np.zeros(rows + 1, np.int64), np.zeros(known, np.bool_)
    passed, room = 1, (np.zeros(known, np.int64), used, np.empty(min(k, rows)), found, ends)
    runs, n, every = select_candidates(order.copy(), tick, slot, codes, values, passed, k, zeros, *room)
    last = {}
    for row in order.tolist():
        last.setdefault((tick[row], slot[row]), {})[codes[row]] = row
    candidates = []
    for (at, _), items in last.items():
        those = [row for row in sorted(items.values()) if at <= passed and (zeros or values[row])]
        least = sorted(values[those], reverse=True)[:k][-1:]
        candidates += [[row for row in those if values[row] >= least[0]]] if at <= passed else []
    assert found[:n].tolist() == [row for run in candidates for row in run]
    assert ends[: runs + 1].tolist() == [0, *np.cumsum([len(run) for run in candidates])]
    assert found[n:every].tolist() == [
        row for (at, _), run in last.items() if at > passed for row in sorted(run.values())
    ]
    assert set(np.flatnonzero(used)) == set(codes[found[:n]])
    out = tuple(np.empty(n, np.int64) for _ in range(5))
    count = top_rows(ends[: runs + 1], found[:n], k, tick, slot, codes, 1000, 7, *out)
    wanted = [
        (row, rank, 1000 + 7 * tick[row], slot[row], codes[row])
        for run in candidates
        for rank, row in enumerate(run[:k], 1)
    ]
    assert list(zip(*(column[:count].tolist() for column in out), strict=True)) == wanted


def test_next_ticks_and_candidate_rows():
    times, timed = np.array([5, 9, 9, 10, 4, 11]), np.array([True, True, True, True, True, False])
    values, there = np.array([1.0, 2.0, 3.0, np.nan, 4.0, 5.0]), np.array([True, True, False, True, True, True])
    tick, late, good = np.empty(6, np.int64), np.empty(6, np.bool_), np.empty(6, np.bool_)
    moves = np.array([1, 3]), np.array([0, 0, 1])  # one tick passes before row 3
    assert next_ticks(times, timed, values, there, 4, 6, *moves, tick, late, good) == 4
    assert tick.tolist()[:5] == [1, 1, 1, 2, 1]
    assert late.tolist() == [False, False, False, False, True, False]
    assert good.tolist() == [True, True, False, False, False, False]
