"""Tables of texts by key: given directly, or in a file."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, excerpt, value_text
from riot_ops.core.parameters import Names
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.arrow import valid_mask
from riot_ops.kernels.arrays.hashing import hash_keys
from riot_ops.kernels.arrays.index import KeyIndex
from riot_ops.tables import table as limits
from riot_ops.tables.table import NO_ROW, Column, Found, Table, file_version

__all__ = ["CSVTable", "InlineTable", "KeyFile"]

Key = str | tuple[str, ...]
Rows = tuple[tuple[Key, tuple[str, ...]], ...]


class Index(NamedTuple):
    """A table in use: the names of its columns, the row of each key, the columns."""

    names: tuple[str, ...] | None
    places: KeyIndex
    columns: list[Column]
    key_width: int

    def find(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """Return the row of each key; a null is in no table."""
        plain = [key.dictionary_decode() if pa.types.is_dictionary(key.type) else key for key in keys]
        plain = [key.cast(pa.string()) if pa.types.is_null(key.type) else key for key in plain]
        rows = self.places.find(*hash_keys(plain, len(plain[0])))
        for column in plain:
            if column.null_count:
                rows = np.where(valid_mask(column), rows, NO_ROW)
        return rows


@dataclass(frozen=True)
class TextTable(Table):
    """Base of the tables of texts."""

    def index(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Index:
        """Return the table in use, with the wanted columns; None: all."""
        raise NotImplementedError

    def check_keys(self, on: tuple[str, ...]) -> None:
        super().check_keys(on)
        if len(on) != (width := self.index((), on).key_width):
            raise ConfigError(f"lookup: a key of the table has {width} texts, got on = {on!r}")

    def names(self, on: tuple[str, ...]) -> tuple[str, ...] | None:
        return self.index(None, on).names

    def width(self, on: tuple[str, ...] = ()) -> int:
        return len(self.index(None, on).columns)

    def look_up(
        self, batch: pa.RecordBatch, keys: Sequence[pa.Array], wanted: tuple[str, ...] | None, on: tuple[str, ...]
    ) -> Found:
        table = self.index(wanted, on)
        return Found(table.find(keys), table.columns)


@dataclass(frozen=True)
class InlineTable(TextTable):
    """A table that is given directly.

    Parameters
    ----------
    rows : mapping or pairs
        The values of each key: a text, or a sequence of as many texts for each key. A key is a text, or a tuple of
        texts where several fields form it. At most 512 MB.

    Examples
    --------
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> rooms = tables.InlineTable({"d1": "cellar", "d2": "roof"})
    >>> t.Lookup(table=rooms, on="device", columns="room").session().push({"device": "d2"})
    [{'device': 'd2', 'room': 'roof'}]
    """

    rows: Any

    def validate(self) -> None:
        object.__setattr__(self, "rows", _normalized_rows(self.rows))
        self.index(None, ())

    def index(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Index:
        return _index_of(self.rows)


@dataclass(frozen=True)
class CSVTable(TextTable):
    r"""A file of comma-separated values in UTF-8, whose first line names the columns; at most 512 MB.

    Parameters
    ----------
    path : str
        Each process reads the file once per version.
    on : str or tuple of str, default ()
        The columns that form the key; by default those with the names of the fields.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rooms.csv")
    ...     _ = path.write_text("id,room\nd1,cellar\nd2,roof\n")
    ...     lookup = t.Lookup(table=tables.CSVTable(str(path), on="id"), on="device")
    ...     found = lookup.session().push({"device": "d2"})
    >>> found
    [{'device': 'd2', 'room': 'roof'}]
    """

    path: str
    on: Names = ()

    def index(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Index:
        return _load_csv(self.path, self.on or on, wanted, *file_version(self.path, limits.MAX_BYTES))


@dataclass(frozen=True)
class KeyFile(TextTable):
    r"""A UTF-8 file of lines ``key:value,value,...`` with one colon and as many values for each key; at most 512 MB.

    Parameters
    ----------
    path : str
        Each process reads the file once per version. Empty lines are skipped.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rooms.txt")
    ...     _ = path.write_text("d1:Rio,cellar\nd2:Rio,roof\n")
    ...     lookup = t.Lookup(table=tables.KeyFile(str(path)), on="device", columns=("city", "room"))
    ...     found = lookup.session().push({"device": "d2"})
    >>> found
    [{'device': 'd2', 'city': 'Rio', 'room': 'roof'}]
    """

    path: str

    def index(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Index:
        return _load_keys(self.path, *file_version(self.path, limits.MAX_BYTES))


def _normalized_rows(given: Any) -> Rows:
    """Normalise a mapping (or its normal form) to sorted rows, so that equal tables make equal tasks."""
    rows: list[tuple[Key, tuple[str, ...]]] = []
    try:
        for key, values in given.items() if isinstance(given, Mapping) else given:
            own: Key = key if isinstance(key, str) else tuple(key)
            row = (values,) if isinstance(values, str) else tuple(values)
            if not all(isinstance(text, str) for text in (*_parts(own), *row)):
                raise ValueError(f"{value_text(key)} and {value_text(values)}")
            rows.append((own, row))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"lookup: table must be a path or map keys to texts, or to sequences of texts: {error}"
        ) from None
    if sum(sum(map(len, (*_parts(key), *row))) for key, row in rows) > limits.MAX_BYTES:
        raise ConfigError(f"lookup: table is larger than {limits.MAX_BYTES} bytes")
    return tuple(sorted(rows, key=lambda row: (_parts(row[0]), row[1])))


def _parts(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


@functools.lru_cache(maxsize=64)
def _index_of(rows: Rows) -> Index:
    return _indexed_rows(rows, "lookup: table")


def _indexed_rows(rows: Sequence[tuple[Key, tuple[str, ...]]], what: str) -> Index:
    if not rows:
        raise ConfigError(f"{what} is empty")
    for part, width in ((0, len(_parts(rows[0][0]))), (1, len(rows[0][1]))):
        for row in rows:
            if len(_parts(row[part])) != width or not width:
                raise ConfigError(
                    f"{what} has {len(_parts(row[part]))} {('texts in', 'values for')[part]} the key "
                    f"{excerpt(','.join(_parts(row[0])))!r}, {width or 'at least 1'} expected"
                )
    keys = list(zip(*(_parts(key) for key, _ in rows), strict=True))
    return _indexed(None, keys, list(zip(*(row for _, row in rows), strict=True)), what)


def _indexed(
    names: tuple[str, ...] | None, keys: Sequence[Sequence[str]], columns: Iterable[Sequence[str]], what: str
) -> Index:
    index, n = KeyIndex(), len(keys[0])
    try:
        texts = [pa.array(part, pa.string()) for part in keys]
        values = [Column(pa.array(column, pa.string())) for column in columns]
    except UnicodeEncodeError:
        raise ConfigError(f"{what} has a text that is not Unicode text: a lone surrogate") from None
    places = index.resolve(*hash_keys(texts, n))
    again = np.flatnonzero(places != np.arange(n))
    if again.size:
        key = ",".join(part[again[0]] for part in keys)
        raise ConfigError(f"{what} has the key {excerpt(key)!r} twice")
    return Index(names, index, values, len(keys))


@functools.lru_cache(maxsize=16)
def _load_csv(path: str, key: tuple[str, ...], wanted: tuple[str, ...] | None, modified: int, size: int) -> Index:
    what = f"lookup: the table {path}"
    rows = []
    try:
        with local_path(path).open(encoding="utf-8-sig", newline="") as lines:
            table = csv.reader(lines, strict=True)
            head = next(table, [])
            for name in (*key, *(wanted or ())):
                if name not in head:
                    # the file may be any that a descriptor names, so its content is not shown
                    raise ConfigError(f"{what} has no column {name!r} among the {len(head)} of its first line")
            if len(named := [name for name in head if name]) > len(set(named)):
                raise ConfigError(f"{what} has two columns of one name in its first line")
            for row in table:
                if row and len(row) != len(head):
                    raise ConfigError(f"{what}: line {table.line_num} has {len(row)} cells, the header {len(head)}")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{what} cannot be read: {error}") from None
    names = tuple(name for name in head if name not in key) if wanted is None else wanted
    keys, columns = ([[row[head.index(name)] for row in rows] for name in some] for some in (key, names))
    return _indexed(names, keys, columns, what)


@functools.lru_cache(maxsize=16)
def _load_keys(path: str, modified: int, size: int) -> Index:
    what, rows = f"lookup: the table {path}", []
    try:
        text = local_path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} cannot be read: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        key, colon, values = line.partition(":")
        if not colon or ":" in values:
            raise ConfigError(f"lookup: line {number} of {path} must have one colon")
        rows.append((key, tuple(values.split(","))))
    return _indexed_rows(rows, what)
