"""The metrics of a run or of shared dataflows as Prometheus text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from riot_ops.monitoring.metrics import METRICS, samples

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(state: Mapping[str, Any]) -> str:
    """Return the metrics of a monitor's state in Prometheus' text format.

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
    lines = []
    for metric in METRICS[state["kind"]]:
        if known := samples(metric, state):
            name = metric.prometheus
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value}" for labels, value in known]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
