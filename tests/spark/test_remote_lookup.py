"""Remote lookups of words on Spark, compared with local runs."""

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
from riot_ops.spark.blocks import read_blocks
from riot_ops.spark.remote_lookup import decode_rows, encode_rows
from riot_ops.spark.stage import StageProcessor
from riot_ops.testing import ScriptedSource
from tests.search import depth
from tests.simulated_query import SimulatedQuery

BAG = t.BagOfWords(field="text", keep=("spam",), whole=("id",), coded=True)
texts = st.lists(st.sampled_from(["win", "cash", "we", "é", "x" * 300]), max_size=6).map(" ".join)
mails = st.lists(st.tuples(texts, st.sampled_from([True, False, None])), max_size=6)
#: Runs of messages with the same label.
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
    """Return a dataflow that learns from messages and judges others, all of one source."""
    flow = ro.Dataflow("learning")
    source = flow.source("in", schema={"id": "string", "text": "string", "spam": "bool"})
    words = source.to(BAG.replace(coded=coded), id="words").partition_by("word")
    flow.sink("out", words.to(t.CountSpamWords(), id="counts").partition_by("seq").to(t.BayesScore(), id="judged"))
    return flow


class Crossing:
    """Counts what reaches the stages after each shuffle while a dataflow runs."""

    def __init__(self):
        self.records, self.bytes, self.kinds = {}, {}, set()
        self._process = StageProcessor.process

    def __enter__(self):
        def process(stage, bucket, rows, chain):
            frames = list(rows)
            for block in (block for frame in frames for block in read_blocks(frame)):
                if block.stage in stage.stages:
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
def test_encoding_round_trip(pairs, headed, coded):
    bag = BAG.replace(whole=("id",) if headed else None, coded=coded)
    (rows,) = bag.derived(batch(pairs), DeadLetters("bag"))
    again = decode_rows(encode_rows(rows, Buffering()))
    assert again.materialize() == rows.materialize()
    assert again.schema == rows.schema
    assert [again.shared_column(name) for name in again.names] == [rows.shared_column(name) for name in rows.names]


@given(mails, st.data())
def test_selected_texts_are_rows_of_batch(pairs, data):
    (rows,) = BAG.derived(batch(pairs), DeadLetters("bag"))
    chosen = sorted(data.draw(st.sets(st.integers(0, max(len(pairs) - 1, 0)), max_size=len(pairs))))
    wanted = [row for row in rows.materialize().to_pylist() if row["seq"] in chosen]
    assert rows.select_texts(pa.array(chosen, pa.int64()).to_numpy()).materialize().to_pylist() == wanted


def scripted(runs):
    """Return the messages of runs, each three times; each run is a separate batch."""
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


@pytest.mark.long
@settings(max_examples=depth(10))
@given(runs, st.sampled_from([1, 2, 3]), st.sampled_from([None, 3, 7]), st.booleans())
def test_results_equal_local_run(runs, partitions, max_records, coded):
    # lookups and learning alternate within a micro-batch
    pairs, source = scripted(runs)
    flow = learning(coded)
    wanted = flow.run(pa.table(batch(pairs).to_pydict(), schema=batch(pairs).schema))
    found = SimulatedQuery(flow, source, random.Random(len(pairs)), max_records=max_records, partitions=partitions)
    assert matter(found["judged"]) == matter(wanted["judged"])
    assert len(found["errors"]) == len(wanted["errors"])


def test_lookups_see_earlier_training():
    runs = [(True, ["win cash"]), (None, ["win we"] * 5), (False, ["win"]), (None, ["win we"] * 5)]
    _, source = scripted(runs)
    with Crossing() as crossing:
        found = SimulatedQuery(learning(), source, random.Random(1), partitions=2)
    chances = [row["spam_probability"] for row in found["judged"].sort_by("seq").to_pylist()]
    # at first only spam has win, then 3 of 6 words of spam against 2 * 3 of 3 words of other messages; we is unknown
    early, late = 0.99 * 0.4 / (0.99 * 0.4 + 0.01 * 0.6), 0.2 * 0.4 / (0.2 * 0.4 + 0.8 * 0.6)
    assert chances == [pytest.approx(early)] * 15 + [pytest.approx(late)] * 15
    assert {"?", "!", "="} <= crossing.kinds
    assert found.batches == 1


def lines(n, **more):
    text = [" ".join(f"w{(i * k) % 40}" for k in range(1, 25)) for i in range(n)]
    payload = [json.dumps({"id": str(i), "message": one, **more}).encode() for i, one in enumerate(text)]
    return pa.table({"event_time": pa.nulls(n, pa.timestamp("us", "UTC")), "payload": payload})


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_words_cross_once(partitions):
    both = {"training": lines(30, spam=True), "analysis": lines(400)}
    wanted = spam_filter().run(both)["results"]
    sources = {name: ro.MemorySource(table) for name, table in both.items()}
    with Crossing() as crossing:
        found = SimulatedQuery(spam_filter(), sources, random.Random(partitions), partitions=partitions)
    assert matter(found["results"]) == matter(wanted)
    repeated = 1 + found.repeated  # repeated tasks read their blocks again
    assert crossing.records[1] < repeated * 3 * 41 * partitions
    assert crossing.bytes[2] < repeated * (400 * 100 + 5000 * partitions**2)


def test_steps_eligible_for_lookup():
    def lookups(flow):
        return sorted(plan(flow).remote_lookups)

    assert lookups(spam_filter()) == ["tokens_analysis", "tokens_training"]
    assert lookups(learning()) == ["words"]
    assert lookups(spam_filter(keep_table=True)) == []  # another step reads the words as well
    also = learning()
    also.sink("also", also.stream("counts"))
    assert lookups(also) == []  # a sink reads the answers
    aging = ro.Dataflow("aging")
    words = aging.source(
        "in", schema={"id": "string", "text": "string", "spam": "bool", "event_time": "timestamp[us, tz=UTC]"}
    )
    words = words.to(BAG, id="words").partition_by("word").to(t.CountSpamWords(ttl="1h"), id="counts")
    aging.sink("out", words.partition_by("seq").to(t.BayesScore(), id="judged"))
    assert lookups(aging) == []  # its state depends on time
    for merging, wanted in (("sequence", ["a", "b"]), ("number", []), ("arrival", [])):
        flow = ro.Dataflow("two", merging=merging)
        read = [flow.source(f"in_{name}", schema={"id": "string", "text": "string", "spam": "bool"}) for name in "ab"]
        bags = [source.to(BAG, id=name) for name, source in zip("ab", read, strict=True)]
        counts = merge(*bags).partition_by("word").to(t.CountSpamWords(), id="counts")
        flow.sink("out", counts.partition_by("seq").to(t.BayesScore(), id="judged"))
        assert lookups(flow) == wanted  # otherwise the numbers of the sources interleave


def test_few_messages_cross_without_lookup():
    with Crossing() as crossing:
        SimulatedQuery(learning(), ro.MemorySource(batch([("win we", None)])), random.Random(1), partitions=3)
    assert not {"?", "!", "="} & crossing.kinds
