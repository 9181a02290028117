"""The spam filter, against a naive reference and the figures of the specification."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import spam_filter
from riot_ops.dataflows.dspbench.operators import BagOfWords, BayesScore, CountSpamWords
from riot_ops.models import WordTable
from riot_ops.streams import replay
from tests.reference.dspbench.spam_filter import Table, tokens
from tests.reference.dspbench.spam_filter import spam_filter as reference
from tests.samples import MADE, expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

TRAINING, ANALYSIS = (f"dspbench/synthetic/emails-{name}.jsonl" for name in ("training", "analysis"))

texts = st.lists(st.sampled_from(["win", "Win", "cash!", "we", "meet", "a_1", "é", ","]), max_size=7).map(" ".join)
numbers = st.integers(0, 9).map(str)
known = st.builds(lambda i, m, s: json.dumps({"id": i, "message": m, "spam": s}), numbers, texts, st.booleans())
asked = st.builds(lambda i, m: json.dumps({"id": i, "message": m}), numbers, texts)
dirt = st.sampled_from(["", "{", '{"id": "1"}', '{"message": "win", "spam": true}'])


def table(lines):
    return pa.table(
        {"event_time": pa.nulls(len(lines), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in lines]}
    )


def found(rows):
    return [
        (r["id"], pytest.approx(r["spam_probability"], rel=1e-9), r["is_spam"])
        for r in rows.sort_by("seq").to_pylist()
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"emit_empty": True, "max_words": 2, "unknown": 0.45},
        {"threshold": 0.4, "min_probability": 0.2, "emit_empty": True},
    ],
    ids=["default", "two words", "threshold"],
)
@settings(max_examples=depth(25))
@given(
    training=st.lists(known | dirt, max_size=6),
    analysis=st.lists(asked | dirt, max_size=5),
    batch_size=st.integers(1, 4),
)
def test_results_equal_the_reference(options, training, analysis, batch_size):
    wanted = list(reference(training, analysis, **options))
    flow = spam_filter(**options)
    both = {"training": table(training), "analysis": table(analysis)}
    assert found(flow.run(both, batch_size=batch_size)["results"]) == wanted
    sources = {name: ro.MemorySource(lines) for name, lines in both.items()}
    choose = random.Random(len(training) + 7 * len(analysis))
    assert found(SimulatedQuery(flow, sources, choose, max_records=batch_size)["results"]) == wanted


def test_figures_of_the_specification(sample_data, tmp_path):
    both = {"training": replay(sample_data / TRAINING), "analysis": replay(sample_data / ANALYSIS)}
    result = spam_filter(keep_table=True).run(both)
    rows = {row["id"]: row for row in result["results"].to_pylist()}
    verdicts = (len(rows), sum(row["is_spam"] for row in rows.values()))
    assert verdicts == expected(sample_data, made=(30, 12), papers=(200, 81))
    truth = [json.loads(line) for line in (sample_data / ANALYSIS).read_text().splitlines()]
    assert all(rows[one["id"]]["is_spam"] == one["spam"] for one in truth)
    training = (sample_data / TRAINING).read_text().splitlines()
    assert found(result["results"]) == list(reference(training, (sample_data / ANALYSIS).read_text().splitlines()))
    if sample_data != MADE:
        assert rows["a00400"]["spam_probability"] == pytest.approx(1.236e-16, rel=1e-3)
        assert rows["a00401"]["spam_probability"] == pytest.approx(0.9999999989, abs=5e-11)
        assert sum(len(tokens(one["message"])) for one in truth) == 3455
    assert result["errors"].num_rows == 0
    learned = WordTable.of(result["table"].to_pylist())
    assert (learned.spam_total, learned.ham_total) == expected(sample_data, made=(660, 977), papers=(4949, 7561))
    words = [word for word, counts in learned.counts.items() if any(counts)]
    assert len(words) == expected(sample_data, made=168, papers=36)
    # the learned table instead of the messages
    path = str(tmp_path / "words.json")
    learned.save(path)
    stored = json.loads((tmp_path / "words.json").read_text())["words"]
    for word, p in expected(
        sample_data,
        made={"free": 0.979637, "meeting": 0.01, "the": 0.323995},
        papers={"free": 0.935223, "meeting": 0.01, "the": 0.332528},
    ).items():
        assert stored[word]["p_spam"] == pytest.approx(p, abs=5e-7)
    again = spam_filter(table=path, training=False).run({"analysis": replay(sample_data / ANALYSIS)})["results"]
    assert found(again) == found(result["results"])


def test_table_is_extended_by_training(tmp_path):
    early = [json.dumps({"id": "1", "message": "win cash", "spam": True})]
    late = [json.dumps({"id": "2", "message": "we meet to win", "spam": False})]
    mails = [json.dumps({"id": "3", "message": f"{word} now"}) for word in ("win", "cash", "we", "new")]
    first = spam_filter(keep_table=True).run({"training": table(early), "analysis": table([])})
    WordTable.of(first["table"].to_pylist()).save(str(tmp_path / "words.json"))
    flow = spam_filter(table=str(tmp_path / "words.json"))
    both = {"training": table(late), "analysis": table(mails)}
    assert found(flow.run(both, batch_size=2)["results"]) == list(reference(early + late, mails))
    kept = spam_filter(table=str(tmp_path / "words.json"), keep_table=True).run(both)["table"]
    learned = WordTable.of(kept.to_pylist())
    assert (learned.counts["win"], learned.counts["meet"]) == ((1, 1), (0, 1))
    assert (learned.spam_total, learned.ham_total) == (2, 4)


def test_restarted_run_continues(tmp_path):
    training = [
        json.dumps({"id": str(i), "message": f"win {'cash' * (i % 3)} w{i % 5}", "spam": i % 2 == 0}) for i in range(20)
    ]
    mails = [json.dumps({"id": str(i), "message": f"win w{i % 7} cash"}) for i in range(9)]
    wanted = list(reference(training, mails))
    head, tail = spam_filter(), spam_filter()
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    head.run({"training": ro.MemorySource(table(training)), "analysis": ro.MemorySource(table(mails[:4]))}, **kept)
    both = {"training": ro.MemorySource(table(training)), "analysis": ro.MemorySource(table(mails))}
    assert found(tail.run(both, **kept)["results"]) == wanted


@pytest.mark.parametrize("partitions", [1, 3])
def test_message_is_scored_by_earlier_training_only(partitions):
    flow = ro.Dataflow("learning")  # messages with and without labels alternate in one source
    source = flow.source("in", schema={"id": "string", "text": "string", "spam": "bool"})
    words = source.to(BagOfWords(field="text", keep=("spam",), whole=("id",), coded=True), id="words")
    counts = words.partition_by("word").to(CountSpamWords(), id="counts")
    flow.sink("out", counts.partition_by("seq").to(BayesScore(), id="judged"))
    asked = [("win we", None)] * 2
    mails = [("win cash", True), *asked, ("win", False), *asked]
    rows = pa.table(
        {
            "id": [str(i) for i in range(6)],
            "text": [text for text, _ in mails],
            "spam": pa.array([spam for _, spam in mails], pa.bool_()),
        }
    )
    # at first only spam has win, then 1 of 2 words of spam against 2 * 1 of 1 word of other messages; we is unknown
    early, late = 0.99 * 0.4 / (0.99 * 0.4 + 0.01 * 0.6), 0.2 * 0.4 / (0.2 * 0.4 + 0.8 * 0.6)
    wanted = [pytest.approx(early)] * 2 + [pytest.approx(late)] * 2
    simulated = SimulatedQuery(flow, ro.MemorySource(rows), random.Random(partitions), partitions=partitions)
    for found in (flow.run(rows)["judged"], flow.run(rows, batch_size=1)["judged"], simulated["judged"]):
        assert found.sort_by("seq")["spam_probability"].to_pylist() == wanted


def test_messages_without_words_are_counted():
    mails = [json.dumps({"id": "1", "message": "?!"}), json.dumps({"id": "2", "message": "a"})]
    result = spam_filter().run({"training": table([]), "analysis": table(mails)})
    assert found(result["results"]) == [("2", 0.4, False)]
    assert result["errors"]["reason"].to_pylist() == ["no_words"]


def test_misuse_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="training"):
        spam_filter(training=False)
    with pytest.raises(ConfigError, match="cannot be read"):
        spam_filter(table=str(tmp_path / "none.json"))


def test_reference_scores_known_words():
    learned = Table().train([json.dumps({"id": "1", "message": "Win, win é", "spam": True})])
    assert dict(learned.bad) == {"win": 2}
