"""The live page of a run: what users call."""

from __future__ import annotations

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import Duration
from riot_ops.core.secret import Secret
from riot_ops.monitoring.monitor import Monitor, Watchable
from riot_ops.monitoring.server import LiveServer, Watched
from riot_ops.monitoring.shared_monitor import Manager, SharedMonitor

__all__ = ["live"]


def live(
    run: Watchable | Manager,
    *,
    url: str = "http://127.0.0.1",
    token: Secret | None = None,
    every: Duration = "1s",
) -> LiveServer:
    """Show a running dataflow, or the shared dataflows of a manager, in the browser.

    The page has the dataflow's diagram with records per second, series of throughput, latency and memory, the newest
    values of each stream and the newest rejected records; of a manager, its dataflows and what sharing saves. It needs
    no network. It stays up after the end of the run, until ``close()``; ``save(path)`` keeps it as a file.

    Parameters
    ----------
    run : Run, Query or ReuseManager
        What ``flow.launch`` or ``flow.start`` returned, or a manager of shared dataflows.
    url : str, default "http://127.0.0.1"
        Address to serve on, with a port unless a free one will do; one that other machines reach needs ``token``.
    token : Secret, optional
        What readers have to give: open ``url`` with ``?token=…``.
    every : timedelta or text, default "1s"
        Time between looks at the run.

    Returns
    -------
    LiveServer
        ``url`` is the address of the page, and ``monitor`` what it shows.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"value": "double"})
    >>> _ = readings.apply(ro.tasks.KalmanFilter(), id="kalman").to("out")
    >>> with flow.launch([{"value": 21.5}]) as run, ro.live(run) as page:
    ...     page.url
    'http://127.0.0.1:.../'
    """
    if not isinstance(run, Watchable | Manager):
        raise ConfigError(
            f"run must be what flow.launch or flow.start returned, or a ReuseManager, got {value_text(run)}"
        )
    monitor: Watched = Monitor(run, every) if isinstance(run, Watchable) else SharedMonitor(run, every)
    try:
        return LiveServer(monitor, url, token)
    except BaseException:
        monitor.stop()
        raise
