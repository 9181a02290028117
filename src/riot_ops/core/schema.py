"""Fields that every stream shares, and the schemas of the RIoTBench streams."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.parameters import OWN_CHECK

__all__ = [
    "EARLIEST",
    "ERRORS",
    "ERRORS_STREAM",
    "LATEST",
    "OBSERVATIONS",
    "PYTHON_TYPES",
    "RAW",
    "SCHEMAS",
    "TIMESTAMP",
    "SchemaLike",
    "StreamSchema",
    "arrow_type",
    "schema_pairs",
    "stream_schema",
]

#: Fields and their types, in the forms that users give; :func:`canonical_schema` makes pairs of them.
SchemaLike = Annotated[pa.Schema | Mapping[str, Any] | Sequence[tuple[str, Any]], OWN_CHECK]

TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Types of Python that a schema may name.
PYTHON_TYPES: dict[type, pa.DataType] = {
    float: pa.float64(),
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: TIMESTAMP,
}

#: The range of times, the years 1 to 9999, in microseconds since 1970: what Python's ``datetime`` can hold.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999

#: The schema of a source of text: message number, event time and text.
RAW = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("event_time", TIMESTAMP),
        pa.field("payload", pa.binary()),
    ]
)

#: One observed value. ``seq`` is the number of its message, ``ordinal`` the position within the message: together they
#: order the records of a stream, see :mod:`riot_ops.core.order`.
OBSERVATIONS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("event_time", TIMESTAMP),
        pa.field("sensor_id", pa.string()),
        pa.field("obs_type", pa.string()),
        pa.field("value", pa.float64()),
    ]
)

#: The stream of records that could not be processed, and their fields.
ERRORS_STREAM = "errors"
ERRORS = pa.schema(
    [
        pa.field("seq", pa.int64()),
        pa.field("event_time", TIMESTAMP),
        pa.field("task", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("raw", pa.string()),
    ]
)


@dataclass(frozen=True)
class StreamSchema:
    """The columns of a sensor stream and their meaning.

    Parameters
    ----------
    name : str
        Short name, such as ``city``.
    columns : tuple of str
        All columns in their order in the text forms (CSV, SenML).
    units, kinds : tuple of str
        SenML unit label and value kind (``v`` number, ``sv`` text) of each column.
    id_field : str
        The column that identifies the sensor.
    time_field : str
        The column that holds the time (in SenML the base time).
    meta : tuple of str
        Columns that describe a message; all the others are observed.
    bounds : mapping of str to (min, max)
        Range of valid values of observed columns.
    true_units : mapping of str to str
        Correct units of columns whose label in the stream is wrong.

    Examples
    --------
    >>> import riot_ops as ro
    >>> plant = ro.StreamSchema(
    ...     name="plant",
    ...     columns=("time", "machine", "pressure"),
    ...     units=("ms", "string", "bar"),
    ...     kinds=("v", "sv", "v"),
    ...     id_field="machine",
    ...     time_field="time",
    ...     meta=("machine",),
    ...     bounds={"pressure": (0.0, 16.0)},
    ... )
    >>> plant.observed
    ('time', 'pressure')
    """

    name: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    kinds: tuple[str, ...]
    id_field: str
    time_field: str
    meta: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    true_units: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not len(self.columns) == len(self.units) == len(self.kinds):
            raise ConfigError(
                f"stream schema {self.name!r}: {len(self.columns)} columns, {len(self.units)} "
                f"units and {len(self.kinds)} kinds; the numbers must be equal"
            )
        for name in (self.id_field, self.time_field, *self.meta, *self.bounds, *self.true_units):
            if name not in self.columns:
                raise ConfigError(
                    f"stream schema {self.name!r} has no column {name!r}{did_you_mean(name, self.columns)}"
                )
        twice = sorted({c for c in self.columns if self.columns.count(c) > 1})
        if twice:
            raise ConfigError(f"stream schema {self.name!r} has the column {twice[0]!r} twice")
        wrong = sorted(set(self.kinds) - {"v", "sv"})
        if wrong:
            raise ConfigError(f"stream schema {self.name!r}: kind must be v or sv, got {wrong[0]!r}")

    @property
    def observed(self) -> tuple[str, ...]:
        """The columns that become observations, in schema order."""
        return tuple(c for c in self.columns if c not in self.meta)

    @property
    def numeric(self) -> tuple[str, ...]:
        """The observed columns with numbers."""
        kinds = dict(zip(self.columns, self.kinds, strict=True))
        return tuple(c for c in self.observed if kinds[c] == "v")

    def extended(self, columns: Sequence[str], units: Sequence[str] = (), kinds: Sequence[str] = ()) -> StreamSchema:
        """Append meta columns, such as those of an annotation; text unless ``kinds`` says otherwise.

        >>> stream_schema("grid").extended(["room"]).columns
        ('meterid', 'timestamp', 'energyconsumed', 'room')
        """
        more = tuple(columns)
        units, kinds = tuple(units) or ("string",) * len(more), tuple(kinds) or ("sv",) * len(more)
        return replace(
            self,
            columns=(*self.columns, *more),
            units=(*self.units, *units),
            kinds=(*self.kinds, *kinds),
            meta=(*self.meta, *more),
        )

    @classmethod
    def from_file(
        cls, path: str | Path, *, name: str, id_field: str, time_field: str = "timestamp", meta: tuple[str, ...] = ()
    ) -> StreamSchema:
        """Read a schema file of three lines: names, units and kinds, each separated by commas."""
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"schema file {path} cannot be read: {error}") from None
        lines = lines[: -1 if not lines[-1].strip() else None]
        if len(lines) < 3:
            raise ConfigError(f"schema file {path} has {len(lines)} lines; names, units and kinds are needed")
        names, units, kinds = (tuple(c.strip() for c in line.split(",")) for line in lines[:3])
        return cls(name, names, units, kinds, id_field, time_field, meta)


def _axes(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{axis}" for axis in "xyz")


_CITY_META = ("timestamp", "source", "longitude", "latitude")
_TAXI_META = (
    "pickup_datetime",
    "timestamp",
    "pickup_longitude",
    "pickup_latitude",
    "dropoff_longitude",
    "dropoff_latitude",
    "payment_type",
)
_FIT_META = (
    "subjectId",
    "timestamp",
    *_axes("gyro_ankle"),
    *_axes("magnetometer_ankle"),
    *_axes("gyro_arm"),
    *_axes("magnetometer_arm"),
    "label",
)

CITY = StreamSchema(
    "city",
    columns=(*_CITY_META, "temperature", "humidity", "light", "dust", "airquality_raw"),
    units=("timestamp", "string", "lon", "lat", "far", "per", "per", "per", "per"),
    kinds=("sv", "sv", "v", "v", "v", "v", "v", "v", "v"),
    id_field="source",
    time_field="timestamp",
    meta=_CITY_META,
    # the bounds of the benchmark's generic file: those of its CITY file drop nearly all light readings
    bounds={
        "temperature": (0.7, 35.1),
        "humidity": (20.3, 69.1),
        "light": (0.0, 5153.0),
        "dust": (83.36, 3322.67),
        "airquality_raw": (12.0, 49.0),
    },
    true_units={"temperature": "°C", "humidity": "%", "light": "count", "dust": "count", "airquality_raw": "count"},
)
TAXI = StreamSchema(
    "taxi",
    columns=(
        "taxi_identifier",
        "hack_license",
        "pickup_datetime",
        "timestamp",
        "trip_time_in_secs",
        "trip_distance",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "payment_type",
        "fare_amount",
        "surcharge",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "total_amount",
    ),
    units=(
        "string",
        "string",
        "time",
        "timestamp",
        "second",
        "meter",
        "lon",
        "lat",
        "lon",
        "lat",
        "string",
        "dollar",
        "percentage",
        "percentage",
        "dollar",
        "dollar",
        "dollar",
    ),
    kinds=("sv", "sv", "sv", "sv", "v", "v", "sv", "sv", "sv", "sv", "sv", "v", "v", "v", "v", "v", "v"),
    id_field="taxi_identifier",
    time_field="timestamp",
    meta=_TAXI_META,
    # lower bounds of 0 on tip and tolls: most trips have none
    bounds={
        "trip_time_in_secs": (140.0, 3155.0),
        "trip_distance": (1.37, 29.86),
        "fare_amount": (6.0, 201.0),
        "tip_amount": (0.0, 38.55),
        "tolls_amount": (0.0, 18.0),
    },
    true_units={"trip_distance": "mile", "surcharge": "dollar", "mta_tax": "dollar"},
)
FIT = StreamSchema(
    "fit",
    columns=(
        "subjectId",
        "timestamp",
        *_axes("acc_chest"),
        "ecg_lead_1",
        "ecg_lead_2",
        *_axes("acc_ankle"),
        *_axes("gyro_ankle"),
        *_axes("magnetometer_ankle"),
        *_axes("acc_arm"),
        *_axes("gyro_arm"),
        *_axes("magnetometer_arm"),
        "label",
    ),
    units=(
        "string",
        "timestamp",
        *("m/s2",) * 3,
        "mV",
        "mV",
        *("m/s2",) * 3,
        *("deg/s",) * 3,
        *("tesla",) * 3,
        *("m/s2",) * 3,
        *("deg/s",) * 3,
        *("tesla",) * 3,
        "number",
    ),
    kinds=("sv", *("v",) * 25),
    id_field="subjectId",
    time_field="timestamp",
    meta=_FIT_META,
    bounds={
        "acc_chest_x": (-13.931, 4.123),
        "acc_chest_y": (-4.6376, 5.2361),
        "acc_chest_z": (-8.1881, 7.8786),
        "ecg_lead_1": (-4.9314, 6.1371),
        "ecg_lead_2": (-6.786, 6.6604),
        "acc_ankle_x": (-5.0006, 8.1472),
        "acc_ankle_y": (-14.303, 1.5909),
        "acc_ankle_z": (-8.6234, 8.6958),
        "acc_arm_x": (-9.824, 5.5778),
        "acc_arm_y": (-10.059, 8.506),
        "acc_arm_z": (-6.6739, 9.5725),
    },
)
GRID = StreamSchema(
    "grid",
    columns=("meterid", "timestamp", "energyconsumed"),
    units=("string", "timestamp", "kWh"),
    kinds=("sv", "v", "v"),
    id_field="meterid",
    time_field="timestamp",
    meta=("meterid", "timestamp"),
    bounds={"energyconsumed": (1.828, 36.658)},
)

SCHEMAS: dict[str, StreamSchema] = {s.name: s for s in (CITY, TAXI, FIT, GRID)}


def stream_schema(name: str | StreamSchema) -> StreamSchema:
    """Look up the schema of a RIoTBench stream by name; a ``StreamSchema`` is returned unchanged.

    >>> stream_schema("city").observed
    ('temperature', 'humidity', 'light', 'dust', 'airquality_raw')
    """
    if isinstance(name, StreamSchema):
        return name
    if name not in SCHEMAS:
        raise ConfigError(
            f"unknown stream schema {name!r}; known are {', '.join(SCHEMAS)}{did_you_mean(name, SCHEMAS)}"
        )
    return SCHEMAS[name]


def arrow_type(text: str) -> pa.DataType:
    """Parse an Arrow type, as ``str(type)`` writes it.

    >>> arrow_type("list<item: double>"), arrow_type("decimal128(5, 2)")
    (ListType(list<item: double>), Decimal128Type(decimal128(5, 2)))
    >>> arrow_type("struct<at: struct<zone: string, days: list<item: int64>>, n: int8>").field("at").type.field("days")
    pyarrow.Field<days: list<item: int64>>
    """
    zoned = re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]+)\]", text)
    if zoned:
        return pa.timestamp(zoned[1], tz=zoned[2])
    items = re.fullmatch(r"list<(?:item|element): (.+)>", text)
    if items:
        return pa.list_(arrow_type(items[1]))
    fields = re.fullmatch(r"struct<(.+)>", text)
    if fields:
        return pa.struct([_named_type(part) for part in _split_fields(fields[1])])
    decimal = re.fullmatch(r"(decimal(?:32|64|128|256))\((\d{1,3}), ?(-?\d{1,3})\)", text)
    try:
        return getattr(pa, decimal[1])(int(decimal[2]), int(decimal[3])) if decimal else pa.type_for_alias(text)
    except ValueError:
        raise ConfigError(
            f"unknown type {text!r}; use Arrow's names, such as int64, double, string, "
            "'timestamp[us, tz=UTC]', 'decimal128(5, 2)' or 'list<item: double>'"
        ) from None


def _split_fields(text: str) -> list[str]:
    """Split the fields of a struct at the commas that are in no type of a field."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _named_type(text: str) -> tuple[str, pa.DataType]:
    name, _, dtype = text.partition(": ")
    return name, arrow_type(dtype)


def schema_pairs(schema: SchemaLike) -> tuple[tuple[str, str], ...]:
    """Return the pairs of name and type that :func:`canonical_schema` has made of a task's schema."""
    return cast("tuple[tuple[str, str], ...]", schema)


def canonical_schema(task: str, schema: Any, parameter: str = "schema") -> tuple[tuple[str, str], ...] | None:
    """Normalise a schema of any form to pairs of name and type as text.

    >>> canonical_schema("project", {"value": float, "unit": "string", "count": pa.int64()})
    (('value', 'double'), ('unit', 'string'), ('count', 'int64'))
    """
    if schema is None:
        return None
    if isinstance(schema, pa.Schema):
        pairs = [(f.name, f.type) for f in schema]
    elif isinstance(schema, Mapping):
        pairs = list(schema.items())
    else:
        try:
            pairs = [(name, dtype) for name, dtype in schema]
        except (TypeError, ValueError):
            raise ConfigError(
                f"{task}: {parameter} must be a pyarrow schema or map names to types, got {schema!r}"
            ) from None
    named = []
    for name, dtype in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{task}: {parameter} has {name!r} as the name of a field")
        try:
            python = isinstance(dtype, type) and dtype in PYTHON_TYPES
            known = arrow_type(dtype) if isinstance(dtype, str) else PYTHON_TYPES[dtype] if python else dtype
            if not isinstance(known, pa.DataType) or arrow_type(str(known)) != known:
                types = ", ".join(one.__name__ for one in PYTHON_TYPES)
                raise ValueError(f"{dtype!r} is neither an Arrow type with a short name nor one of {types}")
        except ValueError as error:
            raise ConfigError(f"{task}: {parameter} field {name!r}: {error}") from None
        named.append((name, str(known)))
    if not named or len({name for name, _ in named}) < len(named):
        raise ConfigError(f"{task}: {parameter} must name at least one field, none twice, got {schema!r}")
    return tuple(named)
