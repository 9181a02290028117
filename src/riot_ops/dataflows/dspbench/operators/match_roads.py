"""Map matching: find the road of a position."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import NonNegative, Positive
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.models.road_files import read_roads
from riot_ops.models.roads import RoadIndex, Roads, grid_roads
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["MatchRoads"]


@register
@dataclass(frozen=True, kw_only=True)
class MatchRoads(StatelessTask):
    """Find the road of each position, and drop positions off every road.

    A position is on the nearest road if that is less than ``sqrt(road_width^2 + tolerance^2)`` away;
    among roads at equal distance on the one with the smallest id. Distances are in the tangent plane at the position,
    ``dx = dlon cos(lat) 111 320 m``, ``dy = dlat 111 320 m``; a grid finds the road segments, each of which is in all
    cells with a point near it.

    Parameters
    ----------
    roads : str, optional
        Path of a road network: ``.csv`` with the header ``road_id,seq,lon,lat``, GeoJSON with lines, or a shapefile
        (``.shp``, by pyshp), see :func:`riot_ops.models.read_roads`; by default 24 straight roads over Beijing.
    latitude, longitude : str, default "latitude" and "longitude"
        Fields with the position, in degrees (WGS 84).
    output : str, default "road_id"
        Field for the road: int64 if the ids of all roads are integers, else text.
    box : tuple of 4 float, optional
        Minimum and maximum latitude, minimum and maximum longitude; positions outside are dropped, positions on the
        border are not.
    speed_field : str, optional
        Field with a speed: positions with a speed of at most 0 are dropped.
    min_speed : float >= 0, default 0.0
        Minimum speed: slower positions are dropped.
    road_width : float > 0, default 5.0
        Half the width, in metres, of roads without a width of their own.
    tolerance : float >= 0, default 10.0
        Position error, in metres.
    id_key : str, default "osm_id"
        Property of a GeoJSON or shapefile with a road's id.
    width_key : str, optional
        Property, or column, with half of a road's width in metres; ``road_width`` applies where it is missing or not
        positive.

    Shapes and rates
    ----------------
    float64[n], float64[n] -> record[m], 1:0/1; O(segments near) time, no state. A network is read once per process and
    version of the file; no line may cross the meridian of 180 degrees.

    Missing values
    --------------
    A position without latitude, longitude, or speed is dropped; so is NaN.

    Errors
    ------
    No record is rejected. A network that cannot be read is a configuration error.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: traffic monitoring.

    Examples
    --------
    >>> match = MatchRoads(speed_field="speed").session()
    >>> near = {"latitude": 39.6983, "longitude": 116.3, "speed": 40.0}
    >>> match.push(near)[0]["road_id"], match.push({**near, "speed": 0.0}), match.push({**near, "latitude": 39.7})
    (1000, [], [])
    """

    code: ClassVar[str] = "MPM"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    roads: str | None = None
    latitude: str = "latitude"
    longitude: str = "longitude"
    output: str = "road_id"
    box: tuple[float, float, float, float] | None = None
    speed_field: str | None = None
    min_speed: NonNegative = 0.0
    road_width: Positive = 5.0
    tolerance: NonNegative = 10.0
    id_key: str = "osm_id"
    width_key: str | None = None

    def validate(self) -> None:
        if self.box is not None and not (self.box[0] <= self.box[1] and self.box[2] <= self.box[3]):
            raise ConfigError(
                f"box must be minimum and maximum latitude, minimum and maximum longitude, got {self.box}"
            )
        if self.speed_field is None and self.min_speed:
            raise ConfigError(f"min_speed = {self.min_speed} needs speed_field")
        self._network  # noqa: B018 (so that an unreadable file raises at once)

    @property
    def _network(self) -> Roads:
        return _default() if self.roads is None else read_roads(self.roads, self.id_key, self.width_key)

    @property
    def index(self) -> RoadIndex:
        """The search index of the network."""
        return _index(self._network, self.road_width, self.tolerance)

    def requires(self) -> Mapping[str, Requirement]:
        names = (self.latitude, self.longitude, *(() if self.speed_field is None else (self.speed_field,)))
        return dict.fromkeys(names, "number")

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        whole = isinstance(self._network.ids[0], int)
        return with_field(schema, pa.field(self.output, pa.int64() if whole else pa.string()))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        lat, lon = (_floats(batch.column(name)) for name in (self.latitude, self.longitude))
        speed = None if self.speed_field is None else _floats(batch.column(self.speed_field))
        found = self.index.find(lat, lon, self.box, speed, self.min_speed)
        matched = found >= 0
        if not matched.all():
            batch, found = batch.filter(pa.array(matched)), found[matched]
        return replace_column(batch, self.output, self.index.ids.take(pa.array(found)))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "latitude": [39.6983, 39.6982, 40.0, None, float("nan"), float("inf"), 39.6983, 0.0],
                "longitude": [116.3, 116.25, 116.65, 116.3, 116.3, 116.3, float("-inf"), 0.0],
                "speed": [10.0, 0.0, 3.0, 1.0, 1.0, 1.0, 2.0, 5.0],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(box=(39.0, 39.9, 116.0, 116.28), speed_field="speed", output="speed"), batch, "in a box")
        yield Case(cls(speed_field="speed", min_speed=4.0, road_width=500.0, tolerance=300.0), batch, "wide")


def _floats(column: pa.Array) -> np.ndarray:
    return float_column(column.cast(pa.float64()) if pa.types.is_null(column.type) else column)[0]


@functools.cache
def _default() -> Roads:
    return grid_roads()


@functools.lru_cache(maxsize=4)
def _index(roads: Roads, width: float, tolerance: float) -> RoadIndex:
    return RoadIndex(roads, width, tolerance)
