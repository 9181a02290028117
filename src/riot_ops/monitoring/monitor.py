"""The monitor of a run: its counts, rates and newest records from second to second, for the live page and metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from riot_ops.core.errors import escape_surrogates
from riot_ops.core.json_rows import plain_column
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.diagram import svg
from riot_ops.graph.graph import Graph
from riot_ops.monitoring.watcher import Watcher

__all__ = ["Monitor", "Watchable"]

#: Rejected records that are kept, records of each stream, and characters of a text in them.
MAX_REJECTED, MAX_RECORDS, MAX_TEXT = 50, 200, 500
#: Lines of a box of the diagram, which the page fills: records, time, and what is wrong.
NOTE = "–", " ", " "
#: How far rates go back, if not to the look before: counts of micro-batches come in jumps.
RATE_SECONDS = {"spark": 5.0}
#: Room in the diagram for the figures of an edge.
EDGE_WIDTH = 80
#: The largest whole number that a browser keeps exactly.
MAX_INTEGER = 2**53
_JSON = msgspec.json.Encoder(decimal_format="string", enc_hook=str)


@runtime_checkable
class Watchable(Protocol):
    """What a monitor watches: a :class:`~riot_ops.runtime.background_run.Run` or a query on Spark."""

    flow: Graph

    def status(self) -> dict[str, Any]:
        """Return the state and the counts so far."""

    def newest(self) -> Mapping[str, pa.RecordBatch]:
        """Return samples of the newest records by stream."""


class Monitor(Watcher):
    """Looks at a running dataflow each second, until it ends, and keeps what it saw.

    It reads counts that the run keeps anyway, and samples of the newest records. Rates are those since the look before,
    on Spark of five seconds.

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

    kind = "run"

    def __init__(self, run: Watchable, every: Duration = "1s") -> None:
        self._run = run
        self._rejected: deque[dict[str, Any]] = deque(maxlen=MAX_REJECTED)
        self._records: dict[str, deque[dict[str, Any]]] = {}
        self._last_rows: dict[str, str] = {}  # the last sampled row of each stream
        self._looks: deque[dict[str, Any]] = deque()  # those that rates go back to
        self._before: dict[str, Any] | None = None
        self._diagram = svg(run.flow, dict.fromkeys(run.flow.nodes, NOTE), gap_x=EDGE_WIDTH)
        super().__init__(f"the dataflow {run.flow.name!r}", every)

    def state(self) -> dict[str, Any]:
        """Return all that is known, as JSON-able data; it is not changed later.

        ``kind`` is "run", ``status`` that of the run, ``diagram`` an SVG image of the dataflow, ``spark_ui`` the
        address of Spark's own page, or None. ``nodes`` has, by node of the dataflow, the records ``read``,
        ``rejected``, ``late`` and ``written`` so far, ``per_second``, ``batch_seconds`` (in process: time that a step
        takes for a batch, of all threads together) and ``latency`` (of a sink: from the source, median). ``edges`` has
        source, target, records ``per_second`` and ``queue_bytes`` (in process: what waits there), None where it is not
        known. ``points`` are the series, ``rejected_records`` and ``records`` the newest ones, the latter by stream.
        """
        return self._state

    def _look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        status, newest = self._run.status(), self._run.newest()
        now = time.time()
        look: dict[str, Any] = {"status": status, "rejected_records": [], "records": {}}
        self._take_records(newest, now, look)
        while len(self._looks) > 1 and self._looks[0]["time"] < now - RATE_SECONDS.get(status["runner"], 0.0):
            self._looks.popleft()
        self._before = self._looks[0] if self._looks else None
        before = self._before or {**status, "time": now}
        seconds = max(now - before["time"], 1e-9)

        def rate(count: Callable[[dict[str, Any]], int]) -> float:
            return max(0.0, (count(status) - count(before)) / seconds) if self._before else 0.0

        look["nodes"] = {node: self._node(node, status, rate) for node in self._run.flow.nodes}
        look["edges"] = self._edges(look["nodes"], status, rate)
        memory = self._memory.read(others=status["runner"] == "spark")
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
            "state_bytes": status.get("state_bytes"),
            **memory,
            "parts_ms": self._parts(),
        }
        self._looks.append({**status, "time": now})
        return look, {
            "diagram": self._diagram,
            "spark_ui": getattr(self._run, "spark_ui", None),
            "rejected_records": list(self._rejected),
            "records": {stream: list(found) for stream, found in self._records.items()},
        }

    def _node(self, id: str, status: dict[str, Any], rate: Callable[[Callable[[dict[str, Any]], int]], float]) -> Any:
        node = self._run.flow.nodes[id]
        if node.kind == "sink":
            streams = [edge.source for edge in self._run.flow.inputs(id)]
            written = sum(status["records"].get(stream, 0) for stream in streams)
            per_second = rate(lambda s: sum(s["records"].get(stream, 0) for stream in streams))
            latency = status["latency_seconds"]["p50"]
            return {"kind": "sink", "written": written, "per_second": round(per_second, 1), "latency": latency}
        read = status["steps"].get(id, {}).get("read", 0)
        found = {
            "kind": node.kind,
            "read": read,
            "rejected": status["steps"].get(id, {}).get("rejected", 0),
            "late": status["reasons"].get(f"{id}: late", 0),
            "per_second": round(rate(lambda s: int(s["steps"].get(id, {}).get("read", 0))), 1),
            "batch_seconds": self._batch_seconds(id, status),
        }
        return found if id not in status["records"] else {**found, "written": status["records"][id]}

    def _batch_seconds(self, id: str, status: dict[str, Any]) -> float | None:
        """Return how long a step took for a batch since the look before; None without a batch."""
        before = self._before or {}
        batches = status["batches"] - before.get("batches", 0)
        seconds, seconds_before = (one.get("step_seconds", {}).get(id) for one in (status, before))
        if seconds is None or batches <= 0:
            return None
        return max(0.0, float(seconds) - float(seconds_before or 0.0)) / int(batches)

    def _edges(
        self,
        nodes: Mapping[str, Any],
        status: dict[str, Any],
        rate: Callable[[Callable[[dict[str, Any]], int]], float],
    ) -> list[dict[str, Any]]:
        """Return the records per second over each edge: what its target reads, if it reads nothing else."""
        queues = status.get("queues")
        flow, found = self._run.flow, []
        for edge in flow.edges:
            alone = len(flow.inputs(edge.target)) == 1
            per_second = nodes[edge.target]["per_second"] if alone else None
            if nodes[edge.target]["kind"] == "sink":
                per_second = round(rate(lambda s, stream=edge.source: int(s["records"].get(stream, 0))), 1)  # type: ignore[misc]
            waits = flow.nodes[edge.source].kind == "source"
            found.append(
                {
                    "source": edge.source,
                    "target": edge.target,
                    "per_second": per_second,
                    "queue_bytes": queues.get(edge.source, 0) if waits and queues is not None else None,
                }
            )
        return found

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
                look["rejected_records"] += [{"seen": round(now, 3), **row} for row in fresh]
            else:
                look["records"][stream] = fresh
        self._rejected.extend(look["rejected_records"])
        for stream, rows in look["records"].items():
            self._records.setdefault(stream, deque(maxlen=MAX_RECORDS)).extend(rows)


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
