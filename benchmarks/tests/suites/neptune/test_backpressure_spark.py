"""Neptune's staircase on Spark with an adaptive limit: every message is delivered once, at each step."""

import pytest
from riot_bench.suites.neptune import backpressure_spark
from riot_bench.suites.neptune.backpressure_spark import LEVELS, SettledStep, run_adaptive_staircase


@pytest.mark.slow  # a search on Spark
def test_staircase_with_a_target_duration(spark, monkeypatch):
    """A target that no micro-batch reaches, even on a busy machine: the limit keeps its initial value."""
    monkeypatch.setattr(backpressure_spark, "messages_per_step", lambda *_: [10] * len(LEVELS))
    steps, found = run_adaptive_staircase(spark, 5, 60.0, 0.0)
    assert (found.messages, found.faults) == (10 * len(LEVELS), 0)
    assert [SettledStep(one.messages, 0) for one in steps] == [SettledStep(5, 0)] * 5
    assert all(0 < one.seconds < 60 for one in steps)
