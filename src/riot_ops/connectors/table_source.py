"""The common part of sources that read tables with versions: offsets, splits, numbers and fields."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, ConnectorError, did_you_mean
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import Offset, Source, Split

__all__ = ["ChangeKind", "ChangedFile", "TableSource", "file_rows", "numbers"]

BATCH_ROWS = 65_536
#: How long a source that follows a table waits for its next version.
POLL_SECONDS = 1.0
#: The table's own numbers, as ``seq`` numbers the records of the source.
TABLE_SEQ = "table_seq"

#: What the records of a file are to a reader of changes; a ``cdc`` file says it of each record.
ChangeKind = Literal["insert", "delete", "cdc"]


@dataclass(frozen=True)
class ChangedFile:
    """A data file that a version of a table adds or removes."""

    path: str
    rows: int
    values: dict[str, str | None]  # of the columns that are not in the file, as the table's log spells them
    kind: ChangeKind = "insert"


class TableSource(Source):
    """Reads a version of a table, and then the files that later versions add.

    An offset is a version, a file of it and a row, with the number of the record.

    Parameters
    ----------
    version : int, optional
        The one version to read.
    start_version : int, optional
        The first version whose changes are read, without the table before it.
    follow : bool
        Whether to wait for more versions.
    time : str, optional
        Column that becomes ``event_time``.
    """

    #: The fields that the source adds to those of the table.
    added: tuple[pa.Field, ...] = ()

    def __init__(self, version: int | None, start_version: int | None, follow: bool, time: str | None) -> None:
        for name, given in (("version", version), ("start_version", start_version)):
            if given is not None and (type(given) is not int or given < 0):
                raise ConfigError(f"{name} must be the number of a version, 0 or more, got {given!r}")
        if version is not None and (start_version is not None or follow):
            raise ConfigError("version reads one version of the table: leave out start_version and follow")
        self.version, self.start_version, self.follow, self.time = version, start_version, follow, time
        self.names: frozenset[str] | None = None  # of the fields that the dataflow declares
        self._columns: pa.Schema | None = None
        self._initial: Offset | None = None
        self._end: int | None = None

    # -- what a kind of table defines ----------------------------------------------------------------

    @property
    @abstractmethod
    def label(self) -> str:
        """The table in words, for messages."""

    @abstractmethod
    def table_columns(self) -> pa.Schema:
        """Return the columns of the table as the source begins to read it."""

    @abstractmethod
    def table_id(self) -> str:
        """Return what distinguishes the table from another one under its name."""

    @abstractmethod
    def newest(self) -> int:
        """Return the latest version."""

    @abstractmethod
    def snapshot(self, version: int) -> list[ChangedFile]:
        """Return the data files of a version, in an order that does not change."""

    @abstractmethod
    def changes(self, version: int) -> list[ChangedFile]:
        """Return the data files that a version adds, in an order that does not change."""

    @abstractmethod
    def read_piece(self, piece: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Read rows of one file."""

    # -- fields --------------------------------------------------------------------------------------

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""
        if self._columns is None:
            self._columns = self.table_columns()
            if self.time is not None and self.time not in self._columns.names:
                raise ConfigError(
                    f"time: {self.label} has no column {self.time!r}{did_you_mean(self.time, self._columns.names)}"
                )
            if self.time is not None and not pa.types.is_timestamp(dtype := self._columns.field(self.time).type):
                raise ConfigError(f"time: the column {self.time!r} of {self.label} must be a timestamp, and is {dtype}")
        return self._columns

    def field_name(self, column: str) -> str:
        """Return the name of a column among the fields of the source."""
        if column == "seq":
            return TABLE_SEQ
        return "event_time" if column == self.time else column

    def wanted(self) -> list[pa.Field]:
        """Return the columns that the dataflow declares."""
        return [c for c in self.columns if self.names is None or self.field_name(c.name) in self.names]

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field("seq", pa.int64(), nullable=False)]
        for column in self.wanted():
            name = self.field_name(column.name)
            stamp = name == "event_time" and pa.types.is_timestamp(column.type)
            fields.append(pa.field(name, TIMESTAMP if stamp else column.type))
        return pa.schema(fields + [f for f in self.added if self.names is None or f.name in self.names])

    def project(self, schema: pa.Schema) -> Source:
        projected = copy.copy(self)
        projected.names = frozenset(schema.names)
        return projected

    # -- offsets -------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        if self._initial is None:
            base = -1
            if self.start_version is None:
                base = self.newest() if self.version is None else self.version
            first = base if self.start_version is None else self.start_version
            if self.start_version is not None and first > (newest := self.newest()) + 1:
                raise ConnectorError(
                    f"start_version = {first}: {self.label} has the versions up to {newest} only; give one of these, "
                    f"or {newest + 1} for what is appended from now on"
                )
            self._initial = {
                "table": self.table_id(), "base": base, "version": first, "file": 0, "row": 0, "seq": 0,
            }  # fmt: skip
        return self._initial

    def _files(self, base: int, version: int) -> list[ChangedFile]:
        return self.snapshot(version) if version == base else self.changes(version)

    def _last(self) -> int:
        """Return the last version to read."""
        if self.version is not None:
            return self.version
        if self._end is None or self.follow:
            self._end = self.newest()
        return self._end

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        last = self._last()
        self._check_table(start, last)
        version, place, row, seq = (int(start[name]) for name in ("version", "file", "row", "seq"))
        left = limit
        while version <= last:
            for file in self._files(start["base"], version)[place:]:
                if left is not None and file.rows - row > left:
                    return start | {"version": version, "file": place, "row": row + left, "seq": seq + left}
                seq += file.rows - row
                left = None if left is None else left - (file.rows - row)
                place, row = place + 1, 0
            version, place = version + 1, 0
        return start | {"version": version, "file": place, "row": row, "seq": seq}

    def _check_table(self, start: Offset, last: int) -> None:
        found = self.table_id()
        if start["table"] != found or start["version"] > last + 1:
            what = "was replaced by another" if start["table"] != found else f"has only {last + 1} versions"
            raise ConnectorError(
                f"{self.label} {what}, but the run continues after version "
                f"{start['version'] - 1}: start again with a new checkpoint"
            )

    def finished(self, offset: Offset) -> bool:
        return not self.follow and offset["version"] > self._last()

    def waits(self) -> bool:
        return self.follow

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        return POLL_SECONDS if self.follow else None

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["seq"] - start["seq"])

    def seq_at(self, offset: Offset) -> int:
        return int(offset["seq"])

    # -- records -------------------------------------------------------------------------------------

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        total = end["seq"] - start["seq"]
        edges = [start["seq"] + total * (i + 1) // n for i in range(n)]
        parts: list[list[dict[str, Any]]] = [[] for _ in edges]
        at = 0
        for piece in self._pieces(start, end):
            while piece["rows"][0] < piece["rows"][1]:
                while piece["seq"] >= edges[at]:
                    at += 1
                first, last = piece["rows"]
                cut = min(last, first + edges[at] - piece["seq"])
                parts[at].append(piece | {"rows": [first, cut]})
                piece = piece | {"rows": [cut, last], "seq": piece["seq"] + cut - first}
        return [{"pieces": part} for part in parts if part]

    def _pieces(self, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
        """Yield the rows of each file between two offsets."""
        version, place, row, seq = (int(start[name]) for name in ("version", "file", "row", "seq"))
        while (version, place, row) < (end["version"], end["file"], end["row"]):
            files = self._files(start["base"], version)
            while place < len(files):
                over = (version, place) == (end["version"], end["file"])
                until = int(end["row"]) if over else files[place].rows
                if row < until:
                    file = files[place]
                    yield {
                        "path": file.path, "kind": file.kind, "values": file.values, "rows": [row, until], "seq": seq,
                        "version": version, "marks": version == start["base"],
                    }  # fmt: skip
                    seq += until - row
                if over:
                    return
                place, row = place + 1, 0
            version, place, row = version + 1, 0, 0

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for piece in split["pieces"]:
            yield from self.read_piece(piece)


def file_rows(file: Any, first: int, last: int, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of a Parquet file in batches, each with the number of its first row."""
    at = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if at + rows <= first or at >= last:
            at += rows
            continue
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
            begin, end = max(first - at, 0), min(last - at, batch.num_rows)
            if begin < end:
                yield at + begin, batch.slice(begin, end - begin)
            at += batch.num_rows


def numbers(first: int, rows: int) -> pa.Array:
    """Return the numbers of records in a row."""
    return pa.array(np.arange(first, first + rows, dtype=np.int64))
