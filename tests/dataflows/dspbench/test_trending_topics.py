"""Trending topics, against a naive reference and the figures of the specification."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import trending_topics
from riot_ops.streams import replay
from tests.dataflows.dspbench.line_messages import messages, restarted
from tests.reference.dspbench.trending_topics import trending_topics as reference
from tests.samples import expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

TWEETS = "dspbench/synthetic/tweets.jsonl"
NOON = datetime(2020, 11, 20, 12, tzinfo=UTC)


def tweet(tenths, text):
    time = NOON + timedelta(milliseconds=100 * tenths)
    whole = {"id": "7", "created_at": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z", "text": text}
    return json.dumps({"data": whole} if tenths % 2 else whole)


def clock(steps):
    """Generate tweets with mostly increasing times, ties, jumps back and gaps."""
    at, lines = 0, []
    for step, text in steps:
        at = max(0, at + step)
        lines.append(text if text in BAD else tweet(at, text))
    return lines


BAD = ("", "{", '{"id": "7", "text": "#a"}', '{"id": "7", "text": "#a", "created_at": "noon"}',
       '{"id": "7", "text": 123, "created_at": "2020-11-20T04:30:00Z"}',
       '{"data": {"id": "7", "text": "#a"}, "created_at": "2020-11-20T04:30:00Z"}')  # fmt: skip
tags = st.lists(st.sampled_from(["#a", "#b", "#B!", "#c,", "#", "x", "#(ü)", "a#b"]), max_size=4).map(" ".join)
step = st.sampled_from([0, 0, 1, 3, 7, 20, 21, -15, 60, 300])
lines = st.lists(st.tuples(step, tags | st.sampled_from(BAD)), max_size=20).map(clock)


def found(table):
    order = sorted((r["tick_time"], r["rank"], r["topic"], r["count"]) for r in table.to_pylist())
    return [(round(tick.timestamp() * 1e6), *rest) for tick, *rest in order]


@given(
    texts=lines, batch_size=st.integers(1, 7), rankers=st.integers(1, 3), normalise=st.booleans(), partial=st.booleans()
)
def test_results_equal_the_reference(texts, batch_size, rankers, normalise, partial):
    flow = trending_topics(k=2, rankers=rankers, normalise=normalise, partial=partial)
    result = flow.run(messages(texts), batch_size=batch_size)
    wanted, wrong = reference(texts, k=2, normalise=normalise, partial=partial)
    assert found(result["rankings"]) == wanted
    assert sorted(result["errors"]["seq"].to_pylist()) == wrong


@pytest.mark.long
@settings(max_examples=depth(12))
@given(texts=lines.filter(any), seed=st.integers(0, 1 << 32))
def test_staged_results_are_equal(texts, seed):
    choose = random.Random(seed)
    source = ro.MemorySource(messages(texts))
    staged = SimulatedQuery(trending_topics(k=3), source, choose, max_records=5, partitions=choose.choice([1, 3]))
    assert found(staged["rankings"]) == reference(texts, k=3)[0]


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"window": "4s"}, {"window": 4_000_000}),
        ({"every": timedelta(seconds=3)}, {"every": 3_000_000}),
        ({"window": "3s"}, {"window": 3_000_000}),
        ({"k": 1}, {"k": 1}),
        ({"normalise": True}, {"normalise": True}),
        ({"partial": False}, {"partial": False}),
    ],
    ids=str,
)
def test_options_reach_the_dataflow(options, same):
    texts = [tweet(7 * i, text) for i, text in enumerate(["#a #b", "#A! #b", "#c", "#a", "", "#b #b", "#c"] * 3)]
    result = found(trending_topics(**options).run(messages(texts))["rankings"])
    assert result == reference(texts, **same)[0]
    assert result != reference(texts)[0]


@pytest.mark.parametrize("staged", [False, True])
def test_tweets_of_the_specification(sample_data, staged):
    def run(flow):
        source = replay(sample_data / TWEETS)
        return SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source)

    whole = run(trending_topics(window="2h", every="1h"))
    counts = expected(
        sample_data,
        made="spark 39 storm 25 iot 14 flink 11 stream 8 python 6 sports 5 traffic 5 weather 4 energy 2",
        papers="spark 120 storm 114 iot 94 flink 88 python 67 stream 64 energy 47 traffic 43 weather 34 news 13",
    ).split()
    assert [row[1:] for row in found(whole["rankings"])] == [
        (rank, f"#{topic}", int(n)) for rank, (topic, n) in enumerate(zip(counts[::2], counts[1::2], strict=True), 1)
    ]
    assert whole["errors"].num_rows == 3
    texts = (sample_data / TWEETS).read_text().split("\n")
    assert found(run(trending_topics())["rankings"]) == reference(texts)[0]


def test_restarted_run_continues(tmp_path):
    texts = [tweet(11 * i, f"#a #{i % 3}") for i in range(20)]
    result = restarted(trending_topics(partial=False), texts, 9, tmp_path)
    assert found(result["rankings"]) == reference(texts, partial=False)[0]


def test_tweets_without_tags_advance_time():
    texts = [tweet(0, "#a"), tweet(20, "nothing")]
    ranked = [
        (round(tick - NOON.timestamp() * 1e6), n)
        for tick, _, _, n in found(trending_topics().run(messages(texts))["rankings"])
    ]
    assert ranked == [(2_000_000, 1), (4_000_000, 1)]


def test_misuse_is_refused():
    for options, error_text in (
        ({"window": "1s"}, "at most window"),
        ({"k": 0}, "k"),
        ({"rankers": 0}, "rankers = 0"),
        ({"every": "0s"}, "every"),
    ):
        with pytest.raises(ConfigError, match=error_text):
            trending_topics(**options)
