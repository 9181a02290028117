"""Steps that are asked about words on Spark, against the same dataflow in process."""

from __future__ import annotations

import json
import random
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.dataflow import merge
from riot_ops.dataflows import spam_filter
from riot_ops.graph.plan import plan
from riot_ops.spark.blocks import blocks_of
from riot_ops.spark.remote_lookup import pack, unpack
from riot_ops.spark.stage import StageProcessor
from riot_ops.testing import ScriptedSource
from tests.search import depth
from tests.staged import Staged

BAG = t.BagOfWords(field="text", keep=("spam",), whole=("id",), coded=True)
texts = st.lists(st.sampled_from(["win", "cash", "we", "é", "x" * 300]), max_size=6).map(" ".join)
mails = st.lists(st.tuples(texts, st.sampled_from([True, False, None])), max_size=6)
#: Runs of messages that are of one kind.
runs = st.lists(
    st.tuples(st.sampled_from([True, False, None, None]), st.lists(texts, min_size=1, max_size=8)), max_size=6
)


def batch(pairs):
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(pairs)), pa.int64()),
            "id": pa.array([f"m{i}" for i in range(len(pairs))], pa.string()),
            "text": pa.array([text for text, _ in pairs], pa.string()),
            "spam": pa.array([spam for _, spam in pairs], pa.bool_()),
        }
    )


def learning(coded=True):
    """Learns from messages and judges others, all of one source."""
    flow = ro.Dataflow("learning")
    source = flow.source("in", schema={"id": "string", "text": "string", "spam": "bool"})
    words = source.to(BAG.replace(coded=coded), id="words").partition_by("word")
    flow.sink("out", words.to(t.CountSpamWords(), id="counts").partition_by("seq").to(t.BayesScore(), id="judged"))
    return flow


class Crossing:
    """What comes to the stages behind each shuffle while a dataflow runs."""

    def __init__(self):
        self.records, self.bytes, self.kinds = {}, {}, set()
        self._process = StageProcessor.process

    def __enter__(self):
        def process(stage, bucket, rows, chain):
            frames = list(rows)
            for block in (block for frame in frames for block in blocks_of(frame)):
                if block.stage in stage._stages:
                    self.records[block.stage] = self.records.get(block.stage, 0) + block.rows
                    self.bytes[block.stage] = self.bytes.get(block.stage, 0) + len(block.payload)
                    self.kinds.add(block.stream[:1])
            return self._process(stage, bucket, iter(frames), chain)

        self._patch = mock.patch.object(StageProcessor, "process", process)
        self._patch.__enter__()
        return self

    def __exit__(self, *of_error):
        self._patch.__exit__(*of_error)


@given(mails, st.booleans(), st.booleans())
def test_texts_are_the_same_behind_their_bytes(pairs, headed, coded):
    bag = BAG.replace(whole=("id",) if headed else None, coded=coded)
    (rows,) = bag.derived(batch(pairs), DeadLetters("bag"))
    again = unpack(pack(rows, Buffering()))
    assert again.whole() == rows.whole()
    assert again.schema == rows.schema
    assert [again.shared(name) for name in again.names] == [rows.shared(name) for name in rows.names]


@given(mails, st.data())
def test_some_texts_are_those_rows_of_the_batch(pairs, data):
    (rows,) = BAG.derived(batch(pairs), DeadLetters("bag"))
    chosen = sorted(data.draw(st.sets(st.integers(0, max(len(pairs) - 1, 0)), max_size=len(pairs))))
    wanted = [row for row in rows.whole().to_pylist() if row["seq"] in chosen]
    assert rows.some(pa.array(chosen, pa.int64()).to_numpy()).whole().to_pylist() == wanted


def scripted(runs):
    """The messages of runs, each three times; each run is a batch by itself."""
    found, script = [], []
    for spam, some in runs:
        start = len(found)
        found += [(text, spam) for text in some for _ in range(3)]
        script.append(batch(found).slice(start))
    return found, ScriptedSource(script or [batch([])])


def matter(table):
    return sorted(
        [{name: value for name, value in row.items() if name != "time"} for row in table.to_pylist()], key=str
    )


@settings(max_examples=depth(10))
@given(runs, st.sampled_from([1, 2, 3]), st.sampled_from([None, 3, 7]), st.booleans())
def test_results_are_those_in_process(runs, partitions, most, coded):
    # questions and what is learned take turns in a micro-batch
    pairs, source = scripted(runs)
    flow = learning(coded)
    wanted = flow.run(pa.table(batch(pairs).to_pydict(), schema=batch(pairs).schema))
    found = Staged(flow, source, random.Random(len(pairs)), max_records=most, partitions=partitions)
    assert matter(found["judged"]) == matter(wanted["judged"])
    assert len(found["errors"]) == len(wanted["errors"])


def test_questions_come_between_what_is_learned():
    runs = [(True, ["win cash"]), (None, ["win we"] * 5), (False, ["win"]), (None, ["win we"] * 5)]
    _, source = scripted(runs)
    with Crossing() as crossing:
        found = Staged(learning(), source, random.Random(1), partitions=2)
    chances = [row["spam_probability"] for row in found["judged"].sort_by("seq").to_pylist()]
    # at first win is in spam alone, then 3 of 6 words of spam against 2 * 3 of 3 words of other messages; we is unknown
    early, late = 0.99 * 0.4 / (0.99 * 0.4 + 0.01 * 0.6), 0.2 * 0.4 / (0.2 * 0.4 + 0.8 * 0.6)
    assert chances == [pytest.approx(early)] * 15 + [pytest.approx(late)] * 15
    assert {"?", "!", "="} <= crossing.kinds
    assert found.batches == 1


def lines(n, **more):
    text = [" ".join(f"w{(i * k) % 40}" for k in range(1, 25)) for i in range(n)]
    payload = [json.dumps({"id": str(i), "message": one, **more}).encode() for i, one in enumerate(text)]
    return pa.table({"event_time": pa.nulls(n, pa.timestamp("us", "UTC")), "payload": payload})


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_words_of_messages_do_not_cross_one_by_one(partitions):
    both = {"training": lines(30, spam=True), "analysis": lines(400)}
    wanted = spam_filter().run(both)["results"]
    sources = {name: ro.MemorySource(table) for name, table in both.items()}
    with Crossing() as crossing:
        found = Staged(spam_filter(), sources, random.Random(partitions), partitions=partitions)
    assert matter(found["results"]) == matter(wanted)
    repeated = 1 + found.repeated  # tasks that ran again were handed theirs again
    assert crossing.records[1] < repeated * 3 * 41 * partitions
    assert crossing.bytes[2] < repeated * (400 * 100 + 5000 * partitions**2)


def test_who_may_be_asked():
    def asked(flow):
        return sorted(plan(flow).asking)

    assert asked(spam_filter()) == ["tokens_analysis", "tokens_training"]
    assert asked(learning()) == ["words"]
    assert asked(spam_filter(keep_table=True)) == []  # another step is handed the words as well
    told = learning()
    told.sink("told", told.stream("counts"))
    assert asked(told) == []  # a sink wants them
    aging = ro.Dataflow("aging")
    words = aging.source(
        "in", schema={"id": "string", "text": "string", "spam": "bool", "event_time": "timestamp[us, tz=UTC]"}
    )
    words = words.to(BAG, id="words").partition_by("word").to(t.CountSpamWords(ttl="1h"), id="counts")
    aging.sink("out", words.partition_by("seq").to(t.BayesScore(), id="judged"))
    assert asked(aging) == []  # what it knows depends on the time
    for merging, wanted in (("sequence", ["a", "b"]), ("number", []), ("arrival", [])):
        flow = ro.Dataflow("two", merging=merging)
        read = [flow.source(f"in_{name}", schema={"id": "string", "text": "string", "spam": "bool"}) for name in "ab"]
        bags = [source.to(BAG, id=name) for name, source in zip("ab", read, strict=True)]
        counts = merge(*bags).partition_by("word").to(t.CountSpamWords(), id="counts")
        flow.sink("out", counts.partition_by("seq").to(t.BayesScore(), id="judged"))
        assert asked(flow) == wanted  # else what is learned of one has numbers among those of the other


def test_few_messages_cross_as_they_are():
    with Crossing() as crossing:
        Staged(learning(), ro.MemorySource(batch([("win we", None)])), random.Random(1), partitions=3)
    assert not {"?", "!", "="} & crossing.kinds
