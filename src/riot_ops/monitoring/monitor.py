"""The monitor of a run: its counts, rates and newest records from second to second, for the live page and metrics."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import escape_surrogates
from riot_ops.core.json_rows import plain_column
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.diagram import svg
from riot_ops.graph.graph import Graph

__all__ = ["Monitor", "Watchable"]

#: Points of the series that are kept: 15 minutes of seconds.
MAX_POINTS = 900
#: Rejected records that are kept, records of each stream, and characters of a text in them.
MAX_LETTERS, MAX_RECORDS, MAX_TEXT = 50, 200, 500
#: The largest whole number that a browser keeps exactly.
MAX_INTEGER = 2**53
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_log = logging.getLogger("riot_ops")
_JSON = msgspec.json.Encoder(decimal_format="string", enc_hook=str)


class Watchable(Protocol):
    """What a monitor watches: a :class:`~riot_ops.runtime.background_run.Run` or a query on Spark."""

    flow: Graph

    def status(self) -> dict[str, Any]:
        """Return the state and the counts so far."""

    def newest(self) -> Mapping[str, pa.RecordBatch]:
        """Return samples of the newest records by stream."""


class Monitor:
    """Looks at a running dataflow each second, until it ends, and keeps what it saw.

    It reads counts that the run keeps anyway, and samples of the newest records. Rates are those since the look before.

    Parameters
    ----------
    run : Run or Query
        What ``flow.launch`` or ``flow.start`` returned.
    every : timedelta or text, default "1s"
        Time between looks.

    Attributes
    ----------
    version : int
        Number of looks so far.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"value": "double"})
    >>> _ = readings.apply(ro.tasks.KalmanFilter(), id="kalman").to("out")
    >>> run = flow.launch([{"value": 21.5}, {"value": 21.0}])
    >>> _ = run.wait()
    >>> with Monitor(run) as monitor:
    ...     state = monitor.state()
    >>> state["status"]["records"], state["nodes"]["kalman"]["read"], len(state["points"])
    ({'kalman': 2}, 2, 1)
    """

    def __init__(self, run: Watchable, every: Duration = "1s") -> None:
        self._run = run
        self._every = duration_seconds("every", every)
        self.version = 0
        self._points: deque[dict[str, Any]] = deque(maxlen=MAX_POINTS)
        self._letters: deque[dict[str, Any]] = deque(maxlen=MAX_LETTERS)
        self._records: dict[str, deque[dict[str, Any]]] = {}
        self._last_rows: dict[str, str] = {}  # the last sampled row of each stream
        self._before: dict[str, Any] | None = None
        self._state: dict[str, Any] = {}
        self._events: tuple[int, bytes, bytes | None] = (0, b"", None)  # the last look, and all, made when asked for
        self._stopped = threading.Event()
        self._diagram = svg(run.flow, dict.fromkeys(run.flow.nodes, "–"))  # each box has room for a figure
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="riot_ops-monitor")
        self._thread.start()

    @property
    def active(self) -> bool:
        """Whether the run was active at the last look."""
        return bool(self._state["status"]["active"])

    def state(self) -> dict[str, Any]:
        """Return all that is known, as JSON-able data; it is not changed later.

        ``status`` is that of the run, ``diagram`` an SVG image of the dataflow, ``spark_ui`` the address of Spark's own
        page, or None. ``nodes`` has, by node of the dataflow, the records ``read``, ``rejected``,
        ``late`` and ``written`` so far, and ``per_second``. ``edges`` has source, target and records ``per_second``,
        None where it is not known. ``points`` are the series, ``letters`` the newest rejected records, ``records`` the
        newest ones by stream.
        """
        return self._state

    def events(self, seen: int) -> tuple[int, bytes]:
        """Return the last look as a server-sent event, and its version; all that is known to a reader that missed one.

        Parameters
        ----------
        seen : int
            Version of what the reader has; 0 if it has nothing.
        """
        version, look, whole = self._events
        if seen == version - 1 and seen:
            return version, look
        if whole is None:
            whole = _event("state", self._state)
            self._events = version, look, whole
        return version, whole

    def stop(self) -> None:
        """Look a last time and stop; may be called twice."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self) -> None:
        try:
            while self.active and not self._stopped.is_set():
                self._stopped.wait(self._every)
                self._look()
        except Exception:
            _log.exception("the dataflow %r is no longer watched", self._run.flow.name)

    def _look(self) -> None:
        status, newest = self._run.status(), self._run.newest()
        now = time.time()
        look: dict[str, Any] = {"version": self.version + 1, "status": status, "letters": [], "records": {}}
        self._take_records(newest, now, look)
        before = self._before or {**status, "time": now, "messages": status["messages"], "steps": {}, "records": {}}
        seconds = max(now - before["time"], 1e-9)

        def rate(count: Callable[[dict[str, Any]], int]) -> float:
            return max(0.0, (count(status) - count(before)) / seconds) if self._before else 0.0

        look["nodes"] = {node: self._node(node, status, rate) for node in self._run.flow.nodes}
        look["edges"] = self._edges(look["nodes"], rate)
        look["point"] = {
            "time": round(now, 3),
            "messages": status["messages"],
            "messages_per_second": round(rate(lambda s: int(s["messages"])), 1),
            "rejected": status["rejected"],
            "late": status["late"],
            **status["latency_seconds"],
            "lag": status["lag_seconds"],
            "queue_bytes": status.get("queue_bytes"),
            "state_keys": status["state_keys"],
            "memory_bytes": _memory_bytes(),
            "parts_ms": self._parts(),
        }
        self._points.append(look["point"])
        self._before = {**status, "time": now}
        self._state = {
            **{name: look[name] for name in ("version", "status", "nodes", "edges")},
            "diagram": self._diagram,
            "spark_ui": self._spark_ui(),
            "points": list(self._points),
            "letters": list(self._letters),
            "records": {stream: list(found) for stream, found in self._records.items()},
        }
        self._events = self.version + 1, _event("look", look), None
        self.version += 1

    def _node(self, id: str, status: dict[str, Any], rate: Callable[[Callable[[dict[str, Any]], int]], float]) -> Any:
        node = self._run.flow.nodes[id]
        if node.kind == "sink":
            streams = [edge.source for edge in self._run.flow.inputs(id)]
            written = sum(status["records"].get(stream, 0) for stream in streams)
            per_second = rate(lambda s: sum(s["records"].get(stream, 0) for stream in streams))
            return {"kind": "sink", "written": written, "per_second": round(per_second, 1)}
        read = status["steps"].get(id, {}).get("read", 0)
        found = {
            "kind": node.kind,
            "read": read,
            "rejected": status["steps"].get(id, {}).get("rejected", 0),
            "late": status["reasons"].get(f"{id}: late", 0),
            "per_second": round(rate(lambda s: int(s["steps"].get(id, {}).get("read", 0))), 1),
        }
        return found if id not in status["records"] else {**found, "written": status["records"][id]}

    def _edges(
        self, nodes: Mapping[str, Any], rate: Callable[[Callable[[dict[str, Any]], int]], float]
    ) -> list[dict[str, Any]]:
        """Return the records per second over each edge: what its target reads, if it reads nothing else."""
        flow, found = self._run.flow, []
        for edge in flow.edges:
            alone = len(flow.inputs(edge.target)) == 1
            per_second = nodes[edge.target]["per_second"] if alone else None
            if nodes[edge.target]["kind"] == "sink":
                per_second = round(rate(lambda s, stream=edge.source: int(s["records"].get(stream, 0))), 1)  # type: ignore[misc]
            found.append({"source": edge.source, "target": edge.target, "per_second": per_second})
        return found

    def _spark_ui(self) -> str | None:
        """Return the address of Spark's own page about the query."""
        streaming = getattr(self._run, "streaming", None)
        context = getattr(getattr(streaming, "_spark", None), "sparkContext", None)
        return getattr(context, "uiWebUrl", None)

    def _parts(self) -> dict[str, Any] | None:
        """Return Spark's times of the last micro-batch."""
        batches = getattr(self._run, "micro_batches", None)
        return dict(batches[-1]["durations_ms"]) if batches else None

    def _take_records(self, newest: Mapping[str, pa.RecordBatch], now: float, look: dict[str, Any]) -> None:
        """Keep the sampled records that were not seen before, and add them to a look."""
        for stream, batch in newest.items():
            rows = [_plain(row) for row in _rows(batch)]
            fresh = _after(rows, self._last_rows.get(stream))
            if not fresh:
                continue
            self._last_rows[stream] = str(fresh[-1])
            if stream == ERRORS_STREAM:
                look["letters"] += [{"seen": round(now, 3), **row} for row in fresh]
            else:
                look["records"][stream] = fresh
        self._letters.extend(look["letters"])
        for stream, rows in look["records"].items():
            self._records.setdefault(stream, deque(maxlen=MAX_RECORDS)).extend(rows)


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [plain_column(column) for column in batch.columns]
    return list(pa.table(columns, names=batch.schema.names).to_pylist())


def _after(rows: list[dict[str, Any]], last: str | None) -> list[dict[str, Any]]:
    """Return the rows after one that was seen; all if it is not among them."""
    for i in range(len(rows) - 1, -1, -1):
        if str(rows[i]) == last:
            return rows[i + 1 :]
    return rows


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, with long texts cut."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        text = escape_surrogates(value)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return str(value)
    if isinstance(value, bool | int | type(None)):
        return value
    return msgspec.json.decode(_JSON.encode(value))


def _memory_bytes() -> int | None:
    """Return the resident memory of this process, where Linux reports it."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
    return None
