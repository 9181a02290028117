"""Orders of rows, against Python's sorting."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.ordering import (
    are_sorted,
    dense_ranks,
    merged_order,
    order_by_number_within,
    run_edges,
    sort_runs,
)

few = st.integers(-2, 2)


@given(st.lists(st.tuples(few, few, few, few), max_size=6), st.booleans())
def test_are_sorted_by_any_number_of_columns(rows, prepare):
    rows = sorted(rows) if prepare else rows
    columns = [np.array([row[c] for row in rows], np.int64) for c in range(4)]
    for used in range(5):
        keys = [row[:used] for row in rows]
        assert are_sorted(columns[:used], len(rows)) == (keys == sorted(keys))


@given(st.lists(st.tuples(few, few), max_size=8), st.lists(st.tuples(few, few), max_size=8), st.sampled_from([1, 2]))
def test_merged_order_equals_sorting(first, second, used):
    first, second = (sorted(row[:used] for row in part) for part in (first, second))
    columns = [[np.array([row[c] for row in part], np.int64) for c in range(used)] for part in (first, second)]
    wanted = sorted([(row, False) for row in first] + [(row, True) for row in second])
    assert merged_order(*columns).tolist() == [of_second for _, of_second in wanted]


@given(st.lists(st.lists(st.tuples(st.sampled_from([-1.5, 0.0, 2.0]), few), max_size=90), max_size=4), st.booleans())
def test_sort_runs_by_two_columns_then_by_row(runs, backwards):
    rows = [row for run in runs for row in run]
    edges = np.cumsum([0, *map(len, runs)])
    first, second = np.array([a for a, _ in rows], np.float64), np.array([b for _, b in rows], np.int64)
    order = np.concatenate([np.arange(a, b)[:: -1 if backwards else 1] for a, b in itertools.pairwise(edges)] + [[]])
    wanted = [i for a, b in itertools.pairwise(edges) for i in sorted(range(a, b), key=lambda i: (*rows[i], i))]
    assert sort_runs(edges, order.astype(np.int64), first, second).tolist() == wanted


@given(st.lists(st.lists(st.integers(0, 4), max_size=9), max_size=4), st.randoms())
def test_order_by_number_within_runs_is_stable(runs, choose):
    numbers = np.array([n for run in runs for n in run], np.int64)
    edges = np.cumsum([0, *map(len, runs)])
    order = choose.sample(range(numbers.size), numbers.size)
    wanted = [i for a, b in itertools.pairwise(edges) for i in sorted(order[a:b], key=lambda i: numbers[i])]
    assert order_by_number_within(edges, np.array(order, np.int64), numbers, 5).tolist() == wanted


@given(st.integers(0, 2**32), st.sampled_from([3, 2**62]))
def test_sort_runs_of_long_runs(seed, most):
    rng = np.random.default_rng(seed)
    edges = np.cumsum([0, 1500, 1200])
    first, second = rng.integers(-most, most, 2700), rng.integers(0, 2, 2700)
    wanted = [
        i
        for a, b in itertools.pairwise(edges.tolist())
        for i in sorted(range(a, b), key=lambda i: (first[i], second[i], i))
    ]
    order = np.concatenate([rng.permutation(1500), np.arange(1500, 2700)])
    assert sort_runs(edges, order, first, second).tolist() == wanted


@given(st.lists(st.tuples(few, few), max_size=8))
def test_run_edges_are_where_a_column_changes(rows):
    edges = run_edges(*(np.array([row[c] for row in rows], np.int64) for c in range(2))).tolist()
    assert edges[-1] == len(rows)
    assert edges[:-1] == [i for i, row in enumerate(rows) if i == 0 or row != rows[i - 1]]


def test_dense_ranks_of_any_type():
    assert dense_ranks(pa.array(["ü", "a", "ü", "b"]).dictionary_encode()).tolist() == [2, 0, 2, 1]
    assert dense_ranks(pa.array([0.0, -0.0, -1.0])).tolist() == [1, 1, 0]
    assert dense_ranks(pa.array([7, 3, 3])).tolist() == [1, 0, 0]
    assert dense_ranks(pa.array([], pa.string())).tolist() == []
