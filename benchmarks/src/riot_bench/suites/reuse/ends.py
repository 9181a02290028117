"""Savings by sharing if the ends of dataflows are clients of a broker, and if they discard.

The paper runs an Apollo broker over MQTT, through which streams pass between fragments. Its text does not say what a
source or a sink costs. Here both are clients of a Mosquitto: each separate dataflow has a subscription of its own,
shared ones have one per stream, and every dataflow publishes its results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.suites.reuse.sides import Side
from riot_bench.suites.reuse.traces import Action
from riot_bench.suites.reuse.workloads import riot_source
from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.publisher import OutgoingMessage, open_publisher
from riot_ops.connectors.mqtt.sink import MQTTSink
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConnectorError
from riot_ops.core.sink import CallbackSink, Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.processes import ProcessTree
from riot_ops.testing.services import Mosquitto

__all__ = ["BrokerEnds", "DiscardingEnds", "Ends", "end_measures"]

#: Messages of each stream between two actions: 10 per second for 5 seconds.
MESSAGES_PER_ACTION = 50
#: Seconds between two turns while messages are on their way, and time limit in seconds.
POLL_S, TIMEOUT_S = 0.01, 60.0


class Ends(Protocol):
    """What the sources read and the sinks write to."""

    def open_source(self, stream: str) -> Source:
        """Open a source of a stream."""

    def open_sink(self, name: str) -> Sink:
        """Open the sink of a dataflow."""

    def wait_for_subscription(self) -> None:
        """Wait until the source that was opened last has subscribed."""

    def publish(self, streams: Sequence[str], messages: int) -> float:
        """Send further messages of some streams; return the CPU seconds of sending."""


class DiscardingEnds:
    """Sources that generate their messages, and sinks that discard."""

    def open_source(self, stream: str) -> Source:
        return riot_source(stream)

    def open_sink(self, name: str) -> Sink:
        return CallbackSink(lambda stream, batch: None)

    def wait_for_subscription(self) -> None:
        pass

    def publish(self, streams: Sequence[str], messages: int) -> float:
        return 0.0


class BrokerEnds:
    """Sources that subscribe to a broker, and sinks that publish each record, with QoS 1.

    Parameters
    ----------
    url : str
        URL of the broker.
    folder : Path
        Folder for the spools of the sources.
    side : str
        First level of all topics, so that no other side gets the messages.
    """

    def __init__(self, url: str, folder: Path, side: str) -> None:
        self._url, self._folder, self._side = url, folder, side
        self._opened = 0
        self._last: MQTTSource | None = None
        self._sent: dict[str, int] = {}

    def open_source(self, stream: str) -> Source:
        self._opened += 1
        name = f"{self._side}-{self._opened}"
        # the broker forgets the session of a removed dataflow
        self._last = MQTTSource(
            url=self._url,
            topics=(f"{self._side}/{stream}",),
            client_id=name,
            spool=str(self._folder / name),
            session_expiry="1s",
        )
        return self._last

    def open_sink(self, name: str) -> Sink:
        return MQTTSink(url=self._url, topic=f"{self._side}-results/{name}/{{stream}}")

    def wait_for_subscription(self) -> None:
        assert self._last is not None
        self._last.open()

    def publish(self, streams: Sequence[str], messages: int) -> float:
        begin = time.thread_time()
        outgoing = []
        for stream in streams:
            first = self._sent.get(stream, 0)
            self._sent[stream] = first + messages
            for batch in riot_source(stream).read({"start": first, "end": first + messages}):
                outgoing += [OutgoingMessage(f"{self._side}/{stream}", one) for one in batch["payload"].to_pylist()]
        connection = MQTTConnection(url=self._url, client_id=f"{self._side}-sensors")
        open_publisher(connection).publish(outgoing, qos=1, retain=False, expiry_s=None)
        return time.thread_time() - begin


def end_measures(name: str, flows: Mapping[str, Dataflow], actions: Sequence[Action]) -> Iterator[Measure]:
    """Measure the CPU time of a trace with each kind of ends, shared and separate, in this process.

    Parameters
    ----------
    name : str
        Prefix of the measures' names; the kind of ends follows.
    flows : mapping of str to Dataflow
        Dataflows over the streams of RIoTBench.
    actions : sequence of Action
    """
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    each = MESSAGES_PER_ACTION
    with temporary_folder() as folder, Mosquitto(options=("max_queued_messages 0",)) as broker:
        assert broker.process is not None
        broker_cpu = ProcessTree(pid=broker.process.pid).cpu_seconds
        # loads all code
        for shared in (True, False):
            trace_cost(DiscardingEnds(), shared, flows, actions, each)
        trace_cost(BrokerEnds(broker.url, folder / "warm", "warm"), True, flows, actions[:1], 1)
        with pinned_to_one_core():
            spent, brokers = dict[str, tuple[float, float]](), list[float]()
            for kind in ("discard", "mqtt"):
                costs = []
                for side in ("together", "apart"):
                    ends: Ends = DiscardingEnds() if kind == "discard" else BrokerEnds(broker.url, folder / side, side)
                    before = broker_cpu()
                    costs.append(trace_cost(ends, side == "together", flows, actions, each))
                    brokers.append(broker_cpu() - before)
                spent[kind] = costs[0], costs[1]
    for kind, (together, apart) in spent.items():
        what = f"CPU seconds shared ({together:.2f}) and separate ({apart:.2f}), {each} messages per stream and action"
        yield Measure(f"{name}/{kind}/cpu-reduction", 1 - together / apart, "share", what, published=0.51)
    for at, side in enumerate(("together", "apart")):
        share = 1 - spent["discard"][at] / spent["mqtt"][at]
        what = "share of the CPU time that subscriptions and publishing take, against ends that discard"
        yield Measure(f"{name}/ends-share/{side}", share, "share", what)
    if brokers[3]:  # the system counts hundredths of a second
        what = f"the broker's CPU seconds shared ({brokers[2]:.2f}) and separate ({brokers[3]:.2f}), with all messages"
        yield Measure(f"{name}/mqtt/broker-cpu-reduction", 1 - brokers[2] / brokers[3], "share", what)


def trace_cost(ends: Ends, shared: bool, flows: Mapping[str, Dataflow], actions: Sequence[Action], each: int) -> float:
    """Run a trace with ``each`` messages of each stream after each action; return the CPU seconds of the dataflows.

    All running dataflows get all messages before the next action. Raises :class:`ConnectorError` if they do not, or if
    a dataflow fails.
    """
    streams = sorted({node.id for flow in flows.values() for node in flow.nodes_of_kind("source")})
    begin, sending, there = time.process_time(), 0.0, 0
    with closing(Side(shared, flows, ends.open_source, ends.open_sink, each)) as side:
        for action in actions:
            side.apply(action)
            progress = side.progress()
            before, there = there, sum(sources for _, sources in progress.values())
            due = {name: read + each * sources for name, (read, sources) in progress.items()}
            side.turn()
            if there > before:  # otherwise the dataflow reads an open source instead of its own
                ends.wait_for_subscription()
            sending += ends.publish(streams, each)
            limit = time.monotonic() + TIMEOUT_S
            while any(read < due[name] for name, (read, _) in side.progress().items()):
                if time.monotonic() > limit:
                    raise ConnectorError(f"the dataflows have not got all messages within {TIMEOUT_S:g} s")
                time.sleep(POLL_S)
                side.turn()
            if failed := side.failures():
                raise ConnectorError(f"dataflows have failed: {failed}")
    return time.process_time() - begin - sending
