"""Lexicon sentiment: scores by hand, and against a naive reference."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import LexiconSentiment
from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import STOP_WORDS, VALENCES
from tests.reference.dspbench.sentiment_analysis import judge

terms = st.lists(st.sampled_from(["a", "B", "ab", "ü", "É", "no-go"]), min_size=1, max_size=3).map(" ".join)
lexicons = st.dictionaries(terms, st.integers(-5, 5), min_size=1, max_size=8)
texts = st.text("abBüÉ -no.g\t'\n\0", max_size=30)


def judged(task, texts):
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.string())}))
    return list(zip(out["sentiment"].to_pylist(), out["score"].to_pylist(), strict=True))


def one_spelling(lexicon):
    return len({term.lower() for term in lexicon}) == len(lexicon)


@given(lexicons.filter(one_spelling), st.lists(texts, max_size=4), st.booleans(), st.booleans())
def test_basic_scores_by_hand(lexicon, texts, phrases, stopped):
    stop = ("ab", "b") if stopped else ()
    task = LexiconSentiment(lexicon=lexicon, phrases=phrases, stop_words=stop)
    assert judged(task, texts) == [judge(text, lexicon, phrases=phrases, stop_words=stop) for text in texts]


@given(lexicons.filter(one_spelling), st.lists(texts, max_size=4), st.booleans())
def test_scores_by_word_counts(lexicon, texts, neutral):
    task = LexiconSentiment(lexicon=lexicon, mode="counts", stop_words=(), neutral=neutral)
    assert judged(task, texts) == [judge(text, lexicon, "counts", neutral=neutral) for text in texts]


def test_longest_phrase_wins_and_the_next_starts_after_it():
    lexicon = {"a": 1, "a b c": 10, "b": 100, "c d": 1000, "d": 10000}
    task = LexiconSentiment(lexicon=lexicon, phrases=True)
    assert judged(task, ["a b c d", "a b d", "a-b'c"]) == [("Positive", 10010), ("Positive", 10101), ("Positive", 10)]
    assert judged(task.replace(phrases=False), ["a b c d"]) == [("Positive", 10101)]


def test_many_words_are_all_found():
    lexicon = {f"w{i}": i for i in range(1, 5000)}
    task = LexiconSentiment(lexicon=lexicon)
    assert [score for _, score in judged(task, [f"W{i} w{i}x" for i in range(1, 5000)])] == list(range(1, 5000))


def test_many_phrases_are_all_found():
    lexicon = {f"w{i} w{j}": 100 * i + j + 1 for i in range(50) for j in range(50)}
    task = LexiconSentiment(lexicon=lexicon, phrases=True)
    assert [score for _, score in judged(task, [*lexicon, "w1", "w1 x"])] == [*lexicon.values(), 0, 0]


def test_packaged_lexicons_give_known_scores(tmp_path):
    assert len(VALENCES) > 90
    assert not set(VALENCES) & set(STOP_WORDS)
    assert judged(LexiconSentiment(), ["a great day", "horrible"]) == [("Positive", 3), ("Negative", -4)]
    counts = LexiconSentiment(mode="counts", lexicon={"the": 1, "bad": -1})
    assert judged(counts, ["the the bad", "", "the"]) == [("Negative", -1), ("Negative", 0), ("Negative", 0)]
    assert judged(counts.replace(stop_words=()), ["the the bad"]) == [("Positive", 1)]
    (tmp_path / "stop.txt").write_text("# none\nbad\n\n")
    stop = counts.replace(stop_words=str(tmp_path / "stop.txt"))
    assert judged(stop, ["the the bad"]) == [("Positive", 2)]


def test_lexicon_is_read_from_a_file(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("\ufeffgood\t1.5\t0.3\t[1, 2]\r\n\r\nbad\t-2\n", encoding="utf-8")
    task = LexiconSentiment(lexicon=str(path))
    assert judged(task, ["good bad", "good"]) == [("Negative", -0.5), ("Positive", 1.5)]
    path.write_text("good\t1\nbad\n")
    with pytest.raises(ConfigError, match="line 2"):
        LexiconSentiment(lexicon=str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        LexiconSentiment(lexicon=str(tmp_path / "none.txt"))
    with pytest.raises(ConfigError, match=r"stop_words.*cannot be read"):
        LexiconSentiment(stop_words=str(tmp_path / "none.txt"))


def test_text_of_other_types_and_none():
    task = LexiconSentiment(lexicon={"gut": 1, "übel": -1})
    for kind in (pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array([b"\xc3\x9cBEL", None, b"Gut"], pa.binary())
        column = column.cast(kind) if not pa.types.is_dictionary(kind) else column.cast(pa.string()).dictionary_encode()
        out = task.session().push_batch(pa.RecordBatch.from_pydict({"text": column}))
        assert out["score"].to_pylist() == [-1, None, 1]
        assert out["sentiment"].to_pylist() == ["Negative", None, "Positive"]
    session = task.session()
    assert session.push({"text": b"\xff"}) == []
    assert session.errors[0]["reason"] == "invalid_utf8"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"mode": "lingpipe"}, "mode"),
        ({"neutral": True}, "neutral"),
        ({"lexicon": {}}, "at least one word"),
        ({"lexicon": {"a": "x"}}, "map words"),
        ({"lexicon": {"a": float("inf")}}, "finite"),
        ({"lexicon": [("a", 1), ("a", 2)]}, "twice"),
        ({"stop_words": ("",)}, "stop_words"),
        ({"stop_words": 7}, "stop_words"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        LexiconSentiment(**parameters)
