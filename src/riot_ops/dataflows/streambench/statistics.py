"""Statistics: running count, extremes, sum and mean of a field."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.streams.streambench.packets import FIELDS

__all__ = ["statistics"]


def statistics(*, field: str = "v4_pkts", emit: Literal["each", "update"] = "each") -> Dataflow:
    """Build Statistics: lines of seventeen numbers → one of the numbers → its running count, extremes, sum and mean.

    Its result stream is ``figures``, with the fields ``count``, ``min``, ``max``, ``sum`` and ``mean``. The sum is
    exact and rounded once. A line whose cell is not a number, or with more or fewer than seventeen
    cells, is an error.

    Parameters
    ----------
    field : str, default "v4_pkts"
        Name of the number, one of the columns of the generated stream ``packets``.
    emit : "each" or "update", default "each"
        Emit the statistics at every line, or at the last line of each batch, see
        :class:`riot_ops.tasks.RunningSummary`.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> lines = [{"payload": f"201309,40,{n},1,1,1,1,1,1,1,1,1,1,1,1,1,1".encode()} for n in (7, "x", 10)]
    >>> figures = statistics().run(lines)["figures"]
    >>> [(row["count"], row["sum"], row["mean"]) for row in figures.to_pylist()]
    [(1, 7.0, 7.0), (2, 17.0, 8.5)]
    """
    check_arguments(statistics, locals())
    if field not in FIELDS:
        raise ConfigError(f"field must be one of {', '.join(FIELDS)}, got {field!r}{did_you_mean(str(field), FIELDS)}")
    flow = Dataflow("statistics")
    parse = t.ParseLines(schema={"value": (FIELDS.index(field), "double")}, cells=len(FIELDS))
    values = flow.source("lines").shuffle().to(parse, id="values")
    return flow.sink("figures_sink", values.to_single().to(t.RunningSummary(emit=emit), id="figures"))
