"""Dataflows that run in this process, shared through one manager or separately with a manager each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from riot_bench.suites.reuse.traces import Action
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.reuse.limits import Limits

__all__ = ["Side"]

#: A turn waits for its sinks, so that their CPU time counts where it is spent.
WAIT_FOR_SINKS = Limits(grace="1min")


class Side:
    """Dataflows that run shared or separately.

    Parameters
    ----------
    shared : bool
    flows : mapping of str to Dataflow
        The dataflows that actions name.
    open_source, open_sink : function
        Return a source for the name of a stream, and a sink for the name of a dataflow.
    batch_size : int
        Maximum number of messages of a source per turn.
    """

    def __init__(
        self,
        shared: bool,
        flows: Mapping[str, Dataflow],
        open_source: Callable[[str], Source],
        open_sink: Callable[[str], Sink],
        batch_size: int,
    ) -> None:
        self.shared, self._flows, self._batch_size = shared, flows, batch_size
        self._open_source, self._open_sink = open_source, open_sink
        self._managers: dict[str, ReuseManager] = {}
        if shared:
            self._managers[""] = self._manager()

    def _manager(self) -> ReuseManager:
        return ReuseManager(LocalBackend(self._batch_size, epoch="10000d", limits=WAIT_FOR_SINKS))

    def apply(self, action: Action) -> None:
        """Submit or remove a dataflow."""
        if action.op == "submit":
            flow = self._flows[action.name]
            manager = self._managers[""] if self.shared else self._managers.setdefault(action.name, self._manager())
            sources = {node.id: self._open_source(node.id) for node in flow.nodes_of_kind("source")}
            manager.submit(flow, sources, self._open_sink(action.name))
        elif self.shared:
            self._managers[""].remove(action.name)
        else:
            self._managers.pop(action.name).close()

    def turn(self) -> None:
        """Read each source once and process its records."""
        for manager in self._managers.values():
            assert isinstance(manager.backend, LocalBackend)
            manager.backend.turn()

    def progress(self) -> dict[str, tuple[int, int]]:
        """Return the number of messages read so far and the number of sources, by manager."""
        found = {name: manager.stats() for name, manager in self._managers.items()}
        return {name: (stats["messages"], stats["readings"]) for name, stats in found.items()}

    def failures(self) -> dict[str, str]:
        """Return the errors of dataflows that failed."""
        return {name: why for one in self._managers.values() for name, why in one.stats()["failed"].items()}

    def close(self) -> None:
        """Remove all dataflows."""
        for manager in self._managers.values():
            manager.close()
