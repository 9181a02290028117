"""Baseline of the Yahoo streaming benchmark in plain Python, against a naive reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from riot_bench.baselines.python.dspbench.yahoo_streaming import yahoo_streaming as baseline

from tests.dataflows.dspbench.test_yahoo_streaming import ADS, lines, write_ads
from tests.reference.dspbench.yahoo_streaming import yahoo_streaming as reference


@given(texts=lines, allowed_lateness=st.sampled_from([0, 3, 20]), size=st.sampled_from([3, 10]))
def test_baseline_equals_the_reference(tmp_path_factory, texts, allowed_lateness, size):
    ads = write_ads(tmp_path_factory.mktemp("ads"))
    options = {"window": f"{size}s", "allowed_lateness": f"{allowed_lateness}s"}
    rows = baseline({"events": [text.encode() for text in texts]}, ads=ads, **options)["campaigns"]
    wanted, _ = reference(texts, ADS, allowed_lateness=allowed_lateness * 1000, window=size * 1000)
    assert sorted((round(start.timestamp() * 1000), *row) for start, *row in rows) == wanted
