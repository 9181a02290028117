"""What a table of rows under a partition key and a row key is."""

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
    "BATCH",
    "Key",
    "Row",
    "TableStore",
    "check_row",
    "check_table",
    "plain",
    "write_chunks",
]

#: Most rows of one transaction.
BATCH = 100
LONGEST_KEY = 512
MOST_VALUES = 252
LARGEST_VALUE = 64 << 10
LARGEST_ROW = 1 << 20

Key = tuple[str, str]


class Row(NamedTuple):
    """One row: its keys, as :func:`riot_ops.connectors.template.encode_key` writes them, and its values."""

    partition: str
    row: str
    values: Mapping[str, Any]


class TableStore(ABC):
    """A table of rows, each under a partition key and a row key.

    Values are bool, int (64 bits), finite float, str, bytes and datetime (with a time zone); one that is
    None is left out. The limits are those of Azure whatever is behind, see :func:`check_row`. What is
    wrong with the store raises :class:`ConnectorError`.
    """

    #: What to call it in messages.
    label: str
    #: Calls that may wait for their answers at once.
    parallel: int = 1

    @abstractmethod
    def create(self) -> None:
        """Make the table unless it is there."""

    def insert(self, rows: Sequence[Row], batch: int = BATCH) -> dict[int, RecordError]:
        """Insert rows, or replace those with the same keys.

        Rows of one partition are written up to ``batch`` at a time, each time all or none; of several
        rows with the same keys the last one stays. Doing it again makes no difference.

        Returns
        -------
        dict
            Why rows were refused, by their place among ``rows``.
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
        for row in write_chunks(chunks, self._write):
            for i in places[row.partition, row.row]:
                refused[i] = RecordError(f"{self.label} refuses the row", reason="refused")
        return dict(sorted(refused.items()))

    @abstractmethod
    def _write(self, chunks: Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
        """Upsert chunks of rows with distinct keys, each of one partition; returns those that are refused."""

    @abstractmethod
    def get(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """The values of the rows with the given keys; None for a row that is not there."""

    @abstractmethod
    def range(self, partition: str, start: str, end: str, most: int | None = None) -> list[Row]:
        """The rows of a partition with ``start <= row key < end``, sorted; ``too_large`` if more than allowed."""

    def close(self) -> None:
        """Let go of connections; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_count(self, found: Sequence[Any], most: int | None) -> None:
        if most is not None and len(found) > most:
            raise RecordError(f"the range of {self.label} has more than {most} rows", reason="too_large")


R = TypeVar("R")


def write_chunks(
    chunks: Sequence[Sequence[R]], write: Callable[[Sequence[Sequence[R]]], Sequence[Sequence[R]]]
) -> list[R]:
    """Write chunks of rows with a function that returns the refused ones; the rows that are to blame.

    >>> write_chunks([[1, 2, -3], [4]], lambda chunks: [c for c in chunks if min(c) < 0])
    [-3]
    """
    found: list[R] = []
    while chunks:
        halves: list[Sequence[R]] = []
        for chunk in write(chunks):
            if len(chunk) > 1:  # one of them is to blame, or all together are too much
                halves += [chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]]
            else:
                found += chunk
        chunks = halves
    return found


def check_row(row: Row) -> Row:
    """The row without values that are None; :class:`RecordError` where no table could take it.

    A key has at most 512 characters; there are at most 252 values, a text or bytes have at most 64 KiB
    (as UTF-16), the row has at most 1 MiB, an int at most 64 bits; a float is finite.
    """
    for key in (row.partition, row.row):
        if not 0 < len(key) <= LONGEST_KEY:
            raise RecordError(
                f"the key {excerpt(key)!r} has {len(key)} characters, not 1 to {LONGEST_KEY}", reason="bad_key"
            )
        if not key.isascii() or not key.isprintable() or any(c in key for c in "/\\#?%'"):
            raise RecordError(f"the key {excerpt(key)!r} is not written by encode_key", reason="bad_key")
    values = {name: value for name, value in row.values.items() if value is not None}
    if len(values) > MOST_VALUES:
        raise RecordError(f"the row has {len(values)} values, allowed are {MOST_VALUES}", reason="too_large")
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
        if size > LARGEST_VALUE:
            raise RecordError(f"{name} has {size} bytes, allowed are {LARGEST_VALUE}", reason="too_large")
        total += 2 * len(name) + size
    if total > LARGEST_ROW - 4 * LONGEST_KEY:
        raise RecordError(f"the row has {total} bytes, allowed are {LARGEST_ROW}", reason="too_large")
    return Row(row.partition, row.row, values)


def plain(value: Any) -> Any:
    """A value of an Arrow column as one that tables take: NaN is None, what is nested becomes JSON text.

    >>> plain(float("nan")), plain([1, None]), plain(2.5)
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


# -- addresses -------------------------------------------------------------------------------------


def check_table(name: str, fields: Sequence[str] = ()) -> None:
    """Raise unless the names of a table and of its values are such that every store takes them."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]{2,62}", name):
        raise ConfigError(f"table must be 3 to 63 ASCII letters and digits, a letter first, got {name!r}")
    for field in fields:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", field) or field in ("PartitionKey", "RowKey", "Timestamp"):
            raise ConfigError(
                f"the field {field!r} cannot be stored in a table under its name, which must be a word of ASCII "
                "letters, digits and '_', and not PartitionKey, RowKey or Timestamp; rename it first"
            )
