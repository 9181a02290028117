"""Neptune's relay on Spark: every message comes once, and each figure is there."""

from riot_ops.bench.neptune_relay import _on_spark


def test_a_relay_over_a_shuffle(spark):
    found = {m.measure: m for m in _on_spark(spark, 50, 2000, 2)}
    at = "neptune/relay/spark/50B"
    assert set(found) == {at, *(f"{at}/{name}" for name in ("latency/mean", "latency/sd", "latency/p99", "bandwidth"))}
    assert len(found[at].values) == 2
    assert 0 < found[f"{at}/latency/mean"].value <= found[f"{at}/latency/p99"].value
