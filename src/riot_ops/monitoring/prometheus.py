"""The state of a run as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(state: Mapping[str, Any]) -> str:
    """Return the counts of a monitor's state in Prometheus' text format.

    >>> import riot_ops as ro
    >>> from riot_ops.monitoring import Monitor
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"value": "double"})
    >>> _ = readings.apply(ro.tasks.KalmanFilter(), id="kalman").to("out")
    >>> run = flow.launch([{"value": 21.5}])
    >>> _ = run.wait()
    >>> with Monitor(run) as monitor:
    ...     print(metrics_text(monitor.state()).splitlines()[2])
    riot_ops_messages_total{dataflow="smooth",runner="in process"} 1
    """
    status, point = state["status"], state["points"][-1]
    run = {"dataflow": status["dataflow"], "runner": status["runner"]}
    latency = status["latency_seconds"]
    families: list[tuple[str, str, str, list[tuple[dict[str, str], Any]]]] = [
        ("messages_total", "counter", "Records read from the sources.", [({}, status["messages"])]),
        (
            "records_total",
            "counter",
            "Records written, by stream.",
            [({"stream": name}, n) for name, n in status["records"].items()],
        ),
        ("step_read_total", "counter", "Records that a step has read.", list(_steps(status, "read"))),
        ("step_rejected_total", "counter", "Records that a step has rejected.", list(_steps(status, "rejected"))),
        (
            "rejected_total",
            "counter",
            "Rejected records, by step and reason.",
            [
                ({"step": step, "reason": reason}, n)
                for name, n in status["reasons"].items()
                for step, _, reason in [name.partition(": ")]
            ],
        ),
        ("late_total", "counter", "Records rejected because they came too late.", [({}, status["late"])]),
        ("batches_total", "counter", "Batches or micro-batches.", [({}, status["batches"])]),
        (
            "latency_seconds",
            "gauge",
            "Time from the source to the sink of the newest records, by quantile.",
            [
                ({"quantile": quantile}, latency[name])
                for name, quantile in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99"))
            ],
        ),
        (
            "lag_seconds",
            "gauge",
            "Age of the last records when they had been processed.",
            [({}, status["lag_seconds"])],
        ),
        ("state_keys", "gauge", "Keys with state, over all steps.", [({}, status["state_keys"])]),
        ("queue_bytes", "gauge", "Bytes that wait before the steps.", [({}, status.get("queue_bytes"))]),
        ("memory_bytes", "gauge", "Resident memory of the process.", [({}, point["memory_bytes"])]),
        ("up", "gauge", "1 while the dataflow runs.", [({}, int(status["active"]))]),
    ]
    lines = []
    for name, kind, text, samples in families:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines += [f"# HELP riot_ops_{name} {text}", f"# TYPE riot_ops_{name} {kind}"]
            lines += [f"riot_ops_{name}{{{_labels(run | labels)}}} {value}" for labels, value in known]
    return "\n".join(lines) + "\n"


def _steps(status: Mapping[str, Any], what: str) -> Iterator[tuple[dict[str, str], int]]:
    for step, counts in status["steps"].items():
        yield {"step": step}, counts[what]


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
