"""How far slow sinks of one dataflow may delay the others."""

from __future__ import annotations

from dataclasses import dataclass

from riot_ops.core.checks import check_count, check_seconds

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits for dataflows whose sinks are slow.

    Parameters
    ----------
    grace_s : float, seconds, > 0, default 0.5
        How long a sink may delay all others, once; then it gets a thread of its own.
    patience_s : float, seconds, > 0, default 10
        A sink that others wait for (``on_slow="block"``, or when the back end closes) counts as failed if it takes
        nothing for this time.
    queue_bytes : int, >= 1, default 33554432
        Maximum size of the records in memory that wait for one dataflow's sinks.
    max_lag_bytes : int, >= 1, default 4294967296
        Maximum size of the records in files that wait for one dataflow's sinks (``on_slow="detach"``); with more, the
        sinks count as failed.
    """

    grace_s: float = 0.5
    patience_s: float = 10.0
    queue_bytes: int = 32 << 20
    max_lag_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        check_seconds("grace_s", self.grace_s)
        check_seconds("patience_s", self.patience_s)
        check_count(queue_bytes=self.queue_bytes)
        check_count(max_lag_bytes=self.max_lag_bytes)
