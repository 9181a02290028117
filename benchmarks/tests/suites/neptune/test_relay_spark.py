"""Neptune's relay on Spark: every message is delivered once, and all measures exist."""

from riot_bench.suites.neptune.relay_spark import relay_measures


def test_relay_over_a_shuffle(spark):
    found = {m.measure: m for m in relay_measures(spark, 50, 2, 100_000, (1024,), 10_000)}
    at = "neptune/relay/spark/50B"
    runs = (at, f"{at}/buffer-1KB", f"{at}/micro-batch-1KB")
    figures = ("", "/latency/mean", "/latency/sd", "/latency/p99", "/bandwidth")
    assert set(found) == {
        *(run + f for run in runs for f in figures),
        *(f"{at}/{n}" for n in ("lost", "disorder", "vs-small-blocks")),
    }
    for run in runs:
        assert len(found[run].sample) == 2
        assert 0 < found[f"{run}/latency/mean"].value <= found[f"{run}/latency/p99"].value
    assert (found[f"{at}/lost"].value, found[f"{at}/disorder"].value) == (0, 0)
