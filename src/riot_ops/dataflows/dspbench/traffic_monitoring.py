"""Traffic monitoring: the average speed of cars on each road."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["traffic_monitoring"]


def traffic_monitoring(
    *,
    roads: str | None = None,
    box: tuple[float, float, float, float] = (39.689602, 40.122410, 116.105789, 116.670021),
    id_key: str = "osm_id",
    width_key: str | None = None,
    road_width: float = 5.0,
    tolerance: float = 10.0,
    window: Count = 30,
    sigma: float = 2.0,
    integer: bool = False,
) -> Dataflow:
    """Build traffic monitoring (TM): positions of cars → road of each position → average speed on that road.

    Its result stream is ``speeds``, with the fields ``road_id``, ``average_speed`` and ``count`` (the number of speeds
    averaged), and the fields of the position: ``vehicle_id``, ``latitude``, ``longitude``, ``speed`` and ``bearing``. A
    line without a whole number in the first cell, with a position that is not on Earth, or with a bearing outside 0 to
    360 degrees, is an error.

    Parameters
    ----------
    roads : str, optional
        Path of a road network: CSV, GeoJSON or a shapefile, see :class:`riot_ops.tasks.MatchRoads`; by default 24
        straight roads over Beijing.
    latitude, longitude : (float, float), default (39.689602, 40.12241) and (116.105789, 116.670021)
        Bounds of the area; positions outside are dropped.
    id_key : str, default "osm_id"
        Property of a GeoJSON or shapefile with the id of a road.
    width_key : str, optional
        Property, or column, with half of a road's width in metres.
    road_width : float > 0, default 5.0
        Half the width, in metres, of roads without a width of their own.
    tolerance : float >= 0, default 10.0
        Position error, in metres.
    window : int >= 2, default 30
        Number of speeds of a road that are averaged.
    sigma : float > 0, default 2.0
        Number of standard deviations beyond which a speed is ignored, see :class:`riot_ops.tasks.ClippedAverage`.
    integer : bool, default False
        Whether speeds and averages are truncated to integers.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> cars = [b"1,7,2009-01-06T05:20:07,39.6983,116.606,40,90", b"2,9,2009-01-06T05:20:09,39.6983,116.61,42,90"]
    >>> lines = pa.table({"payload": cars, "event_time": pa.nulls(2)})
    >>> speeds = traffic_monitoring().run(lines)["speeds"]
    >>> [(row["road_id"], row["average_speed"], row["count"]) for row in speeds.to_pylist()]
    [(1000, 40.0, 1), (1000, 41.0, 2)]
    """
    check_arguments(traffic_monitoring, locals())
    flow = Dataflow("traffic_monitoring")
    fields = {
        "id": (0, "int64"),
        "vehicle_id": (1, "string"),
        "event_time": (2, "iso"),
        "latitude": (3, "double"),
        "longitude": (4, "double"),
        "speed": (5, "double"),
        "bearing": (6, "int64"),
    }
    match = t.MatchRoads(
        roads=roads,
        box=box,
        speed_field="speed",
        min_speed=1.0 if integer else 0.0,  # a lower speed is truncated to 0
        road_width=road_width,
        tolerance=tolerance,
        id_key=id_key,
        width_key=width_key,
    )
    average = t.ClippedAverage(
        by=("road_id",), value="speed", output="average_speed", window=window, sigma=sigma, whole=integer
    )
    bounds = {"latitude": (-90.0, 90.0), "longitude": (-180.0, 180.0), "bearing": (0, 360)}
    traces = flow.source("traces").to(t.ParseLines(fields=fields, cells=7), id="parse")
    traces = traces.to(t.RangeFilter(by=None, bounds=bounds, on_error="reject"), id="check")
    traces = traces >> t.Project(fields=tuple(name for name in fields if name not in ("id", "event_time")))
    matched = traces.shuffle().to(match, id="match")
    return flow.sink("speeds_sink", matched.partition_by("road_id").to(average, id="speeds"))
