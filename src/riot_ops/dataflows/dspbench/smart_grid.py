"""Smart grid: houses with plugs of unusual load, and the load to come."""

from __future__ import annotations

from datetime import timedelta

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, check_arguments, duration
from riot_ops.dataflow import Dataflow

__all__ = ["smart_grid"]

#: What identifies a plug: their numbers are those within a household, and so on.
PLUG = ("house_id", "household_id", "plug_id")


def smart_grid(
    *,
    window: timedelta | str = "1h",
    slice_length: timedelta | str = "1min",
    frequency: timedelta | str = "30s",
    history: Count = 31,
    parallelism: int = 1,
    partial: bool = True,
) -> Dataflow:
    """Build smart grid monitoring (SM): readings of plugs → medians of load → outliers; → means → load to come.

    A line is ``id,timestamp,value,property,plug_id,household_id,house_id``, as in the DEBS 2014 Grand Challenge: a load
    in W (property 1) or work (0, which is not used but to tell the time), seconds since 1970, and numbers of plug,
    household and house. A line whose time is before that of an earlier one is an error (``late``).

    Result streams are ``outliers``, with the fields ``window_start``, ``window_end``, ``house_id`` and ``percentage``:
    the share of a house's plugs whose median load over the window is above that of all, whenever it changes; and
    ``predictions``, with ``timestamp``, ``house_id``, ``household_id``, ``plug_id`` and ``predicted_load``, where
    household and plug are null for the load of a whole house: what is to be expected two slices later, from the mean of
    the slice so far and the median of what that slice had on the days before.

    Parameters
    ----------
    window : timedelta or text such as "1h", default 1 hour
        What medians are over.
    slice_length : timedelta or text such as "1min", default 1 minute
        Length of a slice; a day has a whole number of them.
    frequency : timedelta or text such as "30s", default 30 seconds
        Time between two predictions, in stream time.
    history : int >= 1, default 31
        Days that predictions look back.
    parallelism : int >= 1, default 1
        Instances that find outliers, each of some of the houses.
    partial : bool, default True
        Whether the end of the stream ends its last time; else there is neither a median nor a prediction of that.

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
    size, length, every = (duration(d) if isinstance(d, str) else d for d in (window, slice_length, frequency))
    flow = Dataflow("smart_grid")
    numbers = {name: (6 - i, "int64") for i, name in enumerate(PLUG)}
    fields = {"event_time": (1, "s"), "value": (2, "double"), "property": (3, "int64"), **numbers}
    readings = flow.source("readings").to(t.ParseLines(cells=7, fields=fields), id="parse")
    ordered = readings.to_single().to(t.DropLate(), id="drop_late")
    loads = ordered.to(t.ValueFilter(field="property", values=(1,)), id="loads")

    changes = loads.to_single().to(t.SlidingWindow(size=size, fields=("value", *PLUG)), id="window")
    medians = t.RunningMedian(emit="time", scope="all", partial=partial)
    of_all = changes.to_single().to(medians, id="global_median")
    of_plug = changes.partition_by(*PLUG).to(t.RunningMedian(by=PLUG, emit="update", scope="plug"), id="plug_median")
    shares = t.ShareAbove(group="house_id", member=PLUG[1:], size=size)
    if parallelism == 1:
        above = flow.add(shares, of_plug.to_single(), of_all.to_single(), id="outliers")
    else:
        spread = of_plug.partition_by("house_id", parallelism=parallelism), of_all.broadcast(parallelism)
        above = flow.add(shares, *spread, id="outliers")

    means = t.SliceMeans(by=PLUG, output="load", length=length, every=every, partial=partial)
    slices = loads.partition_by("house_id").to(means, id="plug_slices")
    totals = t.BatchSums(by=("house_id",), value="load", groups=("open", "slot", "timestamp"))
    houses = slices.partition_by("house_id").to(totals, id="house_slices")
    forecast = t.HistoryMedian(by=(*PLUG, "slot"), value="load", output="predicted_load", window=history)
    to_come = flow.add(forecast, slices.partition_by("house_id"), houses.partition_by("house_id"), id="predictions")
    return flow.sink("outliers_sink", above).sink("predictions_sink", to_come)
