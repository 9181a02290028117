"""Word count, against a dict and the figures of the specification."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench import word_count
from riot_ops.dataflows.streambench import wordcount
from riot_ops.streams import replay
from tests.reference.dspbench.word_count import word_count as reference
from tests.samples import expected
from tests.simulated_query import SimulatedQuery

SHARED = "dspbench/synthetic/books.txt"
lines = st.lists(st.text("abA 9_-.üÉ\t", max_size=12), max_size=12)


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(counts):
    return sorted((r["seq"], r["ordinal"], r["word"], r["count"]) for r in counts.to_pylist())


def wanted(texts, **options):
    place = Counter()
    rows = []
    for number, word, count in reference(texts, **options):
        rows.append((number, place[number], word, count))
        place[number] += 1
    return sorted(rows)


@given(lines, st.booleans(), st.integers(1, 5))
def test_results_equal_a_dict(texts, lowercase, batch_size):
    for unicode in (False, True):
        flow = word_count(lowercase=lowercase, unicode=unicode)
        flow.ordinals = True
        if not (lowercase and not unicode):  # without Unicode, capitals beyond ASCII are no letters
            assert found(flow.run(table(texts), batch_size=batch_size)["counts"]) == wanted(
                texts, lowercase=lowercase, unicode=unicode
            )


@pytest.mark.long
@given(lines.filter(any), st.integers(0, 1 << 32))
def test_staged_results_are_equal(texts, seed):
    choose = random.Random(seed)
    flow = word_count()
    flow.ordinals = True
    staged = SimulatedQuery(
        flow, ro.MemorySource(table(texts)), choose, max_records=3, partitions=choose.choice([1, 3])
    )
    assert found(staged["counts"]) == wanted(texts)


@given(lines, st.integers(1, 6))
def test_last_updates_equal_final_counts(texts, batch_size):
    result = word_count(emit="update").run(table(texts), batch_size=batch_size)["counts"]
    last = {row["word"]: row["count"] for row in result.to_pylist()}
    assert last == {word: count for _, word, count in reference(texts)}
    batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    assert result.num_rows == sum(len({word for _, word, _ in reference(batch)}) for batch in batches)


@pytest.mark.parametrize("staged", [False, True])
def test_text_of_the_specification(sample_data, staged):
    source, flow = replay(sample_data / SHARED), word_count()
    flow.ordinals = True
    counts = (SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source))["counts"]
    totals = Counter(counts["word"].to_pylist())
    assert (counts.num_rows, len(totals)) == expected(sample_data, made=(927, 51), papers=(3866, 30))
    assert totals.most_common(3) == expected(
        sample_data,
        made=[("ka", 206), ("lo", 99), ("mi", 86)],
        papers=[("river", 1022), ("stone", 500), ("cloud", 364)],
    )
    assert {row["word"]: row["count"] for row in counts.sort_by("count").to_pylist()} == totals
    assert found(counts) == wanted((sample_data / SHARED).read_text().split("\n"))


@pytest.mark.parametrize("build", [word_count, wordcount])
def test_lines_of_another_encoding_are_counted(build):
    lines = pa.table({"payload": ["café tea".encode("latin-1"), b"tea"], "event_time": pa.nulls(2)})
    options = {"unicode": True} if build is word_count else {}
    counts = build(encoding="latin-1", **options).run(lines)["counts"].to_pylist()
    assert [(row["word"], row["count"]) for row in counts] == [("café", 1), ("tea", 1), ("tea", 2)]
    assert build().run(lines)["errors"]["reason"].to_pylist() == ["invalid_utf8"]
    with pytest.raises(ConfigError, match="encoding must be"):
        build(encoding="utf-9")
