"""Bargain index: share offers below the average price of their latest trades."""

from __future__ import annotations

import math
import sys
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.dspbench import operators

__all__ = ["bargain_index"]

#: Largest difference of prices that counts, whose exponential is a float64.
MAX_EXPONENT = 700.0

#: Fields of a bar; all are read, because a line with a malformed cell is damaged: none of its values can be trusted.
FIELDS = {
    "stock": (0, "string"),
    "event_time": (1, "iso"),
    "open": (2, "double"),
    "high": (3, "double"),
    "low": (4, "double"),
    "price": (5, "double"),
    "adjusted": (6, "double"),
    "volume": (7, "double"),
}


def bargain_index(
    *,
    window: Count = 15,
    calendar: Literal["minute", "hour", "day", "week", "month"] | None = None,
    threshold: float = 0.001,
    first: Literal["trade", "quote"] = "trade",
) -> Dataflow:
    """Build bargain index (BI): quotes joined with the volume-weighted average price (VWAP) of their stock.

    The sources are ``trades`` and ``quotes``; both may read one file. The closing price and the volume of a line are
    price and volume of a trade, or asked price and offered volume of a quote; a line with a negative price or volume,
    or a price that is no number, is an error. The result stream is ``bargains``, with the fields ``stock``, ``price``,
    ``volume``, ``vwap`` and ``bargain_index``.

    Parameters
    ----------
    window : int >= 1, default 15
        Number of trades of the stock that are averaged.
    calendar : "minute", "hour", "day", "week" or "month", optional
        Instead of ``window``: calendar unit whose trades so far are averaged.
    threshold : float, default 0.001
        Index that a bargain must exceed: the exponential of the discount, times the volume.
    first : "trade" or "quote", default "trade"
        Whether the trade or the quote of the same number comes first.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> bars = [b"A,2024-05-01,9,9,9,10.0,9,100", b"A,2024-05-02,9,9,9,12.0,9,300", b"A,2024-05-03,9,9,9,9.5,9,10"]
    >>> lines = pa.table({"payload": bars, "event_time": pa.nulls(3)})
    >>> bargains = bargain_index().run({"trades": lines, "quotes": lines})["bargains"]
    >>> [(row["price"], round(row["vwap"], 3), round(row["bargain_index"], 1)) for row in bargains.to_pylist()]
    [(9.5, 11.451, 70.4)]
    """
    check_arguments(bargain_index, locals())
    if not 0 <= threshold < math.inf:
        raise ConfigError(f"threshold must be a number >= 0, got {threshold!r}")
    flow = Dataflow("bargain_index", merging="number")
    order = ("trades", "quotes") if first == "trade" else ("quotes", "trades")
    read = {name: _bars(flow, name) for name in order}
    average = operators.WeightedAverage(by=("stock",), window=window if calendar is None else None, calendar=calendar)
    prices = read["trades"].partition_by("stock").to(average, id="vwap")
    asked = read["quotes"].to(t.Project(fields=("stock", "price", "volume"), nulls={"vwap": "double"}), id="asked")
    known = merge(prices, asked).partition_by("stock").to(t.AsOfJoin(by=("stock",), fields=("vwap",)), id="known")
    score = t.Compute({"bargain_index": f"min(exp(min(vwap - price, {MAX_EXPONENT})) * volume, {sys.float_info.max})"})
    bargain = t.Filter(f"price < vwap and bargain_index > {threshold!r}")
    bargains = known.to(score, id="scores").to(bargain, id="bargains")
    return flow.sink("bargains_sink", bargains)


def _bars(flow: Dataflow, name: str) -> Stream:
    parse = t.ParseLines(schema=FIELDS, cells=8, trailing=True, skip={1: "date"})
    bounds = dict.fromkeys(("price", "volume"), (0.0, sys.float_info.max))
    sold = t.RangeFilter(by=None, bounds=bounds, on_error="reject")
    bars = flow.source(name).to(parse, id=f"parse_{name}").to(sold, id=f"check_{name}")
    return bars >> t.Project(fields=("stock", "price", "volume"))
