"""The contract of table stores, whose rows have a partition key and a row key."""

from __future__ import annotations

import datetime as dt
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from riot_ops.core.errors import ConfigError, RecordError, excerpt

__all__ = [
    "MAX_BATCH_ROWS",
    "Key",
    "Row",
    "TableStore",
    "check_row",
    "check_table",
    "storable_value",
    "write_chunks",
]

#: Maximum number of rows of one transaction.
MAX_BATCH_ROWS = 100
MAX_KEY_LENGTH = 512
MAX_VALUES = 252
MAX_VALUE_BYTES = 64 << 10
MAX_ROW_BYTES = 1 << 20

Key = tuple[str, str]


class Row(NamedTuple):
    """One row: its keys, encoded by :func:`riot_ops.connectors.template.encode_key`, and its values."""

    partition: str
    row: str
    values: Mapping[str, Any]


class TableStore(ABC):
    """A table of rows, each under a partition key and a row key.

    Values are bool, int (64 bits), finite float, str, bytes and datetime (with a time zone); None is omitted. The
    limits of Azure apply to every implementation, see :func:`check_row`. A problem with the store raises
    :class:`ConnectorError`.
    """

    #: Name of the table in messages.
    label: str
    #: Number of concurrent calls that it supports.
    max_concurrency: int = 1

    @abstractmethod
    def create(self) -> None:
        """Create the table unless it exists."""

    def insert(self, rows: Sequence[Row], batch: int = MAX_BATCH_ROWS) -> dict[int, RecordError]:
        """Insert rows, or replace those with the same keys.

        Up to ``batch`` rows of one partition are written at a time, all or none; the last of several rows with the same
        keys wins. The operation is idempotent.

        Returns
        -------
        dict
            The error of each refused row, by its index in ``rows``.
        """
        refused: dict[int, RecordError] = {}
        latest: dict[Key, Row] = {}
        places: dict[Key, list[int]] = {}
        for i, row in enumerate(rows):
            try:
                latest[row.partition, row.row] = check_row(row)
                places.setdefault((row.partition, row.row), []).append(i)
            except RecordError as error:
                refused[i] = error
        partitions: dict[str, list[Row]] = {}
        for row in latest.values():
            partitions.setdefault(row.partition, []).append(row)
        chunks: list[Sequence[Row]] = [
            members[i : i + batch] for members in partitions.values() for i in range(0, len(members), batch)
        ]
        for row in write_chunks(chunks, self.upsert_chunks):
            for i in places[row.partition, row.row]:
                refused[i] = RecordError(f"{self.label} refuses the row", reason="refused")
        return dict(sorted(refused.items()))

    @abstractmethod
    def upsert_chunks(self, chunks: Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
        """Upsert chunks of rows with distinct keys, each of one partition; return the refused chunks."""

    @abstractmethod
    def get(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """Read the values of the rows with the given keys; None for a missing row."""

    @abstractmethod
    def range(self, partition: str, start: str, end: str, max_rows: int | None = None) -> list[Row]:
        """Read the rows of a partition with ``start <= row key < end``, sorted; ``too_large`` if over ``max_rows``."""

    def close(self) -> None:
        """Close connections; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_count(self, found: Sequence[Any], max_rows: int | None) -> None:
        if max_rows is not None and len(found) > max_rows:
            raise RecordError(f"the range of {self.label} has more than {max_rows} rows", reason="too_large")


R = TypeVar("R")


def write_chunks(
    chunks: Sequence[Sequence[R]], write: Callable[[Sequence[Sequence[R]]], Sequence[Sequence[R]]]
) -> list[R]:
    """Write chunks of rows with a function that returns the refused ones, and find the offending rows by halving.

    >>> write_chunks([[1, 2, -3], [4]], lambda chunks: [c for c in chunks if min(c) < 0])
    [-3]
    """
    found: list[R] = []
    while chunks:
        halves: list[Sequence[R]] = []
        for chunk in write(chunks):
            if len(chunk) > 1:  # one row is invalid, or all together are too large
                halves += [chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]]
            else:
                found += chunk
        chunks = halves
    return found


def check_row(row: Row) -> Row:
    """Return the row without values that are None; :class:`RecordError` if no table accepts it.

    A key has at most 512 characters. There are at most 252 values; text (as UTF-16) or bytes have at most 64 KiB, the
    row has at most 1 MiB, an int at most 64 bits; a float is finite.
    """
    for key in (row.partition, row.row):
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            raise RecordError(
                f"the key {excerpt(key)!r} has {len(key)} characters, not 1 to {MAX_KEY_LENGTH}", reason="bad_key"
            )
        if not key.isascii() or not key.isprintable() or any(c in key for c in "/\\#?%'"):
            raise RecordError(f"the key {excerpt(key)!r} is not encoded by encode_key", reason="bad_key")
    values = {name: value for name, value in row.values.items() if value is not None}
    if len(values) > MAX_VALUES:
        raise RecordError(f"the row has {len(values)} values, allowed are {MAX_VALUES}", reason="too_large")
    total = 0
    for name, value in values.items():
        size = 8
        if isinstance(value, str):
            size = len(value.encode("utf-16-le"))
        elif isinstance(value, bytes):
            size = len(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise RecordError(f"{name} is {value}", reason="not_finite")
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise RecordError(f"{name} = {value} has more than 64 bits", reason="too_large")
        if size > MAX_VALUE_BYTES:
            raise RecordError(f"{name} has {size} bytes, allowed are {MAX_VALUE_BYTES}", reason="too_large")
        total += 2 * len(name) + size
    if total > MAX_ROW_BYTES - 4 * MAX_KEY_LENGTH:
        raise RecordError(f"the row has {total} bytes, allowed are {MAX_ROW_BYTES}", reason="too_large")
    return Row(row.partition, row.row, values)


def storable_value(value: Any) -> Any:
    """Convert a value of an Arrow column to one that tables accept: NaN to None, nested values to JSON.

    >>> storable_value(float("nan")), storable_value([1, None]), storable_value(2.5)
    (None, '[1,null]', 2.5)
    """
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, list | dict):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)


# -- names -------------------------------------------------------------------------------------


def check_table(name: str, fields: Sequence[str] = ()) -> None:
    """Raise unless every store accepts the names of a table and of its values."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]{2,62}", name):
        raise ConfigError(f"table must be 3 to 63 ASCII letters and digits, a letter first, got {name!r}")
    for field in fields:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", field) or field in ("PartitionKey", "RowKey", "Timestamp"):
            raise ConfigError(
                f"the field {field!r} cannot be stored in a table under its name, which must be a word of ASCII "
                "letters, digits and '_', and not PartitionKey, RowKey or Timestamp; rename it first"
            )
