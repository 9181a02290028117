"""Builders of the applications."""

from collections.abc import Callable

from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.riotbench.stats import stats

__all__ = ["BUILDERS", "stats"]

#: Every builder by the name that the command line uses.
BUILDERS: dict[str, Callable[..., Dataflow]] = {"stats": stats}
