"""Traffic monitoring: the average speed of cars on each road."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.tables import RoadNetwork

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
        Path of a road network: CSV, GeoJSON or a shapefile, see :class:`riot_ops.tables.RoadNetwork`; by default 24
        straight roads over Beijing.
    box : tuple of 4 float, default (39.689602, 40.12241, 116.105789, 116.670021)
        Minimum and maximum latitude, minimum and maximum longitude of the area; positions outside are dropped,
        positions on the border are not.
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
    if not (box[0] <= box[1] and box[2] <= box[3]):
        raise ConfigError(f"box must be minimum and maximum latitude, minimum and maximum longitude, got {box}")
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
    network = RoadNetwork(roads, road_width, tolerance, id_key, width_key)
    match = t.Lookup(table=network, on=("latitude", "longitude"), on_missing="drop")
    average = t.ClippedAverage(
        by=("road_id",), value="speed", output="average_speed", window=window, sigma=sigma, integer=integer
    )
    bounds = {"latitude": (-90.0, 90.0), "longitude": (-180.0, 180.0), "bearing": (0, 360)}
    traces = flow.source("traces").to(t.ParseLines(schema=fields, cells=7), id="parse")
    traces = traces.to(t.RangeFilter(by=None, bounds=bounds, on_error="reject"), id="check")
    traces = traces >> t.Project(fields=tuple(name for name in fields if name not in ("id", "event_time")))
    slowest = "speed >= 1.0" if integer else "speed > 0.0"  # a speed below 1 is truncated to 0
    area = f"{box[0]!r} <= latitude <= {box[1]!r} and {box[2]!r} <= longitude <= {box[3]!r}"
    moving = traces.shuffle().to(t.Filter(f"{area} and {slowest}"), id="area")
    matched = moving.to(match, id="match")
    return flow.sink("speeds_sink", matched.partition_by("road_id").to(average, id="speeds"))
