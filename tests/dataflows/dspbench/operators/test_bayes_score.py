"""Scores of messages, by hand and against a sorted list."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BayesScore
from riot_ops.models.word_table import spam_share

words = st.dictionaries(
    st.text("ab", min_size=1, max_size=3), st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9
)


def message(seq, counts, totals=(9, 6)):
    n = len(counts)
    whole = {"seq": seq, "id": f"m{seq}", "word": None, "n_words": n, "count_bad": totals[0], "count_good": totals[1]}
    return [whole] + [
        {**whole, "id": None, "word": word, "count_bad": bad, "count_good": good}
        for word, (bad, good) in counts.items()
    ]


def wanted(counts, most, unknown, least, totals=(9, 6)):
    shares = [(spam_share(*both, *totals, unknown=unknown, min_share=least), word) for word, both in counts.items()]
    chosen = sorted(shares, key=lambda s: (-abs(s[0] - 0.5), s[1]))[:most]
    spam, ham = math.prod(p for p, _ in chosen), math.prod(1 - p for p, _ in chosen)
    return spam / (spam + ham)


@given(st.lists(words, min_size=1, max_size=4), st.sampled_from([1, 3, 15]), st.randoms(use_true_random=False))
def test_scores_by_hand(messages, most, choose):
    rows = [row for seq, counts in enumerate(messages) for row in message(seq, counts)]
    order = sorted(rows, key=lambda row: choose.random())  # the whole message still precedes its words
    rows = sorted(order, key=lambda row: row["word"] is not None)
    task = BayesScore(max_words=most, unknown=0.45, min_probability=0.125)
    session = task.session()
    found = {}
    for start in range(0, len(rows), 3):
        found |= {row["id"]: row["spam_probability"] for row in session.push_many(rows[start : start + 3])}
    assert found == {f"m{seq}": pytest.approx(wanted(counts, most, 0.45, 0.125)) for seq, counts in enumerate(messages)}
    assert session.flush() == []
    assert session.errors == []


@given(st.lists(st.tuples(words, st.integers(4, 9), st.integers(4, 9)), min_size=1, max_size=5), st.booleans())
def test_counts_may_change_from_message_to_message(messages, numbered):
    rows = [row for seq, (counts, *totals) in enumerate(messages) for row in message(seq, counts, totals)]
    batch = pa.RecordBatch.from_pylist(rows)
    if numbered:
        batch = batch.set_column(2, "word", batch.column("word").dictionary_encode())
    assert batch.schema.names[2] == "word"
    found = BayesScore(max_words=3).session().push_batch(batch)["spam_probability"].to_pylist()
    assert found == [pytest.approx(wanted(c, 3, 0.4, 0.01, totals), rel=1e-9) for c, *totals in messages]


@pytest.mark.long
@pytest.mark.parametrize("most", [2, 3, 100])
def test_repeated_word_counts_repeatedly(most):
    rows = message(1, {"a": (3, 1), "b": (9, 1), "c": (1, 1)})  # 0.5, 0.75, 0.25: b before c before a
    rows = [{**rows[0], "n_words": 202}, *[rows[2]] * 200, rows[3], rows[1]]
    row = BayesScore(max_words=most).session().push_many(rows)[0]
    assert row["spam_probability"] == pytest.approx(1 - 0.25**most / (0.75**most + 0.25**most), rel=1e-9)


def test_results_come_with_the_last_record_of_a_message():
    rows = message(1, {"a": (1, 0), "b": (1, 0)}) + message(2, {"c": (0, 1)})
    session = ro.Session(BayesScore(), ordered=False)
    batch = pa.RecordBatch.from_pylist([rows[0], rows[3], rows[1], rows[4], rows[2]])
    assert session.push_batch(batch)["id"].to_pylist() == ["m2", "m1"]


def test_empty_and_incomplete_messages():
    session = BayesScore().session()
    assert session.push_many(message(1, {}) + message(2, {"a": (1, 1)})[:1] + message(3, {"a": (1, 1)})[1:]) == []
    session.flush()
    assert [(e["seq"], e["reason"]) for e in session.errors] == [(1, "no_words"), (3, "no_message"), (2, "incomplete")]
    session = BayesScore(emit_empty=True, threshold=0.3).session()
    assert session.push_many(message(1, {})) == [{"seq": 1, "id": "m1", "spam_probability": 0.5, "is_spam": False}]


def test_message_numbers_may_repeat():
    first, again = message(1, {"a": (3, 0)}), message(1, {"b": (0, 3)})
    session = BayesScore().session()
    assert [row["is_spam"] for row in session.push_many(first + again)] == [True, False]
    assert session.push_many(first[:1] + again)[0]["is_spam"] is False
    assert [(e["reason"], e["seq"]) for e in session.errors] == [("incomplete", 1)]


@pytest.mark.long
def test_many_words_do_not_underflow():
    counts = {f"w{i}": (0, 3) for i in range(300)}
    row = BayesScore(max_words=300).session().push_many(message(1, counts))[0]
    assert (row["spam_probability"], row["is_spam"]) == (0.0, False)
    row = BayesScore(max_words=300).session().push_many(message(1, {w: (3, 0) for w in counts}))[0]
    assert (row["spam_probability"], row["is_spam"]) == (1.0, True)


@pytest.mark.parametrize(
    ("totals", "p"),
    [((0, 6), 0.01), ((9, 0), 0.99), ((0, 0), 0.4), ((9, 6), 1 / 2)],
)
def test_words_in_only_one_class(totals, p):
    rows = message(1, {"a": (3, 1)}, totals)  # 3 / 9 and 2 / 6 if there are such messages
    assert BayesScore().session().push_many(rows)[0]["spam_probability"] == pytest.approx(p)


def test_ties_are_broken_by_bytes():
    counts = {"ü": (9, 0), "ab": (0, 6), "a": (9, 0), "b": (0, 6), "": (0, 6)}  # 0.99 and 0.01, as far from 0.5
    for most, spam, ham in ((1, 0, 1), (2, 1, 1), (3, 1, 2), (4, 1, 3), (5, 2, 3)):
        row = BayesScore(max_words=most).session().push_many(message(1, counts))[0]
        odds = 0.99**spam * 0.01**ham, 0.01**spam * 0.99**ham
        assert row["spam_probability"] == pytest.approx(odds[0] / sum(odds))


def test_parameters_change_the_score():
    rows = message(1, {"a": (3, 1)})  # r_bad 1/3, r_good w/6
    for weight, p in ((2.0, 0.5), (1.0, 2 / 3)):
        found = BayesScore(ham_weight=weight, threshold=0.6, keep=("id", "n_words")).session().push_many(rows)[0]
        assert found["spam_probability"] == pytest.approx(p)
        assert (found["is_spam"], found["n_words"]) == (p > 0.6, 1)


@pytest.mark.parametrize(
    ("parameters", "error_text"),
    [
        ({"ttl": "1s"}, "ttl"),
        ({"by": ()}, "by"),
        ({"keep": ("is_spam",)}, "is_spam"),
        ({"min_probability": 0.5}, "min_probability"),
        ({"max_words": 0}, "max_words"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, error_text):
    with pytest.raises(ConfigError, match=error_text):
        BayesScore(**parameters)


@pytest.mark.long
@pytest.mark.parametrize("most", [15, 100])
def test_ties_with_a_common_prefix_are_broken_by_bytes(most):
    names = [f"beginning{'x' * (i % 4)}{i}" for i in range(150)] + [f"begin{i}" for i in range(60)]
    counts = {name: (i % 5, i % 3) for i, name in enumerate(names)}
    row = BayesScore(max_words=most).session().push_many(message(1, counts))[0]
    assert row["spam_probability"] == pytest.approx(wanted(counts, most, 0.4, 0.01), rel=1e-9)


@pytest.mark.long
def test_nearly_equal_words_are_ranked_exactly():
    counts = {"a": (6, 1), "b": (3, 8)}  # 2/3 and 1/5, where the last bits decide
    for bad in range(9):
        for good in range(6):
            counts |= {f"c{bad}{good}": (bad, good), f"d{good}{bad}": (good, bad)}
    for most in (1, 2, 7, 40):
        row = BayesScore(max_words=most).session().push_many(message(1, counts))[0]
        assert row["spam_probability"] == pytest.approx(wanted(counts, most, 0.4, 0.01), rel=1e-9), most
