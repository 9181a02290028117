"""Baseline of threat detection in plain Python, against the dataflow."""

from __future__ import annotations

import pytest
from riot_bench.baselines.python.streambench.threat import threat as baseline
from riot_bench.harness.validation import compare

from riot_ops.dataflows import threat
from riot_ops.streams.streambench import FlowsSource, TrafficSource
from tests.dataflows.streambench.test_threat import messages
from tests.streams.generated_lines import lines


@pytest.fixture(scope="module")
def packets():
    """A few windows of little traffic: flows of one packet, and some that another follows in the next window."""
    return lines(TrafficSource(rate=2_000, seed=2), 0, 12_000)


@pytest.mark.parametrize(
    "options", [{}, {"from_packets": True}, {"from_packets": True, "labelled": False, "window": "1s"}]
)
def test_baseline_equals_the_dataflow(options, packets):
    from_packets = options.get("from_packets", False)
    texts = packets[:3_000] if from_packets else lines(FlowsSource(dirt=True), 0, 500)
    texts = [*texts, "", "1,2,3"]
    wanted = baseline({"packets" if from_packets else "flows": [text.encode() for text in texts]}, **options)["threats"]
    fields = ("src", "dst", "class", "class_index", "class_probability")
    rows = threat(**options).run(messages(texts))["threats"].select(fields).to_pylist()
    found = [tuple(row.values()) for row in rows]
    assert compare("threats", wanted, found).equal and len(found) > 100
