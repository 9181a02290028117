"""Sentiment analysis, against a naive reference and the figures of the specification."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.dataflows import sentiment_analysis
from riot_ops.streams import replay
from tests.reference.dspbench.sentiment_analysis import sentiment_analysis as reference
from tests.samples import expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

TWEETS, AFINN = "dspbench/synthetic/tweets.jsonl", "dspbench/AFINN-111.txt"
LEXICON = {"good": 3.0, "bad": -2.5, "not good": -1.0, "can't": -1.0, "no": -1.0, "naïve": -2.0}
TIME = "2020-11-20T04:30:00.097Z"

words = st.sampled_from(["good", "BAD", "not", "can't", "no", "Naïve", "the", "x!", "good,bad", "\n", "not-good"])
tweets = st.builds(
    lambda text, lang, at, wrapped: json.dumps(wrapped({"id": "1", "created_at": at, "text": text, **lang})),
    st.lists(words, max_size=8).map(" ".join),
    st.sampled_from([{}, {"lang": None}, {"lang": "en"}, {"lang": "pt"}]),
    st.sampled_from([TIME, "Fri Nov 20 04:30:00 +0000 2020"]),
    st.sampled_from(
        [
            lambda tweet: tweet,
            lambda tweet: {"data": tweet},
            lambda tweet: {"id": "2", "text": "bad", "lang": "pt", "data": tweet},
            lambda tweet: {**tweet, "data": None},
        ]
    ),
)
dirt = st.sampled_from(
    ["", "no json", "[]", '{"id": "3"}', '{"id": "3", "text": "good", "created_at": "yesterday"}',
     f'{{"id": "3", "text": 123, "created_at": "{TIME}"}}', f'{{"id": "3", "text": true, "created_at": "{TIME}"}}',
     f'{{"id": "3", "text": ["good"], "created_at": "{TIME}"}}', f'{{"id": "3", "text": null, "created_at": "{TIME}"}}',
     f'{{"id": "3", "text": "good", "lang": 7, "created_at": "{TIME}"}}',
     f'{{"data": {{"id": "3", "text": "good"}}, "created_at": "{TIME}"}}',
     f'{{"data": {{}}, "id": "3", "text": "good", "created_at": "{TIME}"}}',
     f'{{"data": [], "id": "3", "text": "good", "created_at": "{TIME}"}}']
)  # fmt: skip
lines = st.lists(tweets | dirt, max_size=10)


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(rows):
    return [(r["seq"], r["id"], r["sentiment"], r["score"]) for r in rows.sort_by("seq").to_pylist()]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.txt"
    path.write_text("".join(f"{term}\t{value}\n" for term, value in LEXICON.items()), encoding="utf-8")
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"phrases": True, "languages": None},
        {"mode": "counts", "stop_words": ("no",), "languages": ("en", "pt"), "keep_unknown": False},
        {"mode": "counts", "neutral": True, "stop_words": ("the",), "phrases": True},
    ],
    ids=["basic", "phrases", "counts", "neutral"],
)
@settings(max_examples=depth(25))
@given(lines=lines, batch_size=st.integers(1, 5))
def test_results_equal_the_reference(stored, options, lines, batch_size):
    wanted = [row for row in reference(lines, LEXICON, **options) if "yesterday" not in lines[row[0]]]
    flow = sentiment_analysis(lexicon=stored, **options)
    assert found(flow.run(table(lines), batch_size=batch_size)["sentiment"]) == wanted
    staged = SimulatedQuery(flow, ro.MemorySource(table(lines)), random.Random(len(lines)), max_records=batch_size)
    assert found(staged["sentiment"]) == wanted


@pytest.mark.parametrize(
    ("options", "papers", "made"),
    [
        ({}, (208, 161, 157, 377), (40, 26, 25, 69)),
        ({"languages": None}, (243, 183, 174, None), (46, 28, 26, 85)),
    ],
    ids=["english", "all"],
)
def test_figures_of_the_specification(sample_data, options, papers, made):
    *labels, score = expected(sample_data, made=made, papers=papers)
    result = sentiment_analysis(lexicon=str(sample_data / AFINN), **options).run(replay(sample_data / TWEETS))
    rows = result["sentiment"]
    assert Counter(rows["sentiment"].to_pylist()) == dict(zip(("Positive", "Negative", "Neutral"), labels, strict=True))
    assert score is None or sum(rows["score"].to_pylist()) == score
    assert sorted(result["errors"]["reason"].to_pylist()) == ["missing", "not_json", "not_json"]
    assert f"{rows['event_time'][0].as_py():%Y-%m-%dT%H:%M:%S.%f}" == expected(
        sample_data, made="2020-11-20T04:30:00.000000", papers="2020-11-20T04:30:00.097000"
    )


@pytest.mark.parametrize(
    ("text", "papers", "made"),
    [
        ("I am happy and love this great phone", 9, 10),
        ("This is a terrible, awful waste of money!", -7, -8),
        ("can't stand it", 0, 0),
        ("not good", 3, 2),
    ],
)
def test_sentences_of_the_specification(sample_data, text, papers, made):
    line = json.dumps({"id": "1", "created_at": TIME, "text": text})
    flow = sentiment_analysis(lexicon=str(sample_data / AFINN))
    assert flow.run(table([line]))["sentiment"]["score"].to_pylist() == [
        expected(sample_data, made=made, papers=papers)
    ]


def test_default_lexicon_is_packaged():
    texts = ["What a lovely, great day", "nothing but failed sensors", "on the road"]
    lines = [json.dumps({"id": "1", "created_at": TIME, "text": text}) for text in texts]
    assert sentiment_analysis().run(table(lines))["sentiment"]["sentiment"].to_pylist() == [
        "Positive",
        "Negative",
        "Neutral",
    ]


def test_tweets_of_both_versions_of_the_api_are_read():
    first = {"created_at": "Wed Oct 10 20:19:24 +0000 2018", "id": 1050118621198921728, "id_str": "1050118621198921728",
             "text": "What a great day!", "user": {"id": 6253282, "lang": "en"}, "lang": "en"}  # fmt: skip
    second = {"data": {"id": "7", "text": "What a great day!", "created_at": "2018-10-10T20:19:24.000Z"}}
    rows = sentiment_analysis().run(table([json.dumps(first), json.dumps(second)]))["sentiment"].to_pylist()
    assert [(r["id"], r["lang"], r["score"]) for r in rows] == [("1050118621198921728", "en", 3.0), ("7", None, 3.0)]
    assert {f"{r['event_time']:%Y-%m-%d %H:%M:%S}" for r in rows} == {"2018-10-10 20:19:24"}
