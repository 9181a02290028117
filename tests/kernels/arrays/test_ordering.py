"""Rows in order, beside Python's own sorting."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.ordering import (
    are_sorted,
    by_number_within,
    edges_of,
    merged_order,
    order_within,
    ranks_of,
)

few = st.integers(-2, 2)


@given(st.lists(st.tuples(few, few, few, few), max_size=6), st.booleans())
def test_whether_rows_are_in_the_order_of_any_number_of_columns(rows, prepare):
    rows = sorted(rows) if prepare else rows
    columns = [np.array([row[c] for row in rows], np.int64) for c in range(4)]
    for used in range(5):
        keys = [row[:used] for row in rows]
        assert are_sorted(columns[:used], len(rows)) == (keys == sorted(keys))


@given(st.lists(st.tuples(few, few), max_size=8), st.lists(st.tuples(few, few), max_size=8), st.sampled_from([1, 2]))
def test_two_parts_in_order_are_merged_as_they_would_be_sorted(first, second, used):
    first, second = (sorted(row[:used] for row in part) for part in (first, second))
    columns = [[np.array([row[c] for row in part], np.int64) for c in range(used)] for part in (first, second)]
    wanted = sorted([(row, False) for row in first] + [(row, True) for row in second])
    assert merged_order(*columns).tolist() == [of_second for _, of_second in wanted]


@given(st.lists(st.lists(st.tuples(st.sampled_from([-1.5, 0.0, 2.0]), few), max_size=90), max_size=4), st.booleans())
def test_runs_are_sorted_by_two_columns_and_where_these_agree_by_row(runs, backwards):
    rows = [row for run in runs for row in run]
    edges = np.cumsum([0, *map(len, runs)])
    first, second = np.array([a for a, _ in rows], np.float64), np.array([b for _, b in rows], np.int64)
    order = np.concatenate([np.arange(a, b)[:: -1 if backwards else 1] for a, b in itertools.pairwise(edges)] + [[]])
    wanted = [i for a, b in itertools.pairwise(edges) for i in sorted(range(a, b), key=lambda i: (*rows[i], i))]
    assert order_within(edges, order.astype(np.int64), first, second).tolist() == wanted


@given(st.lists(st.lists(st.integers(0, 4), max_size=9), max_size=4), st.randoms())
def test_runs_are_sorted_by_numbers_and_equal_ones_stay(runs, choose):
    numbers = np.array([n for run in runs for n in run], np.int64)
    edges = np.cumsum([0, *map(len, runs)])
    order = choose.sample(range(numbers.size), numbers.size)
    wanted = [i for a, b in itertools.pairwise(edges) for i in sorted(order[a:b], key=lambda i: numbers[i])]
    assert by_number_within(edges, np.array(order, np.int64), numbers, 5).tolist() == wanted


@given(st.integers(0, 2**32), st.sampled_from([3, 2**62]))
def test_long_runs_are_sorted_as_others_are(seed, most):
    rng = np.random.default_rng(seed)
    edges = np.cumsum([0, 1500, 1200])
    first, second = rng.integers(-most, most, 2700), rng.integers(0, 2, 2700)
    wanted = [
        i
        for a, b in itertools.pairwise(edges.tolist())
        for i in sorted(range(a, b), key=lambda i: (first[i], second[i], i))
    ]
    order = np.concatenate([rng.permutation(1500), np.arange(1500, 2700)])
    assert order_within(edges, order, first, second).tolist() == wanted


@given(st.lists(st.tuples(few, few), max_size=8))
def test_runs_end_where_a_column_changes(rows):
    edges = edges_of(*(np.array([row[c] for row in rows], np.int64) for c in range(2))).tolist()
    assert edges[-1] == len(rows)
    assert edges[:-1] == [i for i, row in enumerate(rows) if i == 0 or row != rows[i - 1]]


def test_ranks_are_among_different_values_of_any_type():
    assert ranks_of(pa.array(["ü", "a", "ü", "b"]).dictionary_encode()).tolist() == [2, 0, 2, 1]
    assert ranks_of(pa.array([0.0, -0.0, -1.0])).tolist() == [1, 1, 0]
    assert ranks_of(pa.array([7, 3, 3])).tolist() == [1, 0, 0]
    assert ranks_of(pa.array([], pa.string())).tolist() == []
