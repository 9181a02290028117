"""Records of which several come of one, against the batch that they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.arrays.derived import Derived
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
    """What a task makes of records as they are, and of a batch of them: results, errors, state."""
    found = []
    for whole in (False, True):
        keyed, dead = KeyedState(task, **state), DeadLetters(task.name())
        out = []
        for rows in batches:
            made = None if whole or not rows.num_rows else keyed.derived(rows, dead)
            if made is None and rows.num_rows:
                made, _ = keyed.process(rows.whole(), dead)
            out.append(made if made is None or isinstance(made, pa.RecordBatch) else made.whole())
        errors = [row for letters in dead.take() for row in letters.to_pylist()]
        plain = [None if one is None else (one.to_pylist(), one.schema.names) for one in out]
        found.append((plain, errors, keyed.snapshot(), keyed.flush()))
    return found


@given(st.lists(mails, min_size=1, max_size=3), st.sampled_from(["each", "end"]), st.booleans())
def test_counts_are_those_of_a_batch(parts, emit, headed):
    bag = BAG if headed else BAG.replace(whole=None)
    batches = [derived(messages(part, 10 * i), bag) for i, part in enumerate(parts)]
    here, there = both(t.CountSpamWords(emit=emit), batches)
    assert here == there


@given(mails, st.sampled_from(["each", "end"]), st.booleans())
def test_fewer_records_leave_what_all_do(pairs, emit, headed):
    bag = BAG if headed else BAG.replace(whole=None)
    rows = derived(messages([(text, bool(spam)) for text, spam in pairs]), bag)
    fewer = t.CountSpamWords(emit=emit).condensed_derived(rows)
    if fewer is None:
        assert not rows.num_rows
        return
    found = []
    for batch in (rows.whole(), fewer):
        state = KeyedState(t.CountSpamWords(emit=emit))
        state.process(batch, DeadLetters("counts"))
        known = zip(state.keys().column("word").to_pylist(), state.arrays["bad"], state.arrays["good"], strict=False)
        found.append({word: (int(bad), int(good)) for word, bad, good in known})
    assert found[0] == found[1]
    assert fewer.num_rows <= 2 * len(rows.keys())
    assert fewer.schema.names == rows.schema.names


def test_what_asks_is_not_made_fewer():
    assert t.CountSpamWords().condensed_derived(derived(messages([("a b", True), ("a", None)]))) is None


@given(mails, st.lists(mails, min_size=1, max_size=2), st.booleans(), st.integers(1, 3))
def test_judgements_are_those_of_a_batch(known, asked, emit_empty, words):
    counts, dead = KeyedState(t.CountSpamWords()), DeadLetters("counts")
    batches = []
    for i, part in enumerate([known, *asked]):
        rows = derived(messages([(text, spam if i == 0 else None) for text, spam in part], 10 * i))
        if rows.num_rows:
            made = counts.derived(rows, dead)
            batches.append(made if isinstance(made, Derived) else derived(messages([])))
    here, there = both(t.BayesScore(emit_empty=emit_empty, words=words), batches)
    assert here == there


@given(mails, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_first_records(pairs, headed, coded, choose):
    rows = derived(messages(pairs), BAG.replace(coded=coded, whole=("id",) if headed else None))
    rows = rows.telling(rows.schema.append(pa.field("told", pa.int64())), {"told": np.arange(7, 7 + len(rows.keys()))})
    have = np.flatnonzero(rows.times)
    some = np.array(sorted(choose.sample(have.tolist(), choose.randint(0, have.size))), np.int64)
    whole = rows.whole()
    wanted = whole.take(pa.array(rows.starts[some]))
    assert rows.heads(some).to_pylist() == wanted.to_pylist()
    assert rows.heads(some).schema.equals(whole.schema)
    assert rows.heads(some, ["n_words", "told"]).to_pylist() == wanted.select(["n_words", "told"]).to_pylist()
    empty = [row["word"] is None for row in whole.to_pylist()]
    assert empty == [headed and row["ordinal"] == 0 for row in whole.to_pylist()]


def test_what_is_shared():
    rows = derived(messages([("a b", True), ("a", None)]))
    assert rows.shared("spam").to_pylist() == [True, None]
    assert rows.shared("n_words").to_pylist() == [2, 1]
    assert [rows.shared(name) for name in ("word", "ordinal", "count", "id", "none")] == [None] * 5
    told = rows.telling(rows.schema.append(pa.field("x", pa.int64())), {"x": np.array([7, 8, 9])})
    assert (told.keys().to_pylist(), told.whole()["x"].to_pylist()) == ([None, "a", "b"], [7, 8, 9, 7, 8])
    again = told.telling(told.schema, {"count": np.array([1, 2, 3])})
    assert again.whole()["count"].to_pylist() == [1, 2, 3, 1, 2]
    assert (again.shared("x"), again.whole()["x"].to_pylist()) == (None, [7, 8, 9, 7, 8])


@pytest.mark.parametrize(("seq", "rises"), [([1, 2], True), ([2, 1], False), ([1, 1], False)])
def test_order(seq, rises):
    batch = messages([("a b", None), ("c", None)])
    batch = batch.set_column(0, "seq", pa.array(seq, pa.int64()))
    assert derived(batch).rises() == rises
    assert not derived(
        batch.append_column("ordinal", pa.array([0, 1]))
    ).rises()  # what is of one message has places already
    assert not derived(batch.drop_columns(["seq"])).rises()


def test_what_a_task_cannot_tell_of_them():
    dead = DeadLetters("x")
    rows = derived(messages([("a b", True), ("a", None)]))
    assert KeyedState(t.CountSpamWords()).derived(rows, dead) is None  # some are learned from, and others ask
    asked = derived(messages([("a b", None)]))
    assert isinstance(KeyedState(t.CountSpamWords()).derived(asked, dead), Derived)
    assert KeyedState(t.CountSpamWords(), ("seq", "word")).derived(asked, dead) is None
    assert KeyedState(t.CountSpamWords(ttl="1h")).derived(asked, dead) is None
    assert KeyedState(t.CountSpamWords(label="text")).derived(derived(messages([("a", None)])), dead) is None
    assert KeyedState(t.CountSpamWords(count="seq")).derived(asked, dead) is None
    assert (
        KeyedState(t.MovingAverage(by=("word",), value="count")).derived(asked, dead) is None
    )  # knows no such records
    told = KeyedState(t.CountSpamWords()).derived(asked, dead)
    assert KeyedState(t.BayesScore()).derived(told, dead).num_rows == 1
    assert KeyedState(t.BayesScore()).derived(asked, dead) is None  # nothing was counted
    assert KeyedState(t.BayesScore(by=("id",))).derived(told, dead) is None
    holds = KeyedState(t.BayesScore())
    holds.process(told.whole().slice(0, 2), dead)
    assert holds.derived(told, dead) is None  # a message has begun
