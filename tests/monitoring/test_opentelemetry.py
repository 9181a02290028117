"""Metrics of OpenTelemetry, read by the SDK's own reader."""

from __future__ import annotations

import gc
import sys

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.monitoring import export_metrics
from riot_ops.monitoring.metrics import METRICS, samples
from riot_ops.reuse import LocalBackend, ReuseManager
from tests.monitoring.test_metrics import ROWS, flow


def read(reader):
    """By name the kind, the unit, and the values by attributes."""
    found = {}
    data = reader.get_metrics_data()
    for resource in () if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.scope.name == "riot_ops"
            for one in scope.metrics:
                points = {frozenset(p.attributes.items()): p.value for p in one.data.data_points}
                if points:
                    found[one.name] = type(one.data).__name__, one.unit, points
    return found


def test_values_are_those_of_the_monitor():
    export = pytest.importorskip("opentelemetry.sdk.metrics.export", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.metrics import MeterProvider

    reader = export.InMemoryMetricReader()
    provider = MeterProvider([reader])
    run = flow().launch(ROWS)
    run.wait()
    with export_metrics(run, meter_provider=provider) as monitor:
        found = read(reader)
        for metric in METRICS["run"]:
            wanted = {frozenset(labels.items()): value for labels, value in samples(metric, monitor.state())}
            if not wanted:  # parts of a micro-batch
                assert f"riot_ops.{metric.name}" not in found
                continue
            kind, unit, points = found[f"riot_ops.{metric.name}"]
            assert points == wanted, metric.name
            assert kind == ("Sum" if metric.kind == "counter" else "Gauge")
            assert unit == {"seconds": "s", "bytes": "By", "": "1"}[metric.unit]
    del monitor
    # a second run and a manager have the same instruments, and all end with their monitors
    manager = ReuseManager(LocalBackend())
    manager.submit(flow("other"), ro.MemorySource([{"bed": "a", "value": 1.0}]), ro.MemorySink())
    again = flow("again").launch(ROWS)
    again.wait()
    with export_metrics(again, meter_provider=provider), export_metrics(manager, meter_provider=provider):
        found = read(reader)
        runs = {dict(labels)["dataflow"] for labels in found["riot_ops.messages"][2]}
        assert runs == {"again"}
        assert [*found["riot_ops.shared_dataflows"][2].values()] == [1]
    gc.collect()
    assert read(reader) == {}


def test_misuse_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtraError, match=r"riot-ops\[otel\]"):
        export_metrics(flow().launch(ROWS))
    monkeypatch.undo()
    pytest.importorskip("opentelemetry.metrics", reason="opentelemetry-api is not installed")
    with pytest.raises(ConfigError, match="meter_provider must be a MeterProvider"):
        export_metrics(flow().launch(ROWS), meter_provider=5)
    with pytest.raises(ConfigError, match="run must be what"):
        export_metrics(5)
