"""Lazy rows, against the copied rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.hashing import hash_keys, hash_rows
from riot_ops.kernels.arrays.lazy_rows import (
    PAGE,
    SMALL,
    Rows,
    floats,
    materialize,
    materialize_all,
    select,
    take_columns,
    take_with_fields,
)
from riot_ops.runtime.batches import in_order

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "ü", None]), st.sampled_from([1.5, None, -0.0])), min_size=1, max_size=6
)


def batch_of(rows):
    keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.float64()), pa.array(range(len(rows)), pa.int64())],
        names=["key", "value", "n"],
    )


def same_floats(got, wanted):
    return [None if np.isnan(v) else v for v in got] == wanted


@pytest.mark.long
@given(ROWS, st.data())
def test_select_and_take_equal_python_lists(rows, data):
    passes = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    wanted = [row for row, ok in zip(rows, passes, strict=True) if ok]
    some = select(batch_of(rows), np.array(passes))
    assert some.num_rows == len(wanted)
    assert some.schema.names == ["key", "value", "n"]
    assert some.column("key").to_pylist() == [key for key, _ in wanted]
    assert same_floats(floats(some, "value")[0], [value for _, value in wanted])
    hashes = hash_rows(some, ("key", "n"))
    assert materialize(some).column("key").to_pylist() == [key for key, _ in wanted]
    assert [h.tolist() for h in hashes] == [
        h.tolist() for h in hash_keys([materialize(some).column("key"), materialize(some).column("n")], len(wanted))
    ]
    places = data.draw(st.lists(st.integers(0, max(0, len(wanted) - 1)), max_size=4 if wanted else 0))
    taken = take_columns(some, np.array(places, np.int64), ["value", "key"])
    assert taken.schema.names == ["value", "key"]
    assert [(row["key"], row["value"]) for row in taken.to_pylist()] == [wanted[i] for i in places]


def test_floats_have_a_mask_of_nulls():
    some = Rows(pa.RecordBatch.from_pydict({"value": [1.0, None, 2.0]}), np.array([1, 2]))
    assert floats(some, "value")[1].tolist() == [False, True]


def test_select_copies_large_batches_only():
    for n, kind in ((SMALL, Rows), (SMALL + 1, pa.RecordBatch)):
        batch = pa.RecordBatch.from_pydict({"n": np.arange(n)})
        assert materialize(select(batch, np.ones(n, np.bool_))) is batch
        some = select(batch, np.arange(n) % 2 == 0)
        assert isinstance(some, kind)
        assert materialize(some).column("n").to_pylist() == list(range(0, n, 2))


def test_selections_share_cached_columns_of_the_batch():
    every = Rows(pa.RecordBatch.from_pydict({"n": [1.0, np.inf, 2.0], "m": [0.0, 1.0, 2.0]}))
    some = every.select(np.array([True, False, True]))
    fewer = some.select(np.array([False, True]))
    assert fewer.all_rows is some.all_rows is every.all_rows is every
    assert (every.has_infinite("n"), every.has_infinite("m"), some.has_infinite("n")) == (True, False, False)
    assert floats(fewer, "n")[0].tolist() == [2.0]
    assert fewer.names == ["n", "m"]
    assert some.select(np.array([True, True])) is some


def test_materialize_copies_once_and_keeps_none():
    some = Rows(pa.RecordBatch.from_pydict({"n": [1, 2]}), np.array([1]))
    assert materialize(some) is materialize(some)
    assert materialize(None) is None


def numbered_batch(n):
    return pa.RecordBatch.from_pydict(
        {"key": [None if i % 5 == 0 else f"s{i % 7}" for i in range(n)], "value": np.arange(n) / 2, "n": np.arange(n)}
    )


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 39)), st.booleans()), max_size=12))
def test_batches_materialized_together_equal_those_materialized_alone(wanted):
    batches = numbered_batch(40), numbered_batch(60)
    lazy_batches, alone = [], []
    for place, (which, rows, whole_numbers) in enumerate(wanted):
        values = np.arange(len(rows)) + place if whole_numbers else np.arange(len(rows)) / 4
        fields = {"value": values, "count": np.full(len(rows), place)}
        lazy_batches.append(Rows(batches[which], np.array(rows, np.int64), fields=fields))
        kind = pa.int64() if whole_numbers else pa.float64()
        keys = batches[which].column("key").to_pylist()
        columns = {
            "key": pa.array([keys[row] for row in rows], pa.string()),
            "value": pa.array(values, kind),
            "n": pa.array(rows, pa.int64()),
            "count": pa.array([place] * len(rows), pa.int64()),
        }
        alone.append(pa.RecordBatch.from_pydict(columns))
    materialize_all(lazy_batches)
    for lazy, expected in zip(lazy_batches, alone, strict=True):
        assert lazy.names == expected.schema.names
        assert lazy.schema.equals(expected.schema)
        assert materialize(lazy).equals(expected)
        assert materialize(lazy) is materialize(lazy)


def test_materialized_batch_keeps_no_more_than_a_page():
    batch = numbered_batch(10)
    lazy_batches = [Rows(batch, np.arange(10), fields={"value": np.zeros(10)}) for _ in range(1000)]
    materialize_all(lazy_batches)
    held = {lazy.materialize().column("n").buffers()[1].size for lazy in lazy_batches}
    assert max(held) <= 8 * (PAGE + 10)


@pytest.mark.parametrize("rows", [[0, 2], [0, 1, 2], []])
def test_rows_taken_from_lazy_rows_equal_those_of_their_batch(rows):
    batch = numbered_batch(6)
    some = Rows(batch, np.array([1, 3, 4]))
    fields = {"n": np.array([7.5, 8.5, 9.5])[rows]}
    got, alone = (
        take_with_fields(some, np.array(rows, np.int64), fields),
        take_with_fields(materialize(some), np.array(rows, np.int64), fields),
    )
    assert isinstance(got, Rows)
    assert got.num_rows == len(rows)
    assert materialize(got).equals(alone)
    assert alone.column("n").to_pylist() == fields["n"].tolist()
    assert alone.column("value").to_pylist() == [[0.5, 1.5, 2.0][row] for row in rows]


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_rows_with_replaced_fields_read_like_their_batch(first, second):
    batch = numbered_batch(4)
    own = {"value": np.array([0.5, np.inf, 2.5, 3.5]), "n": np.array([9, 8, 7, 6]), "new": np.array([1, 2, 3, 4])}
    every = Rows(batch, fields=own)
    some = select(select(every, np.array(first)), np.array(second)[np.array(first)])
    copied = Rows(
        batch.filter(pa.array(np.array(first) & np.array(second)))
        .set_column(1, "value", pa.array(own["value"][np.array(first) & np.array(second)]))
        .set_column(2, "n", pa.array(own["n"][np.array(first) & np.array(second)]))
        .append_column("new", pa.array(own["new"][np.array(first) & np.array(second)]))
    )
    assert (some.names, some.schema, some.num_rows) == (copied.names, copied.schema, copied.num_rows)
    for name in copied.names:
        assert some.column(name).equals(copied.column(name))
    for name in ("value", "n", "new"):
        assert floats(some, name)[0].tolist() == floats(copied, name)[0].tolist()
        assert some.has_infinite(name) == copied.has_infinite(name)
        assert some.may_have_infinite(name) == copied.may_have_infinite(name)
    for fields in (("key",), ("n",), ("key", "new")):
        hashes, wanted = hash_rows(some, fields), hash_rows(copied, fields)
        assert [one.tolist() for one in hashes] == [one.tolist() for one in wanted]
    last = np.arange(some.num_rows)[-1:]
    assert take_columns(some, last, ["n"]).equals(take_columns(copied, last, ["n"]))
    assert some.materialize().equals(copied.batch)


def test_replaced_order_decides_the_order_of_rows():
    batch = pa.RecordBatch.from_pydict({"seq": [0, 1, 2], "value": [1.0, 2.0, 3.0]})
    moved = Rows(batch, fields={"seq": np.array([2, 1, 0])})
    assert in_order([moved]).column("value").to_pylist() == [3.0, 2.0, 1.0]
    assert in_order([Rows(batch, fields={"value": np.array([7.0, 8.0, 9.0])})]).column("value").to_pylist() == [7, 8, 9]
