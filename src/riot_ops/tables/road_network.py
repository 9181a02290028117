"""Road networks: the road of a position."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Requirement
from riot_ops.core.parameters import NonNegative, Positive
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.models.road_files import read_roads
from riot_ops.models.roads import RoadIndex, Roads, grid_roads
from riot_ops.tables.table import Column, Found, Table

__all__ = ["RoadNetwork"]


@dataclass(frozen=True)
class RoadNetwork(Table):
    """The road at each position: the column ``road_id``, int64 if the ids of all roads are integers, else text.

    The key is the latitude and the longitude, in degrees (WGS 84), in this order. A position is on the nearest road if
    that is less than ``sqrt(road_width^2 + tolerance^2)`` away; among roads at equal distance on the one with the
    smallest id. Distances are in the tangent plane at the position, ``dx = dlon cos(lat) 111 320 m``, ``dy = dlat 111
    320 m``; a grid finds the road segments, each of which is in all cells with a point near it.

    Parameters
    ----------
    path : str or None, default None
        A file of roads: ``.csv`` with the header ``road_id,seq,lon,lat``, GeoJSON with lines, or a shapefile (``.shp``,
        by pyshp), see :func:`riot_ops.models.read_roads`; no line may cross the meridian of 180 degrees. None: 24
        straight roads over Beijing. Each process reads a file once per version.
    road_width : float > 0, default 5.0
        Half the width, in metres, of roads without a width of their own.
    tolerance : float >= 0, default 10.0
        Position error, in metres.
    id_key : str, default "osm_id"
        Property of a GeoJSON or shapefile with a road's id.
    width_key : str or None, default None
        Property, or column, with half of a road's width in metres; ``road_width`` applies where it is missing or not
        positive.

    Examples
    --------
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> live = t.Lookup(table=tables.RoadNetwork(), on=("lat", "lon")).session()
    >>> live.push_many([{"lat": 39.6983, "lon": 116.3}, {"lat": 0.0, "lon": 0.0}])
    [{'lat': 39.6983, 'lon': 116.3, 'road_id': 1000}, {'lat': 0.0, 'lon': 0.0, 'road_id': None}]
    """

    textual: ClassVar[bool] = False

    path: str | None = None
    road_width: Positive = 5.0
    tolerance: NonNegative = 10.0
    id_key: str = "osm_id"
    width_key: str | None = None

    def validate(self) -> None:
        _ = self._roads

    @property
    def _roads(self) -> Roads:
        return _default() if self.path is None else read_roads(self.path, self.id_key, self.width_key)

    def check_keys(self, on: tuple[str, ...]) -> None:
        if len(on) != 2:
            raise ConfigError(f"lookup: on must be the fields with the latitude and the longitude, got {on!r}")

    def requires(self, on: tuple[str, ...]) -> Mapping[str, Requirement]:
        return dict.fromkeys(on, "number")

    def names(self, on: tuple[str, ...]) -> tuple[str, ...]:
        return ("road_id",)

    def types(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Sequence[pa.DataType]:
        whole = isinstance(self._roads.ids[0], int)
        return [pa.int64() if whole else pa.string() for _ in self.names(on) if wanted is None or wanted]

    def look_up(
        self, batch: pa.RecordBatch, keys: Sequence[pa.Array], wanted: tuple[str, ...] | None, on: tuple[str, ...]
    ) -> Found:
        index = _index(self._roads, self.road_width, self.tolerance)
        return Found(index.find(*map(_floats, keys)), [Column(index.ids)] if wanted is None or wanted else [])


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    return float_column(column.cast(pa.float64()) if pa.types.is_null(column.type) else column)[0]


@functools.cache
def _default() -> Roads:
    return grid_roads()


@functools.lru_cache(maxsize=4)
def _index(roads: Roads, width: float, tolerance: float) -> RoadIndex:
    return RoadIndex(roads, width, tolerance)
