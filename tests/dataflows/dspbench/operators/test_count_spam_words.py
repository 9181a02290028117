"""Counts of words in spam and elsewhere, and their table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import CountSpamWords
from riot_ops.models import WordTable

ROWS = [("win", 2, True), (None, 5, True), ("win", 1, None), ("we", 4, False), ("win", 3, False), ("we", 9, None)]


def rows(*triples):
    return [{"word": word, "count": n, "spam": spam} for word, n, spam in triples]


def both(found):
    return [(row["word"], row["count_bad"], row["count_good"]) for row in found]


def test_counts_so_far():
    session = CountSpamWords().session()
    assert both(session.push_many(rows(*ROWS, (None, 1, None)))) == [("win", 2, 0), ("we", 0, 4), (None, 5, 0)]


def test_counts_at_the_end():
    session = CountSpamWords(emit="final").session()
    assert session.push_many(rows(*ROWS)) == []
    assert sorted(both(session.flush()), key=str) == sorted([("win", 2, 3), (None, 5, 0), ("we", 0, 4)], key=str)


def test_dictionary_encoded_words_are_equal():
    batches = [pa.RecordBatch.from_pylist(rows(*part)) for part in (ROWS[:3], ROWS[3:], (("new", 1, None), *ROWS))]
    for emit in ("each", "final"):
        plain, numbered = CountSpamWords(emit=emit).session(), CountSpamWords(emit=emit).session()
        for batch in batches:
            codes = batch.column("word").dictionary_encode()
            out = numbered.push_batch(batch.set_column(0, "word", codes))
            assert out.to_pylist() == plain.push_batch(batch).to_pylist()
            assert numbered.snapshot() == plain.snapshot()
        assert numbered.flush() == plain.flush()


def test_other_fields():
    session = CountSpamWords(by="w", flag="bad", count="n").session()
    assert session.push({"w": "a", "n": 3, "bad": True}) == []
    assert session.push({"w": "a", "n": 3, "bad": None})[0]["count_bad"] == 3


def test_counts_of_two_states_merge():
    here, there = CountSpamWords().session(), CountSpamWords().session()
    here.push_many(rows(*ROWS))
    there.push_many(rows(("win", 7, True), ("new", 1, False)))
    here.merge(there.snapshot())
    assert both(here.push_many(rows(("win", 1, None), ("new", 1, None)))) == [("win", 9, 3), ("new", 0, 1)]


def test_initial_table(tmp_path):
    path = tmp_path / "words.json"
    WordTable({"win": (7, 1), "ü": (0, 2)}, 70, 30).save(str(path))
    session = CountSpamWords(table=str(path)).session()
    records = rows(
        ("win", 1, None), ("win", 2, True), ("win", 1, None), (None, 2, True), (None, 1, None), ("x", 1, None)
    )
    assert both(session.push_many(records)) == [("win", 7, 1), ("win", 9, 1), (None, 72, 30), ("x", 0, 0)]


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        ("{", "words.json"),
        ("[]", "JSON object"),
        ('{"words": {"a": 1}, "spam_total": 1, "ham_total": 1}', "must be an object"),
        ('{"words": {"a": {"count_bad": 1}}, "spam_total": 1, "ham_total": 1}', "count_good of the word 'a'"),
        ('{"words": {}, "spam_total": -1, "ham_total": 1}', "spam_total must be"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, text, error_text):
    (tmp_path / "words.json").write_text(text)
    with pytest.raises(ConfigError, match=error_text):
        CountSpamWords(table=str(tmp_path / "words.json"))


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="by"):
        CountSpamWords(by=("a", "b"))
    with pytest.raises(ConfigError, match="needs booleans"):
        CountSpamWords().session().push({"word": "a", "count": 1, "spam": "yes"})
