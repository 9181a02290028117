"""Positions of taxis on the roads of a city, as the traffic monitoring of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.ingest.line_time import LineTime
from riot_ops.models.roads import grid_roads, winding_roads
from riot_ops.streams.parameters import Count, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_decimals, format_times, join_cells, normals

__all__ = ["TracesSource"]

#: A taxi reports once a minute, and stays on one road for this many reports.
PERIOD_MS = 60_000
TRIP = 15
#: Metres of a degree of latitude, and how far a position is off.
DEGREE, NOISE = 111_320.0, 3.0
#: Numbers of records and taxis begin with these.
FIRST, FIRST_TAXI = 4_186_585, 30_000


class TracesSource(TextLineSource):
    """Positions of taxis: record, taxi, time, latitude, longitude, speed (km/h) and bearing (whole degrees).

    Each taxi reports once a minute, and drives along one of the roads of a network for a
    quarter of an hour, there and back; positions are 3 m off (each axis, standard deviation). Every road has a mean
    speed of 20 to 60 km/h, from which speeds vary by 6 km/h; 3 % are twice as fast. 10 % of the positions are of taxis
    that do not move, 3 % lie outside the city, half of these at 0, 0.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    taxis : int, >= 1, default 500
    late : float, 0 to 1, default 0.02
        Share of the positions whose time is up to ten minutes earlier: they were sent again.
    network : "grid" or "winding", default "grid"
        Roads: the 24 straight ones of :func:`riot_ops.models.grid_roads`, or the 240 of
        :func:`riot_ops.models.winding_roads`, which have 28,800 segments.
    dirt : bool, default True
        0.5 % of the lines are bad: they lack cells, have a latitude that is no number, or a 30th of February.

    Shapes and rates
    ----------------
    67 bytes a line.

    Examples
    --------
    >>> source = TracesSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'4186586,30001,2009-01-05T14:00:02,40.075967,116.274906,44.72,270'
    """

    stream: ClassVar[str] = "traces"
    domain: ClassVar[str] = "positions of taxis in a city"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<before>[^,]*,[^,]*,)(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<after>.*)",
        "%Y-%m-%dT%H:%M:%S",
    )
    start_ms = 1_231_164_002_000  # 2009-01-05 14:00:02

    taxis: Count = 500
    late: Share = 0.02
    network: Literal["grid", "winding"] = "grid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in ("grid", "winding"):
            raise ConfigError(f"network must be 'grid' or 'winding', got {self.network!r}")

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return PERIOD_MS / self.taxis

    def lines(self, numbers: Numbers) -> pa.Array:
        points, lengths = _roads(self.network)
        minute, taxi = np.divmod(numbers, self.taxis)
        leg, within = np.divmod(minute + self.random_words(1, taxi).astype(np.int64) % TRIP, TRIP)
        trip = leg * self.taxis + taxi
        road = (self.random_words(2, trip) % np.uint64(lengths.size)).astype(np.int64)
        usual = 20 + 40 * self.uniforms(3, road)
        way = np.where(self.uniforms(4, trip) < 0.5, 1, -1)
        along = self.uniforms(5, trip) + way * usual * within / 60 / lengths[road]
        turned = np.floor(along).astype(np.int64) % 2 == 1  # at the end of the road
        along = np.where(turned, 1 - along % 1, along % 1) * (points.shape[1] - 1)
        part = np.minimum(along.astype(np.int64), points.shape[1] - 2)
        starts, ends = points[road, part], points[road, part + 1]
        beside = (along - part)[:, None]
        lon, lat = (starts * (1 - beside) + ends * beside).T
        lat = lat + NOISE / DEGREE * normals(self.seed, 6, numbers)
        lon = lon + NOISE / DEGREE / np.cos(np.radians(lat)) * normals(self.seed, 7, numbers)

        chance = self.uniforms(8, numbers)
        lat = np.where(chance < 0.015, 0.0, np.where(chance < 0.03, lat - 1, lat))
        lon = np.where(chance < 0.015, 0.0, lon)
        speed = np.maximum(1.0, usual + 6 * normals(self.seed, 9, numbers))
        chance = self.uniforms(10, numbers)
        speed = np.where(chance < 0.1, 0.0, np.where(chance < 0.13, 2 * speed, speed))
        east, north = ((ends - starts) * np.column_stack([np.cos(np.radians(starts[:, 1])), np.ones(len(starts))])).T
        ahead = np.rint(np.degrees(np.arctan2(east, north))).astype(np.int64)
        bearing = (ahead + np.where((way < 0) ^ turned, 180, 0)) % 360
        back = np.where(
            self.uniforms(11, numbers) < self.late, self.random_words(12, numbers).astype(np.int64) % 600, 0
        )
        time = format_times(self.times(numbers) // 1000 - back, "s")

        head = join_cells(FIRST + numbers, FIRST_TAXI + taxi)
        rest = [format_decimals(lon, 6), format_decimals(speed, 2), bearing]
        lines = join_cells(head, time, format_decimals(lat, 6), *rest)
        worded = join_cells(head, time, "N/A", *rest)
        undated = join_cells(head, "2009-02-30T00:00:00", format_decimals(lat, 6), *rest)
        return self.with_dirt(numbers, lines, 0.005, [join_cells(head, time), worded, undated])


@functools.cache
def _roads(network: str) -> tuple[Any, Any]:
    """Return the longitude and latitude of the points of each road, and the lengths of the roads in km."""
    if network == "grid":  # straight: two points of each are enough
        points = np.array([line[[0, -1]] for _, line in grid_roads().lines])
    else:
        points = np.array([line for _, line in winding_roads().lines])
    step = np.diff(points, axis=1)
    step[..., 0] *= np.cos(np.radians(points[:, :-1, 1]))
    return points, DEGREE / 1000 * np.hypot(step[..., 0], step[..., 1]).sum(axis=1)
