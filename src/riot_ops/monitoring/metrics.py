"""The metrics of a run or of shared dataflows: their names, and their values in the state of a monitor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["METRICS", "Metric", "Sample", "common_labels", "samples"]

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes
    ----------
    name : str
        Without the prefix ``riot_ops``, the unit and ``total``.
    kind : "counter" or "gauge"
    unit : "", "seconds" or "bytes"
    help : str
        What it is, as a sentence.
    read : function
        Returns its values of a status and a point of a monitor's state, with their labels; None where not known.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: Literal["", "seconds", "bytes"]
    help: str
    read: Callable[[Mapping[str, Any]], Iterator[tuple[dict[str, str], Any]]]

    @property
    def prometheus(self) -> str:
        """The name by Prometheus' conventions.

        >>> [one.prometheus for one in METRICS["run"][:3]]
        ['riot_ops_messages_total', 'riot_ops_records_total', 'riot_ops_step_read_total']
        """
        unit, total = f"_{self.unit}" if self.unit else "", "_total" if self.kind == "counter" else ""
        return f"riot_ops_{self.name}{unit}{total}"


def _status(*keys: str) -> Callable[[Mapping[str, Any]], Iterator[tuple[dict[str, str], Any]]]:
    """Read one value of the status."""

    def read(state: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Any]]:
        found: Any = state["status"]
        for key in keys:
            found = None if found is None else found.get(key)
        yield {}, found

    return read


def _point(key: str) -> Callable[[Mapping[str, Any]], Iterator[tuple[dict[str, str], Any]]]:
    return lambda state: iter([({}, state["points"][-1].get(key))])


def _by(
    label: str, items: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Callable[[Mapping[str, Any]], Iterator[tuple[dict[str, str], Any]]]:
    """Read a value for each entry of a mapping, with its key as a label."""
    return lambda state: (({label: str(key)}, value) for key, value in items(state).items())


def _reasons(state: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Any]]:
    for name, n in state["status"]["reasons"].items():
        step, _, reason = name.partition(": ")
        yield {"step": step, "reason": reason}, n


def _percentiles(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name.removeprefix("p"): value for name, value in state["status"]["latency_seconds"].items()}


def _parts(state: Mapping[str, Any]) -> Mapping[str, float]:
    return {part: ms / 1e3 for part, ms in (state["points"][-1]["parts_ms"] or {}).items()}


MEMORY = (
    Metric("memory", "gauge", "bytes", "Resident memory of the process.", _point("memory_bytes")),
    Metric(
        "children_memory",
        "gauge",
        "bytes",
        "Memory of the JVM and the workers that the process has started.",
        _point("children_memory_bytes"),
    ),
)
UP = Metric("up", "gauge", "", "1 while it runs.", lambda state: iter([({}, int(state["status"]["active"]))]))

#: The metrics by kind of state.
METRICS: Mapping[str, tuple[Metric, ...]] = {
    "run": (
        Metric("messages", "counter", "", "Records read from the sources.", _status("messages")),
        Metric(
            "records", "counter", "", "Records written, by stream.", _by("stream", lambda s: s["status"]["records"])
        ),
        Metric(
            "step_read",
            "counter",
            "",
            "Records that a step has read.",
            _by("step", lambda s: {step: one["read"] for step, one in s["status"]["steps"].items()}),
        ),
        Metric(
            "step_rejected",
            "counter",
            "",
            "Records that a step has rejected.",
            _by("step", lambda s: {step: one["rejected"] for step, one in s["status"]["steps"].items()}),
        ),
        Metric(
            "step_busy",
            "counter",
            "seconds",
            "In process: time that a step has taken, of all threads together.",
            _by("step", lambda s: s["status"].get("step_seconds", {})),
        ),
        Metric("rejected", "counter", "", "Rejected records, by step and reason.", _reasons),
        Metric("late", "counter", "", "Records rejected because they came too late.", _status("late")),
        Metric("batches", "counter", "", "Batches or micro-batches.", _status("batches")),
        Metric(
            "latency",
            "gauge",
            "seconds",
            "Time from the source to the sink of the newest records, by percentile.",
            _by("percentile", _percentiles),
        ),
        Metric("lag", "gauge", "seconds", "Age of the last records when they were processed.", _status("lag_seconds")),
        Metric("micro_batch_part", "gauge", "seconds", "Parts of the last micro-batch on Spark.", _by("part", _parts)),
        Metric("state_keys", "gauge", "", "Keys with state, over all steps.", _status("state_keys")),
        Metric("state", "gauge", "bytes", "Memory of the state of all steps.", _status("state_bytes")),
        Metric("queue", "gauge", "bytes", "Bytes that wait between the sources and the steps.", _status("queue_bytes")),
        *MEMORY,
        UP,
    ),
    "shared": (
        Metric("shared_dataflows", "gauge", "", "Dataflows that run.", _status("dataflows")),
        Metric("shared_failed_dataflows", "gauge", "", "Dataflows with a failed branch.", _status("failed")),
        Metric("shared_steps", "gauge", "", "Steps that run.", _status("steps")),
        Metric("shared_steps_alone", "gauge", "", "Steps that would run without sharing.", _status("steps_alone")),
        Metric("shared_sources", "gauge", "", "Sources that are read.", _status("sources")),
        Metric("shared_sources_alone", "gauge", "", "Sources read without sharing.", _status("sources_alone")),
        Metric("shared_queries", "gauge", "", "Queries on Spark.", _status("queries")),
        Metric(
            "shared_saved_records",
            "counter",
            "",
            "Records that steps did not have to process again.",
            _status("saved_records"),
        ),
        Metric(
            "shared_step_records",
            "counter",
            "",
            "Records that a step has taken.",
            _by("step", lambda s: {step: n["records"] for step, n in s["nodes"].items() if n["kind"] != "sink"}),
        ),
        Metric(
            "shared_dataflow_records",
            "counter",
            "",
            "Records that the sinks of a dataflow got.",
            _by("name", lambda s: {one["name"]: one["rows"] for one in s["dataflows"]}),
        ),
        Metric("shared_dropped", "counter", "", "Records that some sink did not get.", _status("dropped")),
        Metric("shared_waiting", "gauge", "bytes", "Bytes that wait for slow sinks.", _status("waiting_bytes")),
        Metric("shared_unread", "gauge", "bytes", "Bytes between queries that are not read.", _status("unread_bytes")),
        Metric("state", "gauge", "bytes", "Memory of the state of all steps.", _status("state_bytes")),
        *MEMORY,
        UP,
    ),
}


def common_labels(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of all metrics of a state."""
    return {"dataflow": state["status"]["dataflow"], "runner": state["status"]["runner"]}


def samples(metric: Metric, state: Mapping[str, Any]) -> list[Sample]:
    """Return the values of a metric that are known, with their labels."""
    labels = common_labels(state)
    return [(labels | own, value) for own, value in metric.read(state) if value is not None]
