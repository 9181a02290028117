"""Ends of dataflows at a broker."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from riot_bench.suites.reuse import ends
from riot_bench.suites.reuse.traces import Action
from riot_bench.suites.reuse.workloads import riot21, riot_source

from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.sink import MQTTSink
from riot_ops.core.errors import ConnectorError

FLOWS = {flow.name: flow for flow in riot21() if flow.name in ("grid-short", "grid-pred")}
ACTIONS = [
    Action(0, "submit", "grid-short"),
    Action(1, "submit", "grid-pred"),
    Action(2, "remove", "grid-short"),
    Action(3, "remove", "grid-pred"),
]


@pytest.mark.long  # each receiver ends after a second
@pytest.mark.parametrize("shared", [True, False])
def test_dataflows_read_and_publish_at_the_broker(tmp_path, shared):
    url = f"memory://ends-{shared}"
    session = MemoryBroker.of(url).session("observer", ["#"])
    spent = ends.trace_cost(ends.BrokerEnds(url, tmp_path, "side"), shared, FLOWS, ACTIONS, 8)
    assert spent > 0
    sent = [message.payload for message in session if message.topic == "side/grid"]
    [wanted] = riot_source("grid").read({"start": 0, "end": 8 * len(ACTIONS)})
    assert sent == wanted["payload"].to_pylist()
    results = Counter(message.topic for message in session if message.topic != "side/grid")
    # grid-short runs during two actions, and inserts each message that its cleaning lets pass
    assert results["side-results/grid-short/insert"] == 16
    assert results["side-results/grid-pred/tree"] > 0
    # separate dataflows have a subscription each
    assert len([*tmp_path.glob("side-*")]) == (1 if shared else 2)


def test_missing_messages_end_the_trace(monkeypatch):
    monkeypatch.setattr(ends, "TIMEOUT_S", 0.05)
    short = ends.DiscardingEnds()
    monkeypatch.setattr(short, "open_source", lambda stream: riot_source(stream, 3))
    with pytest.raises(ConnectorError, match=r"have not got all messages within 0\.05 s"):
        ends.trace_cost(short, True, FLOWS, ACTIONS[:1], 4)


def test_failed_dataflow_ends_the_trace(monkeypatch):
    failing = ends.DiscardingEnds()
    sink = MQTTSink(url="memory://ends-failed", topic="{no_such_field}")
    monkeypatch.setattr(failing, "open_sink", lambda name: sink)
    with pytest.raises(ConnectorError, match=r"dataflows have failed: \{'grid-pred'"):
        ends.trace_cost(failing, True, FLOWS, ACTIONS[1:2], 4)


def test_cpu_time_of_sending_does_not_count(tmp_path, monkeypatch):
    discarding = ends.DiscardingEnds()
    monkeypatch.setattr(discarding, "publish", lambda streams, messages: 1000.0)
    assert ends.trace_cost(discarding, False, FLOWS, ACTIONS[:1], 4) < -900


@pytest.mark.integration
def test_measures_of_both_kinds_of_ends(monkeypatch):
    monkeypatch.setattr(ends, "MESSAGES_PER_ACTION", 3)
    found = {one.measure: one for one in ends.end_measures("x", FLOWS, ACTIONS)}
    assert set(found) - {"x/mqtt/broker-cpu-reduction"} == {
        "x/discard/cpu-reduction",
        "x/mqtt/cpu-reduction",
        "x/ends-share/apart",
        "x/ends-share/together",
    }
    assert found["x/mqtt/cpu-reduction"].published == 0.51
    assert found["x/discard/cpu-reduction"].against.endswith("3 messages per stream and action")
    assert all(math.isfinite(one.value) for one in found.values())
