"""Bags of words, against a Counter."""

from __future__ import annotations

import re
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BagOfWords

#: Words about as long as one comparison step, which differ only in one end.
ends = st.sampled_from(["a" * n + end for n in (1, 7, 8, 9, 15, 16, 61, 62, 63, 64, 65, 130) for end in ("", "b", "B")])
long_texts = st.lists(ends | st.sampled_from([" ", "é", ", "]), max_size=12).map(" ".join)
texts = st.lists(st.one_of(st.none(), st.text("abA9_ -éÉ\0", max_size=20), long_texts), max_size=5)


@given(texts, st.booleans())
def test_words_equal_a_counter(texts, lowercase):
    batch = pa.RecordBatch.from_pydict({"seq": range(len(texts)), "text": pa.array(texts, pa.string())})
    out = BagOfWords(field="text", lowercase=lowercase, whole=("text",)).session().push_batch(batch)
    wanted = []
    for seq, text in enumerate(texts):
        if text is None:
            continue
        words = Counter(re.findall("[A-Za-z0-9_]+", text))
        if lowercase:
            words = Counter(word.lower() for word in re.findall("[A-Za-z0-9_]+", text))
        wanted.append((seq, 0, text, None, words.total(), len(words)))
        wanted += [(seq, i, None, word, n, len(words)) for i, (word, n) in enumerate(words.items(), 1)]
    names = ("seq", "ordinal", "text", "word", "count", "n_words")
    assert [tuple(row[name] for name in names) for row in out.to_pylist()] == wanted
    plain = BagOfWords(field="text", lowercase=lowercase).session().push_batch(batch)
    assert plain["word"].to_pylist() == [row[3] for row in wanted if row[3] is not None]
    assert plain["ordinal"].to_pylist() == [row[1] - 1 for row in wanted if row[3] is not None]
    numbered = BagOfWords(field="text", lowercase=lowercase, whole=("text",), coded=True).session().push_batch(batch)
    assert numbered.to_pylist() == out.to_pylist()


def test_many_words_and_long_ones():
    words = [f"w{i}" for i in range(3000)] + ["x" * 1000, "x" * 999 + "y"]
    out = BagOfWords(field="text").session().push_batch(pa.table({"text": [" ".join(words * 2), "w1 w1"]}))
    assert out["word"].to_pylist() == [*words, "w1"]
    assert set(out["count"].to_pylist()) == {2}


def test_table_grows_with_the_words():
    lines = [" ".join(f"word{i * j % 12_000}" for j in range(1, 120)) for i in range(1, 400)]
    out = BagOfWords(field="text").session().push_batch(pa.table({"text": lines}))
    wanted = [pair for line in lines for pair in Counter(line.split()).items()]
    assert len({word for word, _ in wanted}) > 8_192
    assert list(zip(out["word"].to_pylist(), out["count"].to_pylist(), strict=True)) == wanted


def test_dictionary_encoded_words():
    bag = BagOfWords(field="text", coded=True).session()
    words = bag.push_batch(pa.table({"text": ["a b a", "b c"]}))["word"]
    assert (words.to_pylist(), words.dictionary.to_pylist()) == (["a", "b", "b", "c"], ["a", "b", "c"])
    assert pa.types.is_string(BagOfWords(field="text").session().push_batch(pa.table({"text": ["a"]}))["word"].type)


def test_fields_of_the_record():
    bag = BagOfWords(field="text", keep=("flag",), whole=("id",), output="w", count="n", different="m").session()
    rows = bag.push({"text": "a b a", "flag": True, "id": "x"})
    assert [(r["w"], r["n"], r["m"], r["flag"], r["id"]) for r in rows] == [
        (None, 3, 2, True, "x"),
        ("a", 2, 2, True, None),
        ("b", 1, 2, True, None),
    ]
    assert bag.push({"text": b"\xff", "flag": True, "id": "y"}) == []
    assert bag.errors[0]["reason"] == "invalid_utf8"


@pytest.mark.parametrize(
    "parameters", [{"keep": ("word",)}, {"whole": ("count",)}, {"keep": ("a",), "whole": ("a",)}], ids=str
)
def test_misuse_is_refused(parameters):
    with pytest.raises(ConfigError, match="twice"):
        BagOfWords(**parameters)
