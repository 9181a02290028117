"""Records that stand for others before they cross Spark, and are kept back for the next ones: they come to the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.spark import blocks
from tests.search import depth

MOST = 2**63 - 1
KEYED = [
    t.RunningCount(by="key", emit="update"),
    t.RunningTotals(by="key", totals={"sum": "n", "rows": None}, emit="update"),
    t.RunningSummary(by="key", emit="update"),
    t.Deduplicate(by=("key", "n")),
]
SCHEMA = pa.schema({"seq": pa.int64(), "key": pa.string(), "n": pa.int64(), "value": pa.float64()})
ROW = st.tuples(
    st.sampled_from(["a", "b", "ü", "", None]),
    st.sampled_from([0, 1, -1, 7, MOST, -MOST, None]),
    st.sampled_from([0.1, -0.0, 1e16, 1.0, -1e16, 1e300, 1.7e308, float("inf"), float("nan"), None]),
)


def pieces_of(rows, sizes):
    """The rows as batches of these sizes, and what is left as one more."""
    table = pa.RecordBatch.from_pylist(
        [{"seq": i, "key": k, "n": n, "value": v} for i, (k, n, v) in enumerate(rows)], SCHEMA
    )
    at = 0
    for size in sizes:
        yield table.slice(at, size)
        at += size
    yield table.slice(at)


def results(task, batches):
    session = task.session()
    made = session.push_batch(pa.concat_batches([b for b in batches if b.num_rows] or batches))
    return repr(made.sort_by("seq").to_pylist()), repr(session.errors)  # NaN is like NaN


@pytest.mark.parametrize("task", KEYED, ids=lambda task: type(task).__name__)
@settings(deadline=None, max_examples=depth(100))
@given(
    rows=st.lists(ROW, min_size=1, max_size=40), sizes=st.lists(st.integers(1, 12), max_size=5), most=st.integers(0, 9)
)
def test_what_is_kept_back_comes_to_the_same(task, rows, sizes, most):
    pieces = list(pieces_of(rows, sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MOST_KEPT", most)
        kept = blocks._Kept(None, task.by, task)
        crossed = [one for piece in pieces for one in kept.take(piece)] + kept.rest()
    assert results(task, crossed) == results(task, pieces)


def test_few_keys_cross_once():
    kept = blocks._Kept(None, ("key",), KEYED[0])
    row = [("a", 0, None), ("b", 0, None)]
    assert [kept.take(piece) for piece in pieces_of(row * 30, [20, 20])] == [[], [], []]
    (batch,) = kept.rest()
    assert batch["seq"].to_pylist() == [58, 59]
    assert batch.column(batch.num_columns - 1).to_pylist() == [30, 30]


def test_many_keys_are_not_kept_back(monkeypatch):
    kept = blocks._Kept(None, ("key",), KEYED[0])
    twice, each = ([(f"k{i // n}", 0, None) for i in range(8)] for n in (2, 1))
    (first, second), more = pieces_of(twice + each, [8]), [("x", 0, None)] * 4
    assert kept.take(first) == []
    assert [b.num_rows for b in kept.take(second)] == [4, 8] and kept.rest() == []
    monkeypatch.setattr(blocks, "MOST_KEPT", 6)
    assert kept.take(first) == [] and kept.take(next(pieces_of(more, []))) == []
    others = next(pieces_of([(f"o{i // 2}", 0, None) for i in range(4)], []))
    assert [b.num_rows for b in kept.take(others)] == [7] and kept.rest() == []


def test_large_records_are_not_kept_back():
    kept = blocks._Kept(None, ("key",), KEYED[0])
    large = [(f"{i // 2}" * 200_000, 0, None) for i in range(4)]
    for _ in range(44):  # together more than may be kept, but always the same keys
        assert kept.take(next(pieces_of(large, []))) == []
    other = [(f"{i // 2}" * 200_000, 0, None) for i in range(200)]
    (batch,) = kept.take(next(pieces_of(other, [])))
    assert batch.num_rows == 100 and kept.rest() == []


def test_a_task_that_puts_out_each_record_has_all_of_them():
    task = t.RunningCount(by="key")
    kept = blocks._Kept(None, ("key",), task)
    pieces = list(pieces_of([("a", 0, None)] * 8, [4]))
    assert [kept.take(piece)[0] for piece in pieces] == pieces and kept.rest() == []
