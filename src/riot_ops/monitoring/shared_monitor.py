"""The monitor of shared dataflows: what a manager runs, what sharing saves, and for whom."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from riot_ops.core.parameters import Duration
from riot_ops.monitoring.watcher import Watcher

__all__ = ["Manager", "SharedMonitor"]

#: Dataflows of which the page shows a row, and steps up to which it draws the diagram.
MAX_DATAFLOWS, MAX_DRAWN = 500, 400


@runtime_checkable
class Manager(Protocol):
    """What a monitor of shared dataflows watches: a :class:`~riot_ops.reuse.ReuseManager`."""

    backend: Any

    def stats(self) -> dict[str, Any]:
        """Return what runs, what would run without sharing, and the figures of the back end."""

    def savings(self) -> Any:
        """Return the records per second of each step, and those that sharing saves; None while they are not known."""

    def usage(self) -> Any:
        """Return the users of each step, the records that it has taken, and those charged to each owner."""

    def svg(self, *, figures: bool = True) -> str:
        """Return the running steps as a diagram."""


class SharedMonitor(Watcher):
    """Looks at a manager of shared dataflows each second, until it is stopped, and keeps what it saw.

    Parameters
    ----------
    manager : ReuseManager
    every : timedelta or text, default "1s"
        Time between looks.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import LocalBackend, ReuseManager
    >>> manager, readings = ReuseManager(LocalBackend()), ro.MemorySource([{"value": 1.0}] * 30)
    >>> def submit(name):
    ...     flow = ro.Dataflow(name)
    ...     stream = flow.source("readings", schema={"value": "double"}).to(ro.tasks.KalmanFilter(), id="kalman")
    ...     return manager.submit(flow.sink("out", stream), readings, ro.MemorySink())
    >>> _ = submit("a"), submit("b")
    >>> with SharedMonitor(manager) as monitor:
    ...     status = monitor.state()["status"]
    >>> status["steps"], status["steps_alone"]
    (3, 6)
    """

    kind = "shared"

    def __init__(self, manager: Manager, every: Duration = "1s") -> None:
        self._manager = manager
        self._drawn: tuple[Any, str | None] = (None, None)
        super().__init__("the manager", every)

    def state(self) -> dict[str, Any]:
        """Return all that is known, as JSON-able data; it is not changed later.

        ``kind`` is "shared". ``status`` has ``active``, ``error``, ``dataflows`` (how many), ``steps`` that run and
        ``steps_alone`` that would without sharing, ``sources`` and ``sources_alone``, ``records`` that the steps have
        taken and ``saved_records`` that they did not have to. ``dataflows`` has a row for each of them, ``owners``
        their share of the records, ``nodes`` the users and records of each step, ``diagram`` an SVG image of the
        steps, or None if there are none or too many, and ``points`` the series.
        """
        return super().state()

    def _look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        stats, usage, savings = self._manager.stats(), self._manager.usage(), self._manager.savings()
        error = getattr(self._manager.backend, "error", None)
        rates = {} if savings is None else savings.rates
        status = {
            "dataflow": "shared dataflows",
            "runner": "spark" if "queries" in stats else "in process",
            "active": error is None and not self._stopped.is_set(),
            "error": None if error is None else type(error).__name__,
            "dataflows": len(stats["dataflows"]),
            **{name: stats[name] for name in ("steps", "steps_alone", "sources", "sources_alone", "groups")},
            "records": sum(step.records for step in usage.steps),
            "saved_records": stats.get("spared"),
            "failed": len(stats.get("failed", {})),
            "dropped": sum(sum(streams.values()) for streams in stats.get("dropped", {}).values()),
            "waiting_bytes": sum(stats.get("slow", {}).values()),
            "unread_bytes": sum(stats.get("unread_bytes", {}).values()) if "unread_bytes" in stats else None,
            "queries": stats.get("queries"),
            "state_bytes": stats.get("state_bytes"),
        }
        point = {
            "time": round(time.time(), 3),
            "records_per_second": round(sum(rates.values()), 1),
            "saved_records_per_second": round(0.0 if savings is None else savings.records, 1),
            "saved_messages_per_second": round(0.0 if savings is None else savings.messages, 1),
            **{name: status[name] for name in ("steps", "steps_alone", "waiting_bytes", "unread_bytes", "state_bytes")},
            **self._memory.read(others="queries" in stats),
        }
        nodes = {
            step.step: {
                "kind": step.kind,
                "records": step.records,
                "per_second": round(rates.get(step.step, 0.0), 1),
                "users": list(step.dataflows),
            }
            for step in usage.steps
        }
        look = {
            "status": status,
            "dataflows": _rows(stats),
            "owners": {owner: {"records": one.records, "share": one.share} for owner, one in usage.owners.items()},
            "nodes": nodes if len(nodes) <= MAX_DRAWN else {},
            "diagram": self._diagram(stats, nodes),
            "point": point,
        }
        return look, {"spark_ui": self._spark_ui()}

    def _diagram(self, stats: Mapping[str, Any], nodes: Mapping[str, Any]) -> str | None:
        """Return the diagram, drawn again only if other steps run or others use them."""
        if not 0 < len(nodes) <= MAX_DRAWN:
            return None
        if self._drawn[0] != stats["version"]:
            self._drawn = stats["version"], self._manager.svg(figures=False)
        return self._drawn[1]

    def _spark_ui(self) -> str | None:
        context = getattr(getattr(self._manager.backend, "spark", None), "sparkContext", None)
        return getattr(context, "uiWebUrl", None)


def _rows(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    failed, dropped, slow, rows = (stats.get(name, {}) for name in ("failed", "dropped", "slow", "rows"))
    return [
        {
            "name": name,
            **one,
            "rows": rows.get(name, 0),
            "failed": failed.get(name),
            "dropped": sum(dropped.get(name, {}).values()),
            "waiting_bytes": slow.get(name, 0),
        }
        for name, one in list(stats["dataflows"].items())[:MAX_DATAFLOWS]
    ]
