"""Reading road networks: CSV, GeoJSON and shapefiles."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, MissingExtraError, exception_text, excerpt, value_text
from riot_ops.core.paths import local_path
from riot_ops.models.roads import Roads

__all__ = ["read_roads"]

Line = tuple[Any, float, Any]
COLUMNS = ("road_id", "seq", "lon", "lat")


def read_roads(path: str, id_key: str = "osm_id", width_key: str | None = None) -> Roads:
    r"""Read the road network in a file, once per process and version of the file.

    ``.csv``: a header ``road_id,seq,lon,lat`` and one point per line; ``seq`` orders the points of a road, and the
    column ``width_key`` has its half width. ``.geojson`` or ``.json``: LineStrings and MultiLineStrings; other
    geometries are skipped. ``.shp``: polylines, read by pyshp. The id of a road is the property ``id_key`` or, in
    GeoJSON, the id of the feature; its half width in metres is the property ``width_key``.

    Raises
    ------
    ConfigError
        If the file cannot be read, or has no road, a road without id, or an invalid point.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "roads.csv")
    ...     _ = path.write_text("road_id,seq,lon,lat\n7,0,116.30,39.90\n7,1,116.31,39.90\n")
    ...     roads = read_roads(str(path))
    >>> roads.ids, roads.lines[0][1].tolist()
    ([7], [[116.3, 39.9], [116.31, 39.9]])
    """
    file = local_path(path, "roads")
    try:
        status = file.stat()
        return _read(str(file), status.st_mtime_ns, status.st_size, id_key, width_key)
    except OSError as error:
        raise ConfigError(f"roads: {path} cannot be read: {error.strerror or error}") from None
    except ConfigError as error:
        raise ConfigError(f"roads: {path}: {error}") from None


@functools.lru_cache(maxsize=4)
def _read(path: str, modified: int, size: int, id_key: str, width_key: str | None) -> Roads:
    readers = {".csv": _csv, ".geojson": _geojson, ".json": _geojson, ".shp": _shapefile}
    suffix = Path(path).suffix.lower()
    if suffix not in readers:
        raise ConfigError(f"a road network must be a file {', '.join(readers)}, got {suffix or 'none of these'}")
    try:
        return Roads.of(readers[suffix](path, id_key, width_key))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"a road has points that are no numbers: {excerpt(exception_text(error))}") from None


def _csv(path: str, id_key: str, width_key: str | None) -> list[Line]:
    from pyarrow import csv

    columns: dict[str, Any] = {"road_id": pa.string(), "seq": pa.int64(), "lon": pa.float64(), "lat": pa.float64()}
    if width_key is not None:
        columns[width_key] = pa.float64()
    try:
        options = csv.ConvertOptions(column_types=columns, include_columns=[*columns])
        table = csv.read_csv(path, convert_options=options)
    except (pa.ArrowInvalid, KeyError) as error:
        raise ConfigError(f"it must have the columns {', '.join(columns)}: {error}") from None
    if any(table[name].null_count for name in COLUMNS):
        raise ConfigError(f"a cell of {', '.join(COLUMNS)} has no value")
    names = table["road_id"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.lexsort((table["seq"].to_numpy(), codes))
    edges = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    points = np.column_stack([table["lon"].to_numpy(), table["lat"].to_numpy()])[order]
    widths = np.full(len(order), math.nan) if width_key is None else table[width_key].to_numpy()[order]
    return [
        (name, float(widths[a]), points[a:b])
        for name, a, b in zip(names.dictionary.to_pylist(), edges[:-1], edges[1:], strict=True)
    ]


def _geojson(path: str, id_key: str, width_key: str | None) -> list[Line]:
    try:
        document = msgspec.json.decode(Path(path).read_bytes())
        features = document["features"] if document.get("type") == "FeatureCollection" else [document]
        lines = []
        for feature in features:
            geometry = feature.get("geometry") or {}
            if geometry.get("type") not in ("LineString", "MultiLineString"):
                continue
            properties = feature.get("properties") or {}
            name = properties.get(id_key, feature.get("id"))
            parts = geometry["coordinates"] if geometry["type"] == "MultiLineString" else [geometry["coordinates"]]
            lines += _lines(name, properties.get(width_key), [[p[:2] for p in part] for part in parts], id_key)
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"it is not GeoJSON: {type(error).__name__}: {error}") from None
    return lines


def _shapefile(path: str, id_key: str, width_key: str | None) -> list[Line]:
    try:
        import shapefile
    except ImportError:
        raise MissingExtraError("reading shapefiles", "geo") from None
    lines = []
    try:
        with shapefile.Reader(path) as reader:
            for record in reader.iterShapeRecords():
                if not record.shape.points:
                    continue
                properties = record.record.as_dict()
                edges = [*record.shape.parts, len(record.shape.points)]
                parts = [[p[:2] for p in record.shape.points[a:b]] for a, b in itertools.pairwise(edges)]
                lines += _lines(properties.get(id_key), properties.get(width_key), parts, id_key)
    except (shapefile.ShapefileException, struct.error, ValueError) as error:
        raise ConfigError(f"it is not a shapefile: {error}") from None
    return lines


def _lines(name: Any, width: Any, parts: list[Any], id_key: str) -> list[Line]:
    """Return the lines of a feature."""
    if name is None or not str(name).strip():
        raise ConfigError(f"a road has no {id_key!r}")
    try:
        metres = math.nan if width is None or width == "" else float(width)
    except (TypeError, ValueError):
        raise ConfigError(f"the width of the road {value_text(name)} is not a number: {value_text(width)}") from None
    return [(str(name).strip(), metres, part) for part in parts]
