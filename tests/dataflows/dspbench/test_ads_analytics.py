"""Ads analytics, against a naive reference and the figures of the specification."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import ads_analytics
from riot_ops.streams import replay
from tests.dataflows.dspbench.line_messages import messages, rows
from tests.reference.dspbench.ads_analytics import ads_analytics as reference
from tests.samples import expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

ADS = "dspbench/synthetic/ad-clicks.tsv"
FIELDS = ("query_id", "ad_id", "ctr", "impressions", "clicks")


def record(clicks, impressions, ad, query):
    return "\t".join(map(str, (clicks, impressions, 9, ad, 501, 2, 1, query, 1012, 2100, 3100, 3144)))


counts = st.sampled_from([0, 0, 1, 2])
good = st.builds(record, counts, counts, st.sampled_from([100, 7]), st.sampled_from([1, 2]))
bad = st.sampled_from(
    [
        "",
        record(1, 1, 1, 1)[:-5],
        record("x", 2, 1, 1),
        record(2, "y", 1, 1),
        record(-1, 2, 1, 1),
        record(1, 2**31, 1, 1),
        record(1, 1, "", 1),
    ]
)
lines = st.lists(st.one_of(good, good, good, bad), max_size=14)


def found(table):
    made = [
        (round((r["event_time"].timestamp()) + 1e-6), *(r[f] for f in FIELDS), r["window_length"])
        for r in table.to_pylist()
    ]
    return sorted(made)


def sources(clicks, impressions):
    return {"clicks": messages(clicks), "impressions": messages(impressions)}


def reasons(result):
    given = result["errors"]["reason"].to_pylist()
    orphans = given.count("division_by_zero")
    return len(given) - orphans, orphans


@pytest.mark.long
@given(clicks=lines, impressions=lines, tick_every=st.none() | st.integers(1, 5), batch_size=st.integers(1, 5))
def test_results_equal_the_reference(clicks, impressions, tick_every, batch_size):
    flow = ads_analytics(tick_every=tick_every)
    result = flow.run(sources(clicks, impressions), batch_size=batch_size)
    wanted, *wrong = reference(clicks, impressions, tick_every=tick_every)
    assert found(result["ctr"]) == sorted(wanted)
    assert reasons(result) == tuple(wrong)


@pytest.mark.long
@settings(max_examples=depth(12))
@given(clicks=lines.filter(any), impressions=lines, tick_every=st.integers(1, 5), seed=st.integers(0, 1 << 32))
def test_staged_results_are_equal(clicks, impressions, tick_every, seed):
    choose = random.Random(seed)
    source = {name: ro.MemorySource(table) for name, table in sources(clicks, impressions).items()}
    flow = ads_analytics(tick_every=tick_every)
    staged = SimulatedQuery(flow, source, choose, max_records=5, partitions=choose.choice([1, 3]))
    wanted, *wrong = reference(clicks, impressions, tick_every=tick_every)
    assert found(staged["ctr"]) == sorted(wanted)
    assert reasons(staged) == tuple(wrong)


@pytest.mark.long
@given(clicks=lines, impressions=lines, batch_size=st.integers(1, 5))
def test_rates_after_each_record(clicks, impressions, batch_size):
    result = ads_analytics(emit="each").run(sources(clicks, impressions), batch_size=batch_size)
    wanted, *wrong = reference(clicks, impressions, each=True)
    assert [row[1:] for row in rows(result["ctr"], *FIELDS)] == [row[1:] for row in wanted]
    assert reasons(result) == tuple(wrong)
    update = ads_analytics(emit="update").run(sources(clicks, impressions))["ctr"]
    last = {row[1:3]: row[1:] for row in wanted if row[4]}  # a pair without impressions may have none
    assert {row[1:3]: row[1:] for row in rows(update, *FIELDS) if row[4]} == last


@pytest.mark.parametrize("staged", [False, True])
def test_records_of_the_specification(sample_data, staged):
    flow, path = ads_analytics(), sample_data / ADS
    source = {"clicks": replay(path), "impressions": replay(path)}
    result = SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source)
    ctr = result["ctr"].to_pylist()
    totals = expected(sample_data, made=(261, 17), papers=(3195, 195))
    assert (sum(r["impressions"] for r in ctr), sum(r["clicks"] for r in ctr)) == totals
    assert (len(ctr), sum(r["clicks"] > 0 for r in ctr)) == expected(sample_data, made=(75, 14), papers=(302, 98))
    (one,) = [r for r in ctr if (r["query_id"], r["ad_id"]) == (1, 100)]
    figures = (one["impressions"], one["clicks"], round(one["ctr"], 7))
    assert figures == expected(sample_data, made=(28, 2, 0.0714286), papers=(97, 7, 0.0721649))
    texts = path.read_text().splitlines()
    assert found(result["ctr"]) == sorted(reference(texts, texts)[0])
    assert result["errors"]["reason"].to_pylist() == ["wrong_cells"] * 2  # one per source


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"window": "6s"}, {"slots": 3}),
        ({"every": timedelta(seconds=5)}, {"slots": 2, "every": 5}),
        ({"window": "3s"}, {"slots": 2}),
        ({"tick_every": 2}, {"tick_every": 2}),
    ],
    ids=str,
)
def test_options_reach_the_dataflow(options, same):
    texts = [record(i % 2, 1 + i % 3, 100 + i % 5, 1) for i in range(24)]
    made = found(ads_analytics(**{"tick_every": 3, **options}).run(sources(texts, texts))["ctr"])
    assert made == sorted(reference(texts, texts, **{"tick_every": 3, **same})[0])
    assert made != sorted(reference(texts, texts, tick_every=3)[0])


def test_restarted_run_continues(tmp_path):
    texts = [record(i % 2, 1 + i % 3, 100 + i % 5, 1) for i in range(12)]
    flow = ads_analytics(emit="each")
    for part in (texts[:5], texts):
        flow.run(sources(part, part), checkpoint=tmp_path / "checkpoint", out=tmp_path / "out")
    files = (tmp_path / "out" / "ctr").glob("*.parquet")
    table = pa.concat_tables(map(pa.parquet.read_table, files))
    assert [row[1:] for row in rows(table, *FIELDS)] == [row[1:] for row in reference(texts, texts, each=True)[0]]


def test_malformed_lines_advance_time():
    texts = [record(0, 1, 7, 1), "", "", ""]
    assert [row[0] for row in found(ads_analytics(tick_every=1).run(sources([], texts))["ctr"])] == [2, 4, 6, 8]


@pytest.mark.parametrize("counts", [("x", 5), (1, "x"), ("", 5), (-1, 5), (1, -5), (2**31, 5), (1, 2**31)], ids=str)
def test_record_counts_completely_or_not_at_all(counts):
    texts = [record(1, 4, 100, 12), record(*counts, 100, 12)]
    result = ads_analytics().run(sources(texts, texts))
    assert [row[1:] for row in rows(result["ctr"], *FIELDS)] == [(12, 100, 0.25, 4, 1)]
    assert sorted(result["errors"]["seq"].to_pylist()) == [2, 3]  # one per source


def test_misuse_is_refused():
    for options, error_text in (
        ({"tick_every": 0}, "tick_every"), ({"tick_every": 2, "emit": "each"}, "tick_every"), ({"window": "1s"}, "at most window"),
        ({"every": "0s"}, "every"), ({"emit": "never"}, "emit"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error_text):
            ads_analytics(**options)
