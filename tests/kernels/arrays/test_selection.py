"""Rows of a batch that are copied later, beside the rows themselves."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.hashing import HashMemo, hash_columns
from riot_ops.kernels.arrays.selection import SMALL, Selection, floats, kept, picked, whole

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


@given(ROWS, st.data())
def test_what_passes_is_what_python_keeps(rows, data):
    passes = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    wanted = [row for row, ok in zip(rows, passes, strict=True) if ok]
    some = kept(batch_of(rows), np.array(passes))
    assert some.num_rows == len(wanted)
    assert some.schema.names == ["key", "value", "n"]
    assert some.column("key").to_pylist() == [key for key, _ in wanted]
    assert same_floats(floats(some, "value")[0], [value for _, value in wanted])
    hashes = HashMemo().of(some, ("key", "n"))
    assert whole(some).column("key").to_pylist() == [key for key, _ in wanted]
    assert [h.tolist() for h in hashes] == [
        h.tolist() for h in hash_columns([whole(some).column("key"), whole(some).column("n")], len(wanted))
    ]
    places = data.draw(st.lists(st.integers(0, max(0, len(wanted) - 1)), max_size=4 if wanted else 0))
    got = picked(some, np.array(places, np.int64), ["value", "key"])
    assert got.schema.names == ["value", "key"]
    assert [(row["key"], row["value"]) for row in got.to_pylist()] == [wanted[i] for i in places]


def test_nulls_are_told_by_a_mask():
    some = Selection(pa.RecordBatch.from_pydict({"value": [1.0, None, 2.0]}), np.array([1, 2]))
    assert floats(some, "value")[1].tolist() == [False, True]


def test_of_a_small_batch_nothing_is_copied_and_of_a_large_one_at_once():
    for n, kind in ((SMALL, Selection), (SMALL + 1, pa.RecordBatch)):
        batch = pa.RecordBatch.from_pydict({"n": np.arange(n)})
        assert whole(kept(batch, np.ones(n, np.bool_))) is batch
        some = kept(batch, np.arange(n) % 2 == 0)
        assert isinstance(some, kind)
        assert whole(some).column("n").to_pylist() == list(range(0, n, 2))


def test_what_is_known_of_the_batch_is_known_of_its_rows():
    every = Selection(pa.RecordBatch.from_pydict({"n": [1.0, np.inf, 2.0], "m": [0.0, 1.0, 2.0]}))
    some = every.kept(np.array([True, False, True]))
    fewer = some.kept(np.array([False, True]))
    assert fewer.every is some.every is every.every is every
    assert (every.has_infinite("n"), every.has_infinite("m"), some.has_infinite("n")) == (True, False, False)
    assert floats(fewer, "n")[0].tolist() == [2.0]
    assert fewer.names == ["n", "m"]
    assert some.kept(np.array([True, True])) is some


def test_the_batch_is_made_once_and_none_stays_none():
    some = Selection(pa.RecordBatch.from_pydict({"n": [1, 2]}), np.array([1]))
    assert whole(some) is whole(some)
    assert whole(None) is None


def test_hashes_of_a_batch_are_known_to_all_who_share_them():
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"]})
    memo, other = HashMemo(), HashMemo()
    other.share(memo)
    assert other.of(batch, ("key",))[0] is memo.of(batch, ("key",))[0]
    memo.clear()
    assert memo.of(batch, ("key",))[0] is not other.of(batch, ("key",))[0]
