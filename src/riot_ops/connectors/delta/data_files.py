"""Data files of a Delta table: Parquet by partition, with the statistics that its log holds."""

from __future__ import annotations

import itertools
import json
import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.connectors.delta.location import TableLocation

__all__ = ["DataFiles", "FileLayout", "WrittenFile", "partition_text", "statistics"]

#: Data files of one writer that are open at a time; more partitions than that make several files each.
MAX_OPEN = 64
#: Columns with statistics, and characters of a text in them, as Delta's own writers have them.
MAX_COLUMNS, MAX_CHARACTERS = 32, 32
#: Folder of the rows without a value, as Hive names it.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
LAST_CHARACTER = "\U0010ffff"
MILLISECOND = timedelta(milliseconds=1)

#: A data file for the log: path in the table, bytes, text of each partition column, statistics in JSON.
WrittenFile = tuple[str, int, dict[str, str | None], str]


@dataclass(frozen=True)
class FileLayout:
    """What the data files of a stream hold.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the table that the stream has, with the table's types.
    partition_by : sequence of str
        Those in the names of folders instead of in the files.
    """

    schema: pa.Schema
    partition_by: Sequence[str]

    def table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return batches of the stream with the columns and types of the table."""
        pieces = [b.select(self.schema.names).cast(self.schema) for b in batches]
        return pa.Table.from_batches(pieces, self.schema)

    def parts(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Cut rows by the values of the partition columns, and leave these out; the order within a part stays."""
        if not self.partition_by:
            yield (), rows
            return
        texts = [partition_text(rows.column(name).combine_chunks()) for name in self.partition_by]
        codes = np.zeros(rows.num_rows, np.int64)
        for text in texts:
            values = text.dictionary_encode(null_encoding="encode")
            codes = codes * (len(values.dictionary) + 1) + values.indices.to_numpy(zero_copy_only=False)
            _, codes = np.unique(codes, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), len(order)]
        sorted_rows = rows.drop_columns(list(self.partition_by)).take(pa.array(order))
        for begin, end in itertools.pairwise(edges):
            if begin < end:
                yield tuple(text[int(order[begin])].as_py() for text in texts), sorted_rows.slice(begin, end - begin)


def partition_text(values: pa.Array) -> pa.Array:
    """Return values as the log spells them; an empty text, and Hive's name for null, are null, as Delta has it.

    >>> partition_text(pa.array([datetime(2024, 5, 1, 12, 30, tzinfo=UTC), None])).to_pylist()
    ['2024-05-01T12:30:00.000000Z', None]
    >>> partition_text(pa.array([True, False])).to_pylist(), partition_text(pa.array(["a", ""])).to_pylist()
    (['true', 'false'], ['a', None])
    """
    dtype = values.type
    if pa.types.is_timestamp(dtype):
        form = "%Y-%m-%dT%H:%M:%SZ" if dtype.tz else "%Y-%m-%d %H:%M:%S"  # Arrow's seconds have the unit's digits
        return pc.strftime(values, form, locale="C")
    text = values if pa.types.is_string(dtype) else values.cast(pa.string())
    return pc.if_else(pc.is_in(text, pa.array(["", NULL_FOLDER])), pa.scalar(None, pa.string()), text)


class DataFiles:
    """Writes the data files of one stream in one batch.

    The names depend on nothing but the arguments and the records: a task that Spark runs again reports the same ones.
    """

    def __init__(self, location: TableLocation, layout: FileLayout, name: str, compression: str) -> None:
        self._location, self._layout = location, layout
        self._name, self._compression = name, compression
        self._open: dict[tuple[str | None, ...], _File] = {}
        self._closed: list[_File] = []
        self._numbers: dict[tuple[str | None, ...], int] = {}

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add rows as a row group of each partition that has some."""
        for values, rows in self._layout.parts(self._layout.table(batches)):
            file = self._open.pop(values, None)
            if file is None:
                if len(self._open) >= MAX_OPEN:
                    self._close(next(iter(self._open)))  # the one that was written longest ago
                file = self._create(values, rows.schema)
            self._open[values] = file
            file.add(rows)

    def _create(self, values: tuple[str | None, ...], schema: pa.Schema) -> _File:
        number = self._numbers[values] = self._numbers.get(values, -1) + 1
        by = dict(zip(self._layout.partition_by, values, strict=True))
        folder = "".join(f"{quote(n, safe='')}={_folder_text(v)}/" for n, v in by.items())
        path = f"{folder}{self._name}{f'-{number}' if number else ''}.parquet"
        return _File(self._location, path, by, schema, self._compression)

    def _close(self, values: tuple[str | None, ...]) -> None:
        file = self._open.pop(values)
        self._closed.append(file)
        file.close()

    def finish(self) -> list[WrittenFile]:
        """Close all files and return them in the order of their paths."""
        for values in list(self._open):
            self._close(values)
        return sorted(file.written for file in self._closed)

    def abort(self) -> None:
        """Remove the files."""
        for file in (*self._closed, *self._open.values()):
            file.remove()


def _folder_text(value: str | None) -> str:
    return NULL_FOLDER if value is None else quote(value, safe="")


@dataclass
class _File:
    """One data file. On this machine it has its name when it is complete, as two attempts of a task may write it."""

    location: TableLocation
    path: str
    by: dict[str, str | None]
    schema: pa.Schema
    compression: str
    rows: int = 0
    size: int = 0
    not_numbers: set[str] = field(default_factory=set)  # columns with NaN
    footers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        from pyarrow import parquet

        self.temporary = f"{self.path}.{uuid.uuid4().hex[:12]}.tmp" if self.location.local else self.path
        files = self.location.files
        if "/" in self.path and self.location.local is not None:
            files.create_dir(self.path.rpartition("/")[0], recursive=True)
        texts = [f.name for f in self.schema if pa.types.is_string(f.type)]  # numbers seldom repeat
        self.writer = parquet.ParquetWriter(
            self.temporary,
            self.schema,
            filesystem=files,
            compression=self.compression,
            use_dictionary=texts,
            write_page_checksum=True,
            metadata_collector=self.footers,
            store_schema=False,
        )
        self.floats = [f.name for f in self.schema if pa.types.is_floating(f.type)]

    def add(self, rows: pa.Table) -> None:
        """Write a row group."""
        self.writer.write_table(rows)
        self.rows += rows.num_rows
        self.not_numbers.update(n for n in self.floats if pc.any(pc.is_nan(rows.column(n))).as_py())

    def close(self) -> None:
        """Complete the file under its name."""
        self.writer.close()
        files = self.location.files
        if self.temporary != self.path:
            files.move(self.temporary, self.path)
        self.size = files.get_file_info(self.path).size

    @property
    def written(self) -> WrittenFile:
        # not as \u escapes: readers built on arrow-json take a surrogate pair from U+20000 on for a lesser character
        found = json.dumps(statistics(self.footers[0], self.not_numbers), ensure_ascii=False)
        return self.path, self.size, self.by, found

    def remove(self) -> None:
        # closing writes buffered data, and so fails on a full disk; the earlier error is raised
        with suppress(OSError, pa.ArrowException):
            self.writer.close()
        for path in {self.temporary, self.path}:
            with suppress(OSError):
                self.location.files.delete_file(path)


def statistics(footer: Any, not_numbers: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the statistics of a data file as the log has them, from its footer.

    Columns within lists and structs have none, and neither has a maximum where a column holds NaN, which is greater
    than all numbers.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    schema = footer.schema.to_arrow_schema()
    leaves = [footer.schema.column(i).path for i in range(len(footer.schema))]
    for name in schema.names[:MAX_COLUMNS]:
        if name not in leaves or pa.types.is_nested(schema.field(name).type):
            continue
        at = leaves.index(name)
        found = [footer.row_group(i).column(at).statistics for i in range(footer.num_row_groups)]
        if any(one is None or one.null_count is None for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [one for one in found if one.num_values]
        if not bounds or not all(one.has_min_max for one in bounds):
            continue
        least = _bound(min(one.min for one in bounds), upper=False)
        greatest = _bound(max(one.max for one in bounds), upper=True)
        if least is not None:
            low[name] = least
        if greatest is not None and name not in not_numbers:
            high[name] = greatest
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _bound(value: Any, upper: bool) -> Any:
    """Return a bound of values in JSON: texts are cut, and times have milliseconds, so that they still are bounds."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        if len(value) <= MAX_CHARACTERS:
            return value
        if not upper:
            return value[:MAX_CHARACTERS]
        rest = value[MAX_CHARACTERS:].lstrip(LAST_CHARACTER)  # what begins with it is greater than the cut text with it
        return value[: len(value) - len(rest)] + LAST_CHARACTER if rest else value
    if isinstance(value, datetime):
        return _time_bound(value, upper)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return None  # JSON has no exact form that all readers take
    return value


def _time_bound(value: datetime, upper: bool) -> str | None:
    zoned = value.tzinfo is not None
    rest = timedelta(microseconds=value.microsecond % 1000)
    try:
        cut = value - rest + (MILLISECOND if upper and rest else timedelta())
    except OverflowError:
        return None
    if not zoned:
        return cut.isoformat(timespec="milliseconds")
    return cut.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
