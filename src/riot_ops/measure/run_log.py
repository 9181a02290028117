"""Log messages of a run at level INFO: its start, its commits, rejected records, lag, and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from riot_ops.core.errors import escape_control
from riot_ops.measure.json_log import EVENT, PROGRESS_LOGGER
from riot_ops.measure.metrics import Summary

__all__ = ["LAG_SECONDS", "LOG_SECONDS", "RunLog"]

#: Minimum time between two messages of one kind.
LOG_SECONDS = 60.0
#: A run lags if records are this old when they have been processed.
LAG_SECONDS = 10.0

_log = logging.getLogger("riot_ops.run")
_progress = logging.getLogger(PROGRESS_LOGGER)


class RunLog:
    """Writes at most one message of each kind a minute; none has the content of records.

    After each commit it also writes the progress to the logger ``riot_ops.progress``, at level DEBUG, for programs that
    read log lines as JSON.

    Parameters
    ----------
    name : str
        Name of the dataflow.
    clock : function, optional
        Returns seconds, for tests; default: ``time.monotonic``.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._began = self._committed_at = clock()
        self._first_commit = True
        self._messages = 0  # at the last message about a commit
        self._rejected: dict[str, int] = {}  # by step and reason, at the last message about them
        self._rejected_at = self._lag_at = float("-inf")
        self._lagging = False

    def started(self, runner: str, *, continued: bool) -> None:
        """Log the start of the run."""
        _log.info(
            "the dataflow %r runs %s%s", self._name, runner, ", continued from its checkpoint" * continued,
            extra={EVENT: {"event": "started", "dataflow": self._name, "runner": runner, "continued": continued}},
        )  # fmt: skip

    def committed(self, summary: Summary) -> None:
        """Log the progress, new rejections, and whether the run keeps up."""
        now = self._clock()
        if self._first_commit or now - self._committed_at >= LOG_SECONDS:
            rate = (summary.messages - self._messages) / max(now - self._committed_at, 1e-3)
            _log.info(
                "the dataflow %r has committed %s messages (%s/s), and rejected %s records",
                self._name, f"{summary.messages:,}", f"{rate:,.0f}", f"{summary.errors:,}",
            )  # fmt: skip
            self._first_commit, self._committed_at, self._messages = False, now, summary.messages
        if _progress.isEnabledFor(logging.DEBUG):
            _progress.debug(
                "the dataflow %r has committed", self._name, extra={EVENT: self._event("progress", summary)}
            )
        self._log_rejections(summary, now)
        self._log_lag(summary, now)

    def _event(self, event: str, summary: Summary) -> dict[str, object]:
        return {
            "event": event,
            "dataflow": self._name,
            **summary.to_dict(),
            "seconds": round(self._clock() - self._began, 3),
        }

    def _log_rejections(self, summary: Summary, now: float) -> None:
        more = {name: n - self._rejected.get(name, 0) for name, n in summary.reasons.items()}
        more = {name: n for name, n in more.items() if n}
        if not more or now - self._rejected_at < LOG_SECONDS:
            return
        reasons = ", ".join(escape_control(f"{name} {n:,}") for name, n in sorted(more.items()))
        _log.info("the dataflow %r has rejected %s more records: %s", self._name, f"{sum(more.values()):,}", reasons)
        self._rejected, self._rejected_at = dict(summary.reasons), now

    def _log_lag(self, summary: Summary, now: float) -> None:
        lag = summary.latency.last_s()
        lags = lag >= LAG_SECONDS
        if (not lags and not self._lagging) or (lags == self._lagging and now - self._lag_at < LOG_SECONDS):
            return
        if lags:
            _log.info("the dataflow %r lags: its last records were %.0f s old", self._name, lag)
        elif now - self._lag_at < LOG_SECONDS:
            return
        else:
            _log.info("the dataflow %r has caught up", self._name)
        self._lagging, self._lag_at = lags, now

    def ended(self, summary: Summary, error: BaseException | None = None) -> None:
        """Log the end of the run; only the type of an error."""
        if error is None:
            how = "has ended"
        elif isinstance(error, KeyboardInterrupt):
            how = "was interrupted"
        else:
            how = f"has failed ({type(error).__name__})"
        _log.info(
            "the dataflow %r %s after %.1f s: %s messages are committed, %s records were rejected",
            self._name, how, self._clock() - self._began, f"{summary.messages:,}", f"{summary.errors:,}",
            extra={EVENT: self._event("ended", summary) | {"error": None if error is None else type(error).__name__}},
        )  # fmt: skip
