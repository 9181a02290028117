"""Baseline of the bargain index in plain Python, against exact sums and the dataflow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.baselines.python.dspbench.bargain_index import bargain_index as baseline

from riot_ops.dataflows import bargain_index
from riot_ops.streams import replay
from tests.dataflows.dspbench.test_bargain_index import SHARED, WINDOWS, files, found, span
from tests.reference.dspbench.bargain_index import bargain_index as reference


@given(files, st.sampled_from(WINDOWS), st.sampled_from(["trade", "quote"]))
def test_baseline_equals_the_reference(lines, window, first):
    inputs = {name: [line.encode() for line in lines] for name in ("trades", "quotes")}
    rows = baseline(inputs, **span(window), threshold=0.25, first=first)["bargains"]
    wanted, _ = reference(lines, lines, window=window, threshold=0.25, first=first)
    assert [row[:3] for row in rows] == [row[1:4] for row in wanted]
    assert [row[3] for row in rows] == pytest.approx([row[5] for row in wanted], rel=1e-9)


def test_baseline_equals_the_dataflow_on_the_shared_file(sample_data):
    rows = found(bargain_index().run({name: replay(sample_data / SHARED) for name in ("trades", "quotes")})["bargains"])
    lines = (sample_data / SHARED).read_bytes().splitlines()
    plain = baseline({"trades": lines, "quotes": lines})["bargains"]
    assert [row[:3] for row in plain] == [row[1:4] for row in rows]
    assert [row[3] for row in plain] == pytest.approx([row[5] for row in rows], rel=1e-9)
