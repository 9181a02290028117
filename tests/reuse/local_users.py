"""Users of a manager over the back end in process, and their records in separate runs."""

from __future__ import annotations

import contextlib

import riot_ops as ro
from riot_ops.reuse import LocalBackend, ReuseManager, errors
from tests.random_flows import everything, ordered, random_flow, random_input
from tests.reuse.sharing import overlapping_flow


class Got:
    """The content of a sink in memory, read like the result of a run."""

    def __init__(self, sink):
        self.sink = sink

    def __getitem__(self, stream):
        return self.sink.table(stream)


class Users:
    """A manager over random logs, its dataflows and their sinks."""

    def __init__(self, choose, rows=40, policy="always", batch_size=None):
        names = ("north", "south", "west", "in0", "in1")
        self.logs = {name: random_input(choose, rows) for name in names}
        self.backend = LocalBackend(batch_size or choose.randint(1, 12))
        self.manager = ReuseManager(self.backend, policy)
        self.flows, self.sinks, self.first = {}, {}, {}

    def submit(self, flow, name):
        sink = ro.MemorySink()
        sources = {n.id: self.logs[n.id] for n in flow.nodes_of_kind("source")}
        report = self.manager.submit(flow, sources, sink, name=name)
        self.flows[name], self.sinks[name], self.first[name] = flow, sink, report.first
        return report

    def got(self, name, nodes=None):
        return everything(Got(self.sinks[name]), self.flows[name], nodes)

    def alone(self, name, nodes=None):
        flow = self.flows[name]
        logs = {s: self.logs[s].slice(first) for s, first in self.first[name].items()}
        return everything(flow.run(logs), flow, nodes)


def any_flow(choose, name):
    if choose.random() < 0.5:
        return overlapping_flow(choose, name)
    flow = random_flow(choose, sources=choose.choice([1, 1, 2]))
    if flow.nodes_of_kind("source")[1:]:
        flow.merging = choose.choice(["arrival", "number", "sequence"])
    return flow


def submit_any(users, choose, name):
    """Submit a random dataflow; one that may not be submitted is replaced by another."""
    while True:
        with contextlib.suppress(errors.NotDeduplicatedError, errors.DisconnectedError):
            return users.submit(any_flow(choose, name), name)


def known(flow):
    """Nodes whose records have a defined order; None if all have."""
    return ordered(flow) if flow.merging == "arrival" else None
