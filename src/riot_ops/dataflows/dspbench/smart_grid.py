"""Smart grid: houses with plugs of unusual load, and load forecasts."""

from __future__ import annotations

import sys
from datetime import timedelta

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, as_timedelta, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench import operators

__all__ = ["smart_grid"]

#: Fields that identify a plug: plug numbers are unique within a household, household numbers within a house.
PLUG = ("house_id", "household_id", "plug_id")


def smart_grid(
    *,
    window: timedelta | str = "1h",
    length: timedelta | str = "1min",
    every: timedelta | str = "30s",
    history: Count = 31,
    parallelism: int = 1,
    partial: bool = True,
) -> Dataflow:
    """Build smart grid monitoring (SM): plug readings → load medians → outliers; plug readings → means → forecasts.

    A line is ``id,timestamp,value,property,plug_id,household_id,house_id``, as in the DEBS 2014 Grand Challenge: a load
    in W (property 1) or work (property 0, which only advances time), seconds since 1970, and the numbers of plug,
    household and house; no number is negative. Any other line is an error. A line whose time is before the
    time of an earlier line is an error, too (``late``).

    The result streams are ``outliers``, with the fields ``window_start``, ``window_end``, ``house_id`` and
    ``percentage``: the share of a house's plugs whose median load over the window exceeds the median of all plugs,
    whenever it changes; and ``predictions``, with ``timestamp``, ``house_id``, ``household_id``, ``plug_id`` and
    ``predicted_load``: the load expected two slices later, from the mean of the current slice and the median of the
    same slice on previous days. Household and plug are null for the load of a whole house.

    Parameters
    ----------
    window : timedelta or text such as "1h", default "1h"
        Window of the medians.
    length : timedelta or text such as "1min", default "1min"
        Length of a slice, which must divide a day.
    every : timedelta or text such as "30s", default "30s"
        Stream time between two predictions.
    history : int >= 1, default 31
        Number of previous days that predictions use.
    parallelism : int >= 1, default 1
        Instances of the outlier step, among which the houses are distributed.
    partial : bool, default True
        Whether the end of the stream closes its last time; else that time gets neither a median nor a prediction.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.
    .. [2] H. Ziekow, Z. Jerzak, *The DEBS 2014 Grand Challenge*, DEBS 2014.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = [f"0,{1377986400 + 30 * k},{10 * p + k},1,{p},0,{p // 2}" for k in range(2) for p in range(4)]
    >>> result = smart_grid().run(pa.table({"payload": lines, "event_time": pa.nulls(8)}))
    >>> [(row["house_id"], row["percentage"]) for row in result["outliers"].to_pylist()]
    [(0, 0.0), (1, 100.0)]
    >>> loads = result["predictions"].filter(pa.compute.is_null(result["predictions"]["plug_id"]))
    >>> [(row["house_id"], f"{row['timestamp']:%H:%M}", row["predicted_load"]) for row in loads.to_pylist()]
    [(0, '22:02', 11.0), (1, '22:02', 51.0)]
    """
    check_arguments(smart_grid, locals())
    size, length, every = map(as_timedelta, (window, length, every))
    flow = Dataflow("smart_grid")
    numbers = {name: (6 - i, "int64") for i, name in enumerate(PLUG)}
    fields = {
        "id": (0, "int64"),
        "event_time": (1, "s"),
        "value": (2, "double"),
        "property": (3, "int64"),
        **numbers,
    }
    bounds = {"value": (0.0, sys.float_info.max), "property": (0, 1), **dict.fromkeys(("id", *PLUG), (0, 2**63 - 1))}
    readings = flow.source("readings").to(t.ParseLines(cells=7, schema=fields), id="parse")
    readings = readings.to(t.RangeFilter(by=None, bounds=bounds, on_error="reject"), id="check")
    readings = readings >> t.Project(fields=("value", "property", *PLUG))
    ordered = readings.to_single().to(t.DropLate(), id="drop_late")
    loads = ordered.to(t.Filter("property == 1"), id="loads")

    changes = loads.to_single().to(operators.SlidingWindow(window=size, fields=("value", *PLUG)), id="window")
    of_all = changes.to_single().to(
        operators.RunningMedian(emit="final", tag="all", partial=partial), id="global_median"
    )
    of_plug = changes.partition_by(*PLUG).to(
        operators.RunningMedian(by=PLUG, emit="update", tag="plug"), id="plug_median"
    )
    shares = operators.ShareAbove(group="house_id", member=PLUG[1:], window=size)
    if parallelism == 1:
        above = flow.add(shares, of_plug.to_single(), of_all.to_single(), id="outliers")
    else:
        spread = of_plug.partition_by("house_id", parallelism=parallelism), of_all.broadcast(parallelism)
        above = flow.add(shares, *spread, id="outliers")

    means = operators.SliceMeans(by=PLUG, output="load", length=length, every=every, partial=partial)
    slices = loads.partition_by("house_id").to(means, id="plug_slices")
    totals = operators.BatchSums(by=("house_id",), value="load", groups=("open", "slot", "timestamp"))
    houses = slices.partition_by("house_id").to(totals, id="house_slices")
    forecast = operators.HistoryMedian(by=(*PLUG, "slot"), value="load", output="predicted_load", window=history)
    to_come = flow.add(forecast, slices.partition_by("house_id"), houses.partition_by("house_id"), id="predictions")
    return flow.sink("outliers_sink", above).sink("predictions_sink", to_come)
