"""The Yahoo streaming benchmark, against a naive reference and the figures of the specification."""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import yahoo_streaming
from riot_ops.streams.dspbench import AdvertsSource
from tests.dataflows.dspbench.line_messages import messages
from tests.reference.dspbench.yahoo_streaming import yahoo_streaming as reference
from tests.search import depth
from tests.simulated_query import SimulatedQuery

ADS = {"a": "c1", "b": "c1", "c": "c2", "": "c2"}


def event(ad, kind, time):
    return json.dumps({"user_id": "u", "ad_id": ad, "event_type": kind, "event_time": time})


good = st.builds(
    event,
    st.sampled_from(["a", "b", "c", "", "gone"]),
    st.sampled_from(["view", "view", "click"]),
    st.integers(0, 40_000) | st.integers(0, 40_000).map(str),
)
bad = st.sampled_from(["", "{", event("a", "view", "now"), event("a", None, 7), event("a", "view", 10**15)])
lines = st.lists(st.one_of(good, good, good, good, bad), max_size=14)


def write_ads(folder):
    path = folder / "ads.csv"
    path.write_text("ad_id,campaign_id\n" + "".join(f"{ad},{campaign}\n" for ad, campaign in ADS.items()))
    return str(path)


@pytest.fixture(scope="module")
def ads(tmp_path_factory):
    return write_ads(tmp_path_factory.mktemp("ads"))


def found(result):
    rows = result["campaigns"].to_pylist()
    return sorted((round(r["window_start"].timestamp() * 1000), r["campaign_id"], r["count"]) for r in rows)


@given(texts=lines, allowed_lateness=st.sampled_from([0, 3, 20]), batch_size=st.integers(1, 5))
def test_results_equal_the_reference(ads, texts, allowed_lateness, batch_size):
    flow = yahoo_streaming(ads=ads, allowed_lateness=timedelta(seconds=allowed_lateness))
    result = flow.run(messages(texts), batch_size=batch_size)
    wanted, wrong = reference(texts, ADS, allowed_lateness=allowed_lateness * 1000)
    assert found(result) == wanted
    assert sorted(result["errors"]["seq"].to_pylist()) == wrong


@pytest.mark.long
@settings(max_examples=depth(15))
@given(texts=lines.filter(any), seed=st.integers(0, 1 << 32))
def test_staged_results_are_equal(ads, texts, seed):
    choose = random.Random(seed)
    source = ro.MemorySource(messages(texts))
    staged = SimulatedQuery(yahoo_streaming(ads=ads), source, choose, max_records=4, partitions=choose.choice([1, 3]))
    wanted, wrong = reference(texts, ADS)
    assert found(staged) == wanted
    assert sorted(staged["errors"]["seq"].to_pylist()) == wrong


def test_options_reach_the_dataflow(ads):
    texts = [event("a", kind, time) for kind in ("view", "click", "click") for time in (1000, 6000, 9000)]
    for options, wanted in (
        ({"window": "5s"}, {"window": 5000}),
        ({"window": timedelta(seconds=3), "allowed_lateness": "20s"}, {"window": 3000, "allowed_lateness": 20_000}),
        ({"event_type": "click"}, {"event_type": "click"}),
    ):
        assert found(yahoo_streaming(ads=ads, **options).run(messages(texts))) == reference(texts, ADS, **wanted)[0]
    assert found(yahoo_streaming().run(messages([event("17", "view", 0), event("a", "view", 0)]))) == [(0, "1", 1)]
    with pytest.raises(ConfigError, match="nowhere"):
        yahoo_streaming(ads="nowhere.csv")


@pytest.mark.long
@pytest.mark.parametrize("staged", [False, True])
def test_every_third_event_is_a_view(sample_data, staged):
    flow = yahoo_streaming(ads=str(sample_data / "dspbench/synthetic/ysb-ads.csv"))
    source = AdvertsSource(messages=10_000, rate=500.0)
    result = SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source)
    assert sum(count for _, _, count in found(result)) == 3333
    assert len(found(result)) == 2 * 100
    assert result["errors"].num_rows == 0
    texts = [
        line.decode() for batch in source.read({"start": 0, "end": 10_000}) for line in batch["payload"].to_pylist()
    ]
    ads = {str(ad): str(ad // 10) for ad in range(1000)}
    assert found(result) == reference(texts, ads)[0]
