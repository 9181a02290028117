"""Derived records, against the batch that they stand for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.arrays.derived import DerivedRecords
from riot_ops.runtime.state import KeyedState

texts = st.lists(st.sampled_from(["win", "Win", "cash!", "we", "a_1", "é", ","]), max_size=6).map(" ".join)
labels = st.sampled_from([True, False, None])
mails = st.lists(st.tuples(st.none() | texts, labels), max_size=6)
BAG = t.BagOfWords(field="text", keep=("spam",), whole=("id",), coded=True)


def messages(pairs, start=0):
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(start, start + len(pairs)), pa.int64()),
            "event_time": pa.nulls(len(pairs), pa.timestamp("us", "UTC")),
            "id": pa.array([f"m{start + i}" for i in range(len(pairs))], pa.string()),
            "text": pa.array([text for text, _ in pairs], pa.string()),
            "spam": pa.array([spam for _, spam in pairs], pa.bool_()),
        }
    )


def derived(batch, bag=BAG):
    (rows,) = bag.derived(batch, DeadLetters("bag"))
    return rows


def both(task, batches, **state):
    """Results, errors and state of a task for derived records, and for the batches that they stand for."""
    found = []
    for whole in (False, True):
        keyed, dead = KeyedState(task, **state), DeadLetters(task.name())
        out = []
        for rows in batches:
            made = None if whole or not rows.num_rows else keyed.process_derived(rows, dead)
            if made is None and rows.num_rows:
                (made,) = keyed.update(rows.materialize(), dead)
            out.append(made if made is None or isinstance(made, pa.RecordBatch) else made.materialize())
        errors = [row for letters in dead.take() for row in letters.to_pylist()]
        plain = [None if one is None else (one.to_pylist(), one.schema.names) for one in out]
        found.append((plain, errors, keyed.snapshot(), keyed.flush()))
    return found


@pytest.mark.long
@given(st.lists(mails, min_size=1, max_size=3), st.sampled_from(["each", "end"]), st.booleans())
def test_counts_equal_those_of_a_batch(parts, emit, headed):
    bag = BAG if headed else BAG.replace(whole=None)
    batches = [derived(messages(part, 10 * i), bag) for i, part in enumerate(parts)]
    here, there = both(t.CountSpamWords(emit=emit), batches)
    assert here == there


@given(mails, st.sampled_from(["each", "end"]), st.booleans())
def test_condensed_records_leave_the_same_state(pairs, emit, headed):
    bag = BAG if headed else BAG.replace(whole=None)
    rows = derived(messages([(text, bool(spam)) for text, spam in pairs]), bag)
    fewer = t.CountSpamWords(emit=emit).precombine_derived(rows)
    if fewer is None:
        assert not rows.num_rows
        return
    found = []
    for batch in (rows.materialize(), fewer):
        state = KeyedState(t.CountSpamWords(emit=emit))
        state.update(batch, DeadLetters("counts"))
        known = zip(state.keys().column("word").to_pylist(), state.arrays["bad"], state.arrays["good"], strict=False)
        found.append({word: (int(bad), int(good)) for word, bad, good in known})
    assert found[0] == found[1]
    assert fewer.num_rows <= 2 * len(rows.keys())
    assert fewer.schema.names == rows.schema.names


def test_unlabelled_records_are_not_condensed():
    assert t.CountSpamWords().precombine_derived(derived(messages([("a b", True), ("a", None)]))) is None


@pytest.mark.long
@given(mails, st.lists(mails, min_size=1, max_size=2), st.booleans(), st.integers(1, 3))
def test_scores_equal_those_of_a_batch(known, asked, emit_empty, words):
    counts, dead = KeyedState(t.CountSpamWords()), DeadLetters("counts")
    batches = []
    for i, part in enumerate([known, *asked]):
        rows = derived(messages([(text, spam if i == 0 else None) for text, spam in part], 10 * i))
        if rows.num_rows:
            made = counts.process_derived(rows, dead)
            batches.append(made if isinstance(made, DerivedRecords) else derived(messages([])))
    here, there = both(t.BayesScore(emit_empty=emit_empty, words=words), batches)
    assert here == there


@given(mails, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_first_records_equal_those_of_the_batch(pairs, headed, coded, choose):
    rows = derived(messages(pairs), BAG.replace(coded=coded, whole=("id",) if headed else None))
    rows = rows.with_word_values(
        rows.schema.append(pa.field("looked_up", pa.int64())), {"looked_up": np.arange(7, 7 + len(rows.keys()))}
    )
    have = np.flatnonzero(rows.times)
    some = np.array(sorted(choose.sample(have.tolist(), choose.randint(0, have.size))), np.int64)
    whole = rows.materialize()
    wanted = whole.take(pa.array(rows.starts[some]))
    assert rows.first_records(some).to_pylist() == wanted.to_pylist()
    assert rows.first_records(some).schema.equals(whole.schema)
    assert (
        rows.first_records(some, ["n_words", "looked_up"]).to_pylist()
        == wanted.select(["n_words", "looked_up"]).to_pylist()
    )
    empty = [row["word"] is None for row in whole.to_pylist()]
    assert empty == [headed and row["ordinal"] == 0 for row in whole.to_pylist()]


def test_shared_fields_have_a_value_per_text():
    rows = derived(messages([("a b", True), ("a", None)]))
    assert rows.shared_column("spam").to_pylist() == [True, None]
    assert rows.shared_column("n_words").to_pylist() == [2, 1]
    assert [rows.shared_column(name) for name in ("word", "ordinal", "count", "id", "none")] == [None] * 5
    looked_up = rows.with_word_values(rows.schema.append(pa.field("x", pa.int64())), {"x": np.array([7, 8, 9])})
    assert (looked_up.keys().to_pylist(), looked_up.materialize()["x"].to_pylist()) == (
        [None, "a", "b"],
        [7, 8, 9, 7, 8],
    )
    again = looked_up.with_word_values(looked_up.schema, {"count": np.array([1, 2, 3])})
    assert again.materialize()["count"].to_pylist() == [1, 2, 3, 1, 2]
    assert (again.shared_column("x"), again.materialize()["x"].to_pylist()) == (None, [7, 8, 9, 7, 8])


@pytest.mark.parametrize(("seq", "ascending"), [([1, 2], True), ([2, 1], False), ([1, 1], False)])
def test_order_is_ascending_only_with_ascending_messages(seq, ascending):
    batch = messages([("a b", None), ("c", None)])
    batch = batch.set_column(0, "seq", pa.array(seq, pa.int64()))
    assert derived(batch).is_ascending() == ascending
    assert not derived(
        batch.append_column("ordinal", pa.array([0, 1]))
    ).is_ascending()  # an input with ordinals has places already
    assert not derived(batch.drop_columns(["seq"])).is_ascending()


def test_process_derived_declines_unsupported_tasks():
    dead = DeadLetters("x")
    rows = derived(messages([("a b", True), ("a", None)]))
    assert (
        KeyedState(t.CountSpamWords()).process_derived(rows, dead) is None
    )  # some records train, others ask for a score
    asked = derived(messages([("a b", None)]))
    assert isinstance(KeyedState(t.CountSpamWords()).process_derived(asked, dead), DerivedRecords)
    assert KeyedState(t.CountSpamWords(), ("seq", "word")).process_derived(asked, dead) is None
    assert KeyedState(t.CountSpamWords(ttl="1h")).process_derived(asked, dead) is None
    assert KeyedState(t.CountSpamWords(label="text")).process_derived(derived(messages([("a", None)])), dead) is None
    assert KeyedState(t.CountSpamWords(count="seq")).process_derived(asked, dead) is None
    assert (
        KeyedState(t.MovingAverage(by=("word",), value="count")).process_derived(asked, dead) is None
    )  # does not support derived records
    looked_up = KeyedState(t.CountSpamWords()).process_derived(asked, dead)
    assert KeyedState(t.BayesScore()).process_derived(looked_up, dead).num_rows == 1
    assert KeyedState(t.BayesScore()).process_derived(asked, dead) is None  # nothing was counted
    assert KeyedState(t.BayesScore(by=("id",))).process_derived(looked_up, dead) is None
    holds = KeyedState(t.BayesScore())
    holds.update(looked_up.materialize().slice(0, 2), dead)
    assert holds.process_derived(looked_up, dead) is None  # a message is incomplete
