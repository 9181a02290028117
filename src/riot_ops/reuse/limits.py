"""How far slow sinks of one dataflow may delay the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.parameters import Duration, as_timedelta

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits for dataflows whose sinks are slow.

    Parameters
    ----------
    grace : timedelta > 0 or text such as "1s", default 0.5 seconds
        How long a sink may delay all others, once; then it gets a thread of its own.
    patience : timedelta > 0 or text such as "1min", default 10 seconds
        A sink that others wait for (``on_slow="block"``, or when the back end closes) counts as failed if it takes
        nothing for this time.
    max_queue_bytes : int, >= 1, default 33554432
        Maximum size of the records in memory that wait for one dataflow's sinks.
    max_lag_bytes : int, >= 1, default 4294967296
        Maximum size of the records in files that wait for one dataflow's sinks (``on_slow="detach"``); with more, the
        sinks count as failed.

    Examples
    --------
    >>> from riot_ops.reuse import Limits, LocalBackend
    >>> backend = LocalBackend(limits=Limits(grace="100ms", max_queue_bytes=1 << 20))
    >>> Limits(max_queue_bytes=0)
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ConfigError: max_queue_bytes must be a whole number >= 1, got 0
    """

    grace: Duration = timedelta(seconds=0.5)
    patience: Duration = timedelta(seconds=10)
    max_queue_bytes: int = 32 << 20
    max_lag_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        duration_seconds("grace", self.grace)
        duration_seconds("patience", self.patience)
        check_count(max_queue_bytes=self.max_queue_bytes)
        check_count(max_lag_bytes=self.max_lag_bytes)

    @property
    def grace_seconds(self) -> float:
        return as_timedelta(self.grace).total_seconds()

    @property
    def patience_seconds(self) -> float:
        return as_timedelta(self.patience).total_seconds()
