"""Running counts, against a dict."""

from __future__ import annotations

import operator
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BoundedCount
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def counted(words):
    seen = Counter()
    for word in words:
        seen[word] += 1
        yield seen[word]


@given(st.lists(st.sampled_from(["a", "b", "ü", "", None]), max_size=40), st.integers(1, 9))
def test_every_record_has_the_count_so_far(words, batch_size):
    flow = ro.Dataflow("count")
    source = flow.source("in", schema={"word": "string"})
    flow.sink("out", source.to(t.RunningCount(by="word", output="times"), id="n"))
    table = flow.run([{"word": word} for word in words], batch_size=batch_size)["n"]
    assert table.to_pylist() == [
        {"seq": i, "word": word, "times": n} for i, (word, n) in enumerate(zip(words, counted(words), strict=True))
    ]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=9), max_size=5))
def test_updates_are_the_last_of_each_key_in_a_batch(batches):
    each, update = t.RunningCount(by="word").session(), t.RunningCount(by="word", emit="update").session()
    for words in batches:
        batch = pa.RecordBatch.from_pydict({"word": pa.array(words, pa.string())})
        every = each.push_batch(batch).to_pylist()
        last = [row for i, row in enumerate(every) if row["word"] not in [other["word"] for other in every[i + 1 :]]]
        assert update.push_batch(batch).to_pylist() == last


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        t.RunningCount(by="word", output="n", emit="update"),
        t.RunningTotals(by="word", totals={"n": None}, emit="update"),
        BoundedCount(field="word", output="n", emit="update"),
    ],
    ids=["count", "totals", "bounded"],
)
@given(
    words=st.lists(st.sampled_from(["a", "b", "c"]), max_size=30),
    most=st.integers(1, 12),
    partitions=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_spark_emits_one_update_per_key_and_micro_batch(task, words, most, partitions, seed):
    flow = ro.Dataflow("count")
    source = flow.source("in", schema={"word": "string"})
    flow.sink("out", source.to(task, id="n"))
    result = SimulatedQuery(
        flow, [{"word": w} for w in words], random.Random(seed), max_records=most, partitions=partitions
    )
    wanted = []
    for i, (word, n) in enumerate(zip(words, counted(words), strict=True)):
        if word not in words[i + 1 : (i // most + 1) * most]:
            wanted.append({"seq": i, "word": word, "n": n})
    assert sorted(result["n"].to_pylist(), key=lambda row: row["seq"]) == wanted


@pytest.mark.parametrize(
    ("task", "besides", "wanted"),
    [
        (t.RunningCount(by="word", emit="update"), None, 4),
        (t.RunningCount(by="word"), None, 8),
        (t.RunningCount(by="word", emit="update", ttl="1min"), None, 8),
        (t.RunningCount(by="word", emit="update"), t.RunningCount(by="word", output="n"), 8),
        (
            t.RunningCount(by="word", emit="update", output="count"),
            t.RunningCount(by="word", output="n", emit="update"),
            8,
        ),
    ],
    ids=["update", "each", "ttl", "beside each", "beside update"],
)
def test_shuffle_carries_one_record_per_key(task, besides, wanted, monkeypatch):
    """Two micro-batches of four words, each with two distinct ones."""
    crossed = []
    update = t.RunningCount.update

    def noted(self, batch, *rest):
        if self == task:
            crossed.append(batch.num_rows)
        return update(self, batch, *rest)

    monkeypatch.setattr(t.RunningCount, "update", noted)
    flow = ro.Dataflow("count")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "word": "string"})
    flow.sink("out", source.to(task, id="n"))
    if besides is not None:
        flow.sink("besides", source.to(besides, id="m"))
    words = ["a", "b", "a", "a", "b", "b", None, "b"]
    rows = [{"word": w, "event_time": NOON} for w in words]

    calm = SimpleNamespace(shuffle=lambda _: None, random=lambda: 1.0, choice=operator.itemgetter(-1))
    result = SimulatedQuery(flow, rows, calm, max_records=4, partitions=1)
    assert sum(crossed) == wanted
    last = {row["word"]: row["count"] for row in sorted(result["n"].to_pylist(), key=lambda row: row["seq"])}
    assert last == {"a": 3, "b": 4, None: 1}


def test_keys_several_none_and_an_old_field():
    rows = [{"a": 1, "b": "x", "n": "old"}, {"a": 1, "b": "y", "n": "old"}, {"a": 1, "b": "x", "n": "old"}]
    pairs = t.RunningCount(by=("a", "b"), output="n").session()
    assert [row["n"] for row in pairs.push_many(rows)] == [1, 1, 2]
    assert [*pairs.push(rows[0])[0]] == ["a", "b", "n"]
    assert [row["count"] for row in t.RunningCount().session().push_many(rows)] == [1, 2, 3]


def test_idle_key_starts_again_after_its_ttl():
    session = t.RunningCount(by="word", ttl="1min").session()
    times = (0, 30, 90, 151)
    rows = [{"event_time": NOON + timedelta(seconds=s), "word": "a"} for s in times]
    assert [row["count"] for row in session.push_many(rows)] == [1, 2, 3, 1]


def test_counts_of_two_states_merge():
    here, there = (t.RunningCount(by="word").session() for _ in range(2))
    here.push_many([{"word": "a"}, {"word": "b"}])
    there.push_many([{"word": "b"}, {"word": "c"}, {"word": "b"}])
    here.merge(there.snapshot())
    assert [here.push({"word": word})[0]["count"] for word in "abc"] == [2, 4, 2]


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="emit"):
        t.RunningCount(emit="last")
    with pytest.raises(ConfigError, match="word"):
        t.RunningCount(by="word").session().push({"wort": "a"})
