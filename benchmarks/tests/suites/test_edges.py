"""Both sides of a pair move the same messages."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from riot_bench.baselines.python import kafka
from riot_bench.suites.edges import suite
from riot_bench.suites.edges.pair import Pair, PairTimeoutError, time_limit
from riot_bench.suites.edges.suite import EDGES, PIPELINES, measures

from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.testing.services import Tansu


@pytest.mark.integration
def test_client_reads_what_it_writes():
    payloads = [f"message {i}".encode() for i in range(300)]
    with Tansu() as broker:
        kafka.create(broker.servers, "a")
        assert kafka.write(broker.servers, "a", payloads) > 0
        found = kafka.read(broker.servers, "a", 300)[1]
        assert [payload for payload, _, _ in found] == payloads and [n for _, n, _ in found] == list(range(300))
        assert list(kafka.payloads(broker.servers, "a", 300)) == list(enumerate(payloads))


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("name", [*EDGES, *PIPELINES])
def test_pair_is_measured_with_equal_results(name):
    found = {m.measure: m.value for m in measures(quick=True, name=[name])}
    other = "plain-python" if name in PIPELINES else "bare-client"
    assert set(found) == {f"edges/{name}{end}" for end in ("", f"/{other}", f"/vs-{other}")}
    assert all(math.isfinite(value) and value > 0 for value in found.values())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("spark-replay-source", "text-source"),
        ("spark-replay-in-dataflow", "text-source"),
        ("spark-kafka-stats-delta", "idiomatic"),
    ],
)
def test_edge_on_spark_is_measured(name, other):
    """In a session of its own."""
    found = {m.measure: m.value for m in measures(quick=True, name=[name])}
    assert set(found) == {f"edges/{name}{end}" for end in ("", f"/{other}", f"/vs-{other}")}
    assert all(math.isfinite(value) and value > 0 for value in found.values())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.integration
def test_results_of_packs_all_arrive():
    """Latency and memory are figures of a quiet machine; what is lost is not."""
    found = {m.measure.rpartition("/")[2]: m.value for m in measures(name=["mqtt-stats-mqtt"], seconds=5)}
    assert found["lost"] == 0 and found["p50"] > 0 and found["memory-growth"] > 0


def pair_of(ours, theirs):
    return lambda quick: contextlib.nullcontext(Pair(1, ours, theirs, "the other"))


def test_results_that_differ_are_no_measure(monkeypatch):
    monkeypatch.setitem(suite.EDGES, "odd", pair_of(lambda: (1.0, [1]), lambda: (1.0, [2])))
    with pytest.raises(RiotError, match="odd: both sides do not give the same"):
        list(measures(quick=True, name=["odd"]))


def test_pair_that_hangs_ends_at_its_limit_and_others_go_on(monkeypatch):
    monkeypatch.setattr(suite, "QUICK_LIMIT_S", 0.2)
    monkeypatch.setitem(suite.EDGES, "hung", pair_of(lambda: time.sleep(60) or (1.0, 1), lambda: (1.0, 1)))
    monkeypatch.setitem(suite.EDGES, "fine", pair_of(lambda: (1.0, 1), lambda: (2.0, 1)))
    hung, *fine = measures(quick=True, name=["hung", "fine"])
    assert hung.measure == "edges/hung/vs-bare-client" and math.isnan(hung.value) and not hung.met
    assert hung.against == "not measured: it takes longer than 0.2 s"
    assert fine[-1].measure == "edges/fine/vs-bare-client" and fine[-1].value == 2.0


def test_names_are_checked():
    with pytest.raises(ConfigError, match=r"unknown pair 'kafka-sourc'.*kafka-source"):
        list(measures(name=["kafka-sourc"]))


def test_limit_ends_with_its_block():
    with time_limit(0.05):
        pass
    time.sleep(0.1)
    with pytest.raises(PairTimeoutError), time_limit(0.05):
        time.sleep(10)
