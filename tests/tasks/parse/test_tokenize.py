"""Tokens of text, against Python's regular expressions."""

from __future__ import annotations

import random
import re
import string

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.arrow import byte_spans
from riot_ops.kernels.text.tokens import split_tokens
from riot_ops.tasks.parse import tokenize

PUNCTUATION = re.escape(string.punctuation)
#: The definition of a token for each split, with and without unicode.
DEFINED = {
    ("words", False): re.compile(r"[A-Za-z0-9_]+"),
    ("words", True): re.compile(r"\w+"),
    ("spaces", False): re.compile(r"[^ \t\n\r\x0b\x0c]+"),
    ("spaces", True): re.compile(r"[^\s]+"),
    ("punctuation", False): re.compile(rf"[^ \t\n\r\x0b\x0c{PUNCTUATION}]+"),
    ("punctuation", True): re.compile(rf"[^\s{PUNCTUATION}]+"),
}
ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

texts = st.one_of(st.none(), st.text("abZ09_#'-, .\t\n\0üÉ\u00a0Ⅷİ", max_size=30), st.text(max_size=12))


def defined(text, *, split="words", unicode=False, lowercase=False, prefix=None, trim=False):
    found = [] if text is None else DEFINED[split, unicode].findall(text)
    found = [w for w in found if prefix is None or w.startswith(prefix)]
    if trim:
        n = len(prefix or "")
        found = [w[:n] + w[n:].strip(string.punctuation) for w in found if w[n:].strip(string.punctuation)]
    if lowercase:
        found = [w.lower() if unicode else w.translate(ASCII_LOWER) for w in found]
    return found


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("split", ["words", "spaces", "punctuation"])
@given(
    st.lists(texts, max_size=12),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "a", "Z"]),
    st.booleans(),
    st.booleans(),
)
def test_tokens_equal_the_definition(kind, split, column, unicode, lowercase, prefix, trim, coded):
    how = {"split": split, "unicode": unicode, "lowercase": lowercase, "prefix": prefix, "trim": trim}
    task = t.Tokenize(field="text", coded=coded, **how)
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([3 * i for i in range(len(column))], pa.int64()),
            "text": pa.array(column, pa.string()).cast(kind),
        }
    )
    made = task.session().push_batch(batch)
    wanted = [
        {"seq": 3 * i, "word": word, "ordinal": place}
        for i, text in enumerate(column)
        for place, word in enumerate(defined(text, **how))
    ]
    assert made.to_pylist() == wanted
    assert made.schema.names == ["seq", "word", "ordinal"]
    assert made.schema.field("word").type == (pa.dictionary(pa.int32(), pa.string()) if coded else pa.string())
    if coded:
        assert made["word"].dictionary.to_pylist() == list(dict.fromkeys(row["word"] for row in wanted))


@pytest.mark.parametrize("prefix", [None, "#"])
def test_many_distinct_and_long_tokens(prefix):
    """More texts and tokens than the first buffers hold; some share a long prefix."""
    rng = random.Random(7)
    words = [f"#{'x' * rng.choice([0, 0, 5, 7, 8, 40, 200])}{rng.randrange(6000)}" for _ in range(9000)]
    column = [" ".join(words[i : i + n]) for i, n in zip(range(0, 9000, 90), [90, 30, 0, 90, 1] * 20, strict=True)]
    batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(len(column)), pa.int64()), "text": column})
    plain, coded = (
        t.Tokenize(field="text", split="spaces", prefix=prefix, coded=coded).session().push_batch(batch)
        for coded in (False, True)
    )
    assert coded.to_pylist() == plain.to_pylist()
    assert plain["word"].to_pylist() == [word for text in column for word in text.split()]


@given(st.lists(st.one_of(st.none(), st.text("aB \t", min_size=50, max_size=200)), max_size=5), st.booleans())
def test_tokens_may_cross_blocks_of_64_bytes(column, trim):
    made = (
        t.Tokenize(field="text", split="spaces", trim=trim)
        .session()
        .push_batch(pa.RecordBatch.from_pydict({"text": pa.array(column, pa.string())}))
    )
    assert made["word"].to_pylist() == [word for text in column for word in defined(text, split="spaces", trim=trim)]


def test_codes_of_distinct_tokens_take_no_more_memory_than_the_text():
    text = [" ".join(f"word{i * 8 + j}" for j in range(8)) for i in range(20_000)]
    data, starts, ends, valid = byte_spans(pa.array(text))
    found = split_tokens(data, starts, ends, valid, t.Tokenize(split="spaces").byte_map, coded=True)
    assert found.offsets.size == 160_001
    assert found.rows.base is not None and found.rows.base.size <= data.size


def test_examples_by_hand():
    assert words("naïve Café_1, x-y") == ["na", "ve", "Caf", "_1", "x", "y"]
    assert words("naïve Café_1, x-y", unicode=True) == ["naïve", "Café_1", "x", "y"]
    assert words("It's #Warm! ÜBER", split="spaces", lowercase=True) == ["it's", "#warm!", "Über"]
    assert words("It's #Warm! ÜBER", split="punctuation", lowercase=True, unicode=True) == ["it", "s", "warm", "über"]
    assert words("a #b ##c #", split="spaces", prefix="#") == ["#b", "##c", "#"]
    assert words("") == words("  \n") == words(None) == []


def words(text, **options):
    return [row["word"] for row in t.Tokenize(field="text", **options).session().push({"text": text})]


def test_tokens_keep_the_named_fields():
    row = {"seq": 4, "ordinal": 2, "event_time": None, "id": "x", "lang": "en", "text": "so it goes"}
    made = t.Tokenize(field="text", output="topic", keep=("lang", "id")).session().push(row)
    assert made[1] == {
        "seq": 4,
        "ordinal": 2,
        "event_time": None,
        "lang": "en",
        "id": "x",
        "topic": "it",
        "ordinal_2": 1,
    }
    # the output may replace the text
    assert t.Tokenize(field="text", output="text").session().push({"text": "a b"}) == [
        {"text": "a", "ordinal": 0},
        {"text": "b", "ordinal": 1},
    ]


def test_non_utf8_binary_is_rejected():
    session = t.Tokenize().session()
    assert [
        r["word"]
        for r in session.push_batch(
            pa.RecordBatch.from_pydict({"payload": [b"a b", b"c \xff", "ü d".encode()]})
        ).to_pylist()
    ] == ["a", "b", "d"]
    assert [(e["reason"], e["message"]) for e in session.errors] == [("invalid_utf8", "payload is not UTF-8")]


@pytest.mark.parametrize("coded", [False, True])
def test_large_batches_are_split_into_chunks(monkeypatch, coded):
    monkeypatch.setattr(tokenize, "text_chunk_ranges", lambda texts: [(i, i + 1) for i in range(len(texts))])
    flow = ro.Dataflow("pieces", ordinals=True)
    flow.sink("out", flow.source("in", schema={"text": "string"}).to(t.Tokenize(field="text", coded=coded), id="words"))
    found = flow.run([{"text": "a b"}, {"text": None}, {"text": "c"}])["words"]
    assert found.select(["seq", "word", "ordinal"]).to_pylist() == [
        {"seq": 0, "word": "a", "ordinal": 0},
        {"seq": 0, "word": "b", "ordinal": 1},
        {"seq": 2, "word": "c", "ordinal": 0},
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"split": "lines"}, "split"),
        ({"prefix": "#"}, "prefix"),
        ({"split": "spaces", "prefix": "##"}, "prefix"),
        ({"split": "spaces", "prefix": "ü"}, "prefix"),
        ({"split": "spaces", "prefix": " "}, "prefix"),
        ({"split": "spaces", "prefix": ""}, "prefix"),
        ({"keep": ("word",)}, "keep"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        t.Tokenize(**options)


def test_tokens_of_another_encoding():
    lines = ["café Ünï".encode("latin-1"), b"tea", None, b"\x81 x", "€".encode("cp1252")]
    for coded in (False, True):
        session = t.Tokenize(encoding="cp1252", unicode=True, coded=coded, keep=("key",)).session()
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(5), pa.int64()), "payload": pa.array(lines, pa.binary()), "key": [*"abcde"]}
        )
        rows = session.push_batch(batch).to_pylist()
        assert [(row["seq"], row["key"], row["word"]) for row in rows] == [
            (0, "a", "café"), (0, "a", "Ünï"), (1, "b", "tea")
        ]  # fmt: skip
        assert [(e["seq"], e["reason"], e["message"]) for e in session.errors] == [
            (3, "invalid_encoding", "payload is not cp1252")
        ]
    assert [row["word"] for row in t.Tokenize(encoding="ascii", unicode=True).session().push({"payload": "é"})] == ["é"]
    with pytest.raises(ConfigError, match=r"encoding must be one of text .* got 'utf-9'"):
        t.Tokenize(encoding="utf-9")


@pytest.mark.parametrize("split", ["words", "spaces", "punctuation"])
@given(
    st.lists(
        st.text(st.sampled_from([*map(chr, range(128)), "é", "\x85", "\u2028"]), max_size=8), min_size=1, max_size=6
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "a", "#"]),
)
def test_tokens_do_not_depend_on_other_texts(split, texts, lowercase, trim, prefix):
    if prefix == "#" and split != "spaces":
        prefix = None
    task = t.Tokenize(split=split, unicode=True, lowercase=lowercase, trim=trim, prefix=prefix)
    rows = [{"seq": i, "payload": text} for i, text in enumerate([*texts, "é"])]
    together = [(row["seq"], row["ordinal"], row["word"]) for row in task.session().push_many(rows)]
    alone = [(row["seq"], row["ordinal"], row["word"]) for one in rows for row in task.session().push(one)]
    assert together == alone


def test_unicode_white_space_among_ascii_separates_tokens():
    for more in ((), ({"payload": "é"},)):
        for split in ("spaces", "punctuation"):
            session = t.Tokenize(split=split, unicode=True).session()
            words = [row["word"] for row in session.push_many([{"payload": "a\x1fb\x1cc\x1dd\x1ee"}, *more])]
            assert words[:5] == ["a", "b", "c", "d", "e"]
    assert [row["word"] for row in t.Tokenize(split="spaces").session().push({"payload": "a\x1fb c"})] == [
        "a\x1fb",
        "c",
    ]
    with pytest.raises(ConfigError, match="prefix"):
        t.Tokenize(split="spaces", unicode=True, prefix="\x1f")
