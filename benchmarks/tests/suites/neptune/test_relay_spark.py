"""Neptune's relay on Spark: every message is delivered once, and all measures exist."""

from types import SimpleNamespace

import pytest
from riot_bench.suites.neptune import relay_spark
from riot_bench.suites.neptune import suite as neptune
from riot_bench.suites.neptune.relay_spark import relay_measures
from riot_bench.suites.neptune.thesis import THROUGHPUT


@pytest.mark.slow  # a measurement on Spark; the test below has its rules
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


def test_relay_on_spark_reports_losses_and_buffer_effects(monkeypatch):
    started = []

    def start(flow, session, messages, *, sinks, max_records, buffering):
        started.append((messages.total, messages.pool, max_records, buffering.capacity))
        messages.total -= 3  # the last messages are lost
        flow.run(messages, sinks=sinks)
        return SimpleNamespace(wait=lambda: None, streaming=buffering.capacity)

    def durations(capacity):
        return [9.0, 1.0, 1.25] if capacity > 1024 else [9.0, 10.0, 12.5]

    monkeypatch.setattr(relay_spark.Dataflow, "start", start)
    monkeypatch.setattr(relay_spark, "durations", durations)
    made = relay_spark.relay_measures(None, 50, 2, 100_000, (1 << 10, 1 << 17), 50_000)
    found = {m.measure.removeprefix("neptune/relay/spark/50B"): m for m in made}
    block = 1 << 20
    assert started == [
        (6000, 65_536, 2000, block),
        (3000, 20, 1000, 1 << 10),
        (3000, 2621, 1000, 1 << 17),
        (60, 65_536, 20, block),
        (7863, 65_536, 2621, block),
    ]
    assert (found["/lost"].value, found["/lost"].met) == (15, False)
    assert (found["/disorder"].value, found["/disorder"].met) == (0, True)
    assert (found[""].values, found[""].sample) == ((), (2000, 1600))  # of one run
    assert len(found["/bandwidth"].sample) == 2
    assert (found[""].published, found["/buffer-128KB"].published) == (THROUGHPUT[50].neptune.mean, None)
    assert found["/latency/p99"].published == 109.02
    assert found["/buffer-1KB"].sample == (100, 80)
    assert found["/buffer-128KB"].sample == (1000, 800)
    assert found["/micro-batch-1KB"].sample == (20, 16)
    gain = found["/vs-small-blocks"]
    assert (gain.value, gain.sample) == (10, (10, 10))
    assert gain.against == "blocks of 128KB against those of 1KB, by micro-batch"
    (figures,) = (one.figures for one in neptune.EXPERIMENTS if one.key == "neptune/relay/spark")
    wanted = {(series, x) for series in ("buffer", "micro-batch") for x in ("1KB", "128KB")}
    for figure in figures[3:]:
        assert {(series, x) for series, x, _ in figure.points(found.values())} == wanted
