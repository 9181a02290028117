"""The recipient suite."""

from __future__ import annotations

import pytest
from riot_bench.suites.streambench import recipients as streambench_recipients


@pytest.mark.spark
@pytest.mark.slow  # a measurement on Spark
def test_recipients_on_spark(alone: None) -> None:
    sizes = streambench_recipients.Sizes(80, 1, ("identity", "grep"), 60.0)
    found = {m.measure: m for m in streambench_recipients.recipients(True, ["grep"], 2.0, sizes)}
    at = "streambench/recipients/grep"
    for tasks in (1, 2, 4):
        assert found[f"{at}/{tasks}of4/throughput"].value > 0
        assert found[f"{at}/{tasks}of4/latency"].value > 0
    rates = [found[f"{at}/{tasks}of4/throughput"].value for tasks in (1, 2, 4)]
    assert found[f"{at}/gain-half"].value == rates[1] / rates[0]
    assert found[f"{at}/gain-all"].value == rates[2] / rates[1]
    assert (found[f"{at}/gain-half"].published, found[f"{at}/gain-all"].published) == (1.8, 2.15)
    assert "micro-batches of 160 records" in found[f"{at}/1of4/throughput"].against
    assert len(found) == 8
    assert all(one.values == () and one.sample for one in found.values()), "micro-batches of one run are no runs"
