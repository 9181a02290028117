"""Rows of runs that matter to a ranking, against dicts and sorted lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from riot_ops.kernels.ranking import largest_within, latest_within


def runs_of(rng, rows, runs):
    edges = np.sort(np.append(rng.integers(0, rows + 1, max(0, runs - 1)), [0, rows])) if runs else np.array([0])
    return edges, rng.permutation(rows)


@pytest.mark.parametrize("rows", [0, 1, 40, 3000])
@pytest.mark.parametrize("known", [1, 7, 500])
def test_of_each_item_the_last(rows, known):
    rng = np.random.default_rng(rows + known)
    edges, order = runs_of(rng, rows, 9)
    codes = rng.integers(0, known, rows).astype(np.int32)
    ends, found = latest_within(edges, order, codes, known)
    wanted = [sorted({codes[order[j]]: j for j in range(a, b)}.values()) for a, b in pairwise(edges)]
    assert found.tolist() == [order[j] for run in wanted for j in run]
    assert ends.tolist() == [0, *np.cumsum([len(run) for run in wanted])]


@pytest.mark.parametrize("rows", [0, 1, 40, 3000])
@pytest.mark.parametrize("k", [1, 2, 10, 100, 5000])
def test_those_with_the_largest_values(rows, k):
    rng = np.random.default_rng(rows + k)
    edges, order = runs_of(rng, rows, 9)
    values = rng.choice([-np.inf, -1.0, 0.0, *range(40), np.inf], rows)
    ends, found = largest_within(edges, order, values, k)
    wanted = []
    for a, b in pairwise(edges):
        run = order[a:b].tolist()
        least = sorted(values[run], reverse=True)[:k][-1:]
        wanted.append([row for row in run if values[row] >= least[0]])
    assert found.tolist() == [row for run in wanted for row in run]
    assert ends.tolist() == [0, *np.cumsum([len(run) for run in wanted])]
