"""How far a dataflow may affect the others in process."""

from __future__ import annotations

from dataclasses import dataclass

from riot_ops.core.checks import check_count, check_seconds

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """How far a dataflow whose sinks do not keep up may affect the others.

    Parameters
    ----------
    grace_s : float, seconds, > 0, default 0.5
        For how long a sink may hold all others up, once: then it has a thread of its own.
    patience_s : float, seconds, > 0, default 10
        A sink that others wait for (``on_slow="block"``, or at the end of the back end) and that takes nothing for so
        long counts as failed.
    queue_bytes : int, >= 1, default 33554432
        Records in memory that wait for one dataflow's sinks.
    behind_bytes : int, >= 1, default 4294967296
        Records in files that wait for one dataflow's sinks (``on_slow="detach"``): one further behind counts as failed.
    """

    grace_s: float = 0.5
    patience_s: float = 10.0
    queue_bytes: int = 32 << 20
    behind_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        check_seconds("grace_s", self.grace_s)
        check_seconds("patience_s", self.patience_s)
        check_count("queue_bytes", self.queue_bytes)
        check_count("behind_bytes", self.behind_bytes)
