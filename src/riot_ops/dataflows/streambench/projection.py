"""Projection: one field of each record."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import CellIndex, check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["cell", "projection"]


def projection(*, column: CellIndex = 1) -> Dataflow:
    r"""Build Projection: tab-separated lines → one cell of each.

    Its result stream is ``values``, with the field ``value``: empty text where a line has too few cells. A line that is
    not UTF-8 is an error.

    Parameters
    ----------
    column : int from 0 to 65,535, default 1
        Number of the cell: in a log of searches 0 is the user, 1 the query.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> lines = [{"payload": line} for line in (b"7\tred river\t2006", b"8")]
    >>> projection().run(lines)["values"]["value"].to_pylist()
    ['red river', '']
    """
    check_arguments(projection, locals())
    flow = Dataflow("projection")
    return flow.sink("values_sink", flow.source("lines").shuffle().to(cell(column), id="values"))


def cell(column: int) -> t.ParseLines:
    """Build the step that reads a cell of a tab-separated line into ``value``."""
    return t.ParseLines(schema={"value": (column, "string", "")}, delimiter="\t")
