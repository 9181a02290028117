"""Watching a running dataflow: a monitor of its counts, its live page, and metrics."""

from riot_ops.monitoring.monitor import Monitor
from riot_ops.monitoring.opentelemetry import export_metrics
from riot_ops.monitoring.server import LiveServer
from riot_ops.monitoring.shared_monitor import SharedMonitor

__all__ = ["LiveServer", "Monitor", "SharedMonitor", "export_metrics"]
