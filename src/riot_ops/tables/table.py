"""The contract of tables, and what they have in common."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, RecordError, did_you_mean, value_text
from riot_ops.core.operator import Requirement
from riot_ops.core.parameters import check_parameters, parameters_from_json, parameters_to_json, snake_case
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.dictionaries import dictionary_codes
from riot_ops.kernels.text.csv.lines import csv_lines

__all__ = ["MAX_BYTES", "NO_ROW", "Column", "Found", "Table", "file_version", "table_from"]

#: Limit for the size of a table of text in bytes, in a file or given directly.
MAX_BYTES = 512 << 20
#: The number of the row of a key that a table lacks.
NO_ROW = -1


class Column:
    """The values of one column of a table, by row."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @functools.cached_property
    def coded(self) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """The values as codes into the distinct ones."""
        return dictionary_codes(self.values)

    @functools.cached_property
    def quoted(self) -> pa.Array:
        """The values as cells of a line."""
        return csv_lines([self.values])


@dataclass(frozen=True)
class Found:
    """What a table has for the keys of a batch."""

    #: Number of each record's row in ``columns``, :data:`NO_ROW` for a key that the table lacks.
    rows: npt.NDArray[np.int64]
    columns: Sequence[Column]
    #: Records whose look-up has failed, with the reason.
    failures: Mapping[int, RecordError] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Base of tables: frozen parameters, checked at construction.

    Examples
    --------
    >>> from riot_ops import tables
    >>> isinstance(tables.KeyFile("rooms.txt"), tables.Table)
    True
    >>> tables.KeyFile("rooms.txt").to_dict()
    {'key_file': {'path': 'rooms.txt'}}
    """

    #: Whether all values are texts.
    textual: ClassVar[bool] = True
    #: Whether several threads may look up at once.
    reentrant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        """Raise :class:`ConfigError` if a parameter is out of its range."""

    def check_keys(self, on: tuple[str, ...]) -> None:
        """Raise :class:`ConfigError` unless a record's key may consist of the fields ``on``."""
        if not on:
            raise ConfigError("lookup: on must name the field with the key, or the fields that form it")

    def requires(self, on: tuple[str, ...]) -> Mapping[str, Requirement]:
        """Return what the fields of a record must be."""
        return dict.fromkeys(on, "text")

    def check_input(self, schema: pa.Schema) -> None:
        """Raise :class:`ConfigError` for an input whose keys cannot be looked up."""

    def names(self, on: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the names of the columns with values; None if they have only numbers."""
        raise NotImplementedError

    def width(self, on: tuple[str, ...]) -> int:
        """Return the number of columns with values."""
        return len(self.names(on) or ())

    def types(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Sequence[pa.DataType]:
        """Return the types of the wanted columns; None: all."""
        return [pa.string()] * (self.width(on) if wanted is None else len(wanted))

    def look_up(
        self, batch: pa.RecordBatch, keys: Sequence[pa.Array], wanted: tuple[str, ...] | None, on: tuple[str, ...]
    ) -> Found:
        """Find the rows of keys, and return them with the wanted columns."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Describe the table as JSON-able data: its kind with the parameters."""
        kind = snake_case(type(self).__name__)
        return {kind: parameters_to_json(self, kind)}


#: Module and class of each kind.
_KINDS = {
    "csv_table": ("text_tables", "CSVTable"),
    "key_file": ("text_tables", "KeyFile"),
    "inline_table": ("text_tables", "InlineTable"),
    "networks": ("networks", "Networks"),
    "road_network": ("road_network", "RoadNetwork"),
    "store_table": ("store_table", "StoreTable"),
}


def table_from(value: Any) -> Table:
    """Return the table that a value stands for.

    A text is the path of a :class:`CSVTable`; a mapping, or pairs, have the values of each key; what
    :meth:`Table.to_dict` has written is read.

    >>> table_from({"s1": "Rio"})
    InlineTable(rows=(('s1', ('Rio',)),))
    """
    if isinstance(value, Table):
        return value
    if isinstance(value, str):
        return _new_table("csv_table", value)
    parameters = next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else None
    if isinstance(parameters, Mapping):
        (name,) = value
        if name not in _KINDS:
            raise ConfigError(f"unknown table {name!r}; tables are {', '.join(_KINDS)}{did_you_mean(name, _KINDS)}")
        try:
            return _new_table(name, **parameters_from_json(_kind(name), name, parameters))
        except TypeError as error:  # a parameter is missing
            raise ConfigError(f"table {name}: {error}") from None
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, bytes):
        return _new_table("inline_table", value)
    raise ConfigError(
        "lookup: table must be a path, a mapping of keys to texts, or one of "
        f"{', '.join(f'tables.{name}' for _, name in _KINDS.values())}, got {value_text(value)}"
    )


def _new_table(kind: str, *values: Any, **parameters: Any) -> Table:
    table: Table = _kind(kind)(*values, **parameters)
    return table


def _kind(name: str) -> Any:
    module, cls = _KINDS[name]
    return getattr(import_module(f"riot_ops.tables.{module}"), cls)


def file_version(path: str, limit: int | None) -> tuple[int, int]:
    """Return time and size of a file, for a cache of what it contains; raise for one above the limit of bytes."""
    try:
        status = local_path(path, "table").stat()
    except OSError as error:
        raise ConfigError(f"lookup: the table {path} cannot be read: {error.strerror or error}") from None
    if limit is not None and status.st_size > limit:
        raise ConfigError(f"lookup: the table {path} has {status.st_size} bytes, at most {limit} are allowed")
    return status.st_mtime_ns, status.st_size
