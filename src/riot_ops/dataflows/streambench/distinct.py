"""Distinct count: the running number of distinct values of a field."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import CellIndex, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.streambench.projection import cell

__all__ = ["distinct"]


def distinct(*, column: CellIndex = 0) -> Dataflow:
    r"""Build distinct count: tab-separated lines → new values of a cell → running number of distinct values.

    Its result stream is ``sizes``, with the fields ``value``, a value seen for the first time, and ``count``. All
    values are kept, so that the count is exact; the value of a line with too few cells is empty. A line that is not
    UTF-8 is an error.

    Parameters
    ----------
    column : int from 0 to 65,535, default 0
        Number of the cell: in a log of searches 0 is the user, 1 the query.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> sizes = distinct().run([{"payload": line} for line in (b"7\tx", b"8\tx", b"7\ty")])["sizes"]
    >>> [(row["value"], row["count"]) for row in sizes.to_pylist()]
    [('7', 1), ('8', 2)]
    """
    check_arguments(distinct, locals())
    flow = Dataflow("distinct")
    values = flow.source("lines").shuffle().to(cell(column), id="values")
    new = values.partition_by("value").to(t.Deduplicate(by=("value",)), id="new")
    return flow.sink("sizes_sink", new.to_single().to(t.RunningCount(), id="sizes"))
