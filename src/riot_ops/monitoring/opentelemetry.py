"""The metrics of runs as observable instruments of OpenTelemetry, with the program's own meter provider."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterable
from typing import Any

from riot_ops.core.errors import ConfigError, MissingExtraError, value_text
from riot_ops.core.parameters import Duration
from riot_ops.monitoring.metrics import METRICS, Metric, samples
from riot_ops.monitoring.monitor import Monitor, Watchable
from riot_ops.monitoring.shared_monitor import Manager, SharedMonitor

__all__ = ["export_metrics", "find_provider", "offer"]

#: Units by the convention of OpenTelemetry, from which exporters make Prometheus' suffixes.
UNITS = {"seconds": "s", "bytes": "By", "": "1"}

_lock = threading.Lock()
_exports: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def export_metrics(
    run: Watchable | Manager, *, meter_provider: Any = None, every: Duration = "1s"
) -> Monitor | SharedMonitor:
    """Offer the metrics of a run, or of shared dataflows, to OpenTelemetry.

    They have the names of ``/metrics`` (``docs/howto/live.md``) with a dot after the prefix, and the unit beside it,
    from which exporters to Prometheus make the same names; labels are attributes. Readers and exporters are those of
    the provider. The values are those of the monitor's last look.

    Parameters
    ----------
    run : Run, Query or ReuseManager
        What ``flow.launch`` or ``flow.start`` returned, or a manager of shared dataflows.
    meter_provider : MeterProvider, optional
        By default the one that the program has set with ``opentelemetry.metrics.set_meter_provider``.
    every : timedelta or text, default "1s"
        Time between looks.

    Returns
    -------
    Monitor or SharedMonitor
        The metrics are offered as long as it exists; ``stop()`` ends the looks.

    Raises
    ------
    MissingExtraError
        Without ``opentelemetry-api``, the extra ``otel``.

    Examples
    --------
    With ``opentelemetry-sdk``::

        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))
        run = flow.launch(source)
        with export_metrics(run):
            run.wait()
    """
    provider = find_provider(meter_provider)
    if not isinstance(run, Watchable | Manager):
        raise ConfigError(
            f"run must be what flow.launch or flow.start returned, or a ReuseManager, got {value_text(run)}"
        )
    monitor = Monitor(run, every) if isinstance(run, Watchable) else SharedMonitor(run, every)
    offer(monitor, provider)
    return monitor


def find_provider(meter_provider: Any = None) -> Any:
    """Return a meter provider, by default that of the program; raise unless it is one."""
    try:
        from opentelemetry import metrics
    except ImportError:
        raise MissingExtraError("OpenTelemetry", "otel") from None
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise ConfigError(f"meter_provider must be a MeterProvider of OpenTelemetry, got {value_text(meter_provider)}")
    return metrics.get_meter_provider() if meter_provider is None else meter_provider


def offer(monitor: Any, provider: Any) -> None:
    """Offer the metrics of a monitor to a provider, as long as the monitor exists."""
    with _lock:
        if provider not in _exports:
            _exports[provider] = _create_instruments(provider)
        _exports[provider].add(monitor)


def _create_instruments(provider: Any) -> weakref.WeakSet[Any]:
    """Create the instruments of a provider, which can have each name once; returns the monitors that they read."""
    monitors: weakref.WeakSet[Any] = weakref.WeakSet()
    meter = provider.get_meter("riot_ops")
    created: set[str] = set()
    for _kind, known in METRICS.items():
        for metric in known:
            if metric.name in created:
                continue
            created.add(metric.name)
            kinds = {one for one, found in METRICS.items() if any(metric.name == other.name for other in found)}
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            create(
                f"riot_ops.{metric.name}",
                [functools.partial(_observe, metric, kinds, monitors)],
                unit=UNITS[metric.unit],
                description=metric.help,
            )
    return monitors


def _observe(metric: Metric, kinds: set[str], monitors: weakref.WeakSet[Any], _: Any) -> Iterable[Any]:
    from opentelemetry.metrics import Observation

    for monitor in list(monitors):
        if monitor.kind in kinds:
            yield from (Observation(value, labels) for labels, value in samples(metric, monitor.state()))
