"""A source that reads a Delta table: its records, those that later versions append, or its change feed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.connectors.delta.location import TableLocation, check_storage_options, deltalake
from riot_ops.connectors.delta.log import ChangedFile, DeltaLog
from riot_ops.connectors.delta.types import fits
from riot_ops.core.errors import ConfigError, ConnectorError, did_you_mean
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.secret import Secret
from riot_ops.core.source import Offset, Source, Split

__all__ = ["DeltaSource"]

BATCH_ROWS = 65_536
#: How long a source that follows a table waits for its next version.
POLL_SECONDS = 1.0
#: The table's own numbers, as ``seq`` numbers the records of the source.
TABLE_SEQ = "table_seq"
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME = "_change_type", "_commit_version", "_commit_timestamp"
CHANGES = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIME, TIMESTAMP),
)


class DeltaSource(Source):
    """Reads a Delta table: the records of its latest version, and then those that later versions append.

    An offset is a version, a file of it and a row; a run with a checkpoint continues there, and so reads each appended
    record once. ``seq`` numbers the records in the order of the versions; a column ``seq`` of the table is read as
    ``table_seq``. Versions that only rearrange records (optimize) have none. A version that removes or changes records
    is refused by default. On Spark the workers read the files.

    Parameters
    ----------
    folder : str or Path
        The table: a path, or an address in an object store (``s3://``, ``gs://``, ``abfss://``).
    version : int, optional
        Read the table as of this version, and end.
    start_version : int, optional
        Do not read the table as it is, but what this version and later ones append.
    change_feed : bool, default False
        Read all changes, with the columns ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``,
        ``delete``), ``_commit_version`` and ``_commit_timestamp``; the table needs ``delta.enableChangeDataFeed``.
    on_change : "refuse" or "ignore", default "refuse"
        What happens at a version that removes or changes records: an error names it, or it is passed over as a whole.
    follow : bool, default False
        Whether to wait for more versions; by default the source ends with the version that is the latest when the run
        starts.
    time : str, optional
        Column with the time, which becomes ``event_time``; by default a column of that name is.
    storage_options : mapping of str to str or Secret, optional
        Settings of the object store, as for :class:`~riot_ops.connectors.DeltaSink`.

    Raises
    ------
    ConnectorError
        There is no table, it cannot be reached, a version or file that is needed has expired, the table was replaced
        by another, or a later version changes the type of a column or drops it.

    Examples
    --------
    >>> import tempfile
    >>> import riot_ops as ro
    >>> from deltalake import write_deltalake
    >>> folder = tempfile.mkdtemp()
    >>> write_deltalake(folder, pa.table({"bed": ["a", "b"], "moisture": [40.5, 7.25]}))
    >>> source = DeltaSource(folder)
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", schema=source.schema)
    >>> _ = readings.apply(ro.tasks.RangeFilter(bounds={"moisture": (10, 100)}, by=None), id="wet").to("out")
    >>> flow.run(source)["wet"].to_pylist()
    [{'seq': 0, 'bed': 'a', 'moisture': 40.5}]
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        version: int | None = None,
        start_version: int | None = None,
        change_feed: bool = False,
        on_change: Literal["refuse", "ignore"] = "refuse",
        follow: bool = False,
        time: str | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        for name, given in (("version", version), ("start_version", start_version)):
            if given is not None and (type(given) is not int or given < 0):
                raise ConfigError(f"{name} must be the number of a version, 0 or more, got {given!r}")
        if version is not None and (start_version is not None or follow):
            raise ConfigError("version reads one version of the table: leave out start_version and follow")
        if on_change not in ("refuse", "ignore"):
            raise ConfigError(f"on_change must be 'refuse' or 'ignore', got {on_change!r}")
        if change_feed and on_change == "ignore":
            raise ConfigError("on_change='ignore' passes over the changes that change_feed=True reads: leave out one")
        deltalake()
        self.location = TableLocation.of(folder, check_storage_options(storage_options or {}))
        self.version, self.start_version, self.follow, self.time = version, start_version, follow, time
        self.change_feed = change_feed
        self._log = DeltaLog(self.location, change_feed, on_change == "ignore")
        self._columns: pa.Schema | None = None
        self._names: frozenset[str] | None = None  # of the fields that the dataflow declares
        self._initial: Offset | None = None
        self._end: int | None = None

    # -- fields --------------------------------------------------------------------------------------

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""
        if self._columns is None:
            self._columns = pa.schema(self._log.table(self.version).schema().to_arrow())
            if self.time is not None and self.time not in self._columns.names:
                raise ConfigError(
                    f"time: the Delta table {self.location.address} has no column {self.time!r}"
                    f"{did_you_mean(self.time, self._columns.names)}"
                )
        return self._columns

    def _field_name(self, column: str) -> str:
        if column == "seq":
            return TABLE_SEQ
        return "event_time" if column == self.time else column

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field("seq", pa.int64(), nullable=False)]
        for column in self.columns:
            name = self._field_name(column.name)
            stamp = name == "event_time" and pa.types.is_timestamp(column.type)
            fields.append(pa.field(name, TIMESTAMP if stamp else column.type))
        fields += CHANGES if self.change_feed else ()
        return pa.schema([f for f in fields if self._names is None or f.name in self._names or f.name == "seq"])

    def project(self, schema: pa.Schema) -> Source:
        projected = copy.copy(self)
        projected._names = frozenset(schema.names)  # noqa: SLF001 (a copy of its own)
        return projected

    def _check_columns(self, version: int) -> None:
        """Refuse a version that gives the table columns whose values are others than those that the run reads."""
        found = self._log.schema_of(version)
        if found is None:
            return
        for column in self.columns:
            if self._names is not None and self._field_name(column.name) not in self._names:
                continue
            if column.name not in found.names:
                what = f"drops the column {column.name!r}"
            elif not fits(found.field(column.name).type, column.type):
                what = f"makes the column {column.name!r} {found.field(column.name).type}; it was {column.type}"
            else:
                continue
            raise ConnectorError(
                f"version {version} of the Delta table {self.location.address} {what}: start again with a new "
                "checkpoint and a dataflow that declares the new columns"
            )

    # -- offsets -------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        if self._initial is None:
            table = self._log.table(self.version)
            base = table.version() if self.start_version is None else -1
            first = base if self.start_version is None else self.start_version
            self._initial = {
                "table": str(table.metadata().id), "base": base, "version": first, "file": 0, "row": 0, "seq": 0,
            }  # fmt: skip
        return self._initial

    def _files(self, base: int, version: int) -> list[ChangedFile]:
        if version == base:
            return self._log.snapshot(version)
        self._check_columns(version)
        return self._log.changes(version)

    def _last(self) -> int:
        """Return the last version to read."""
        if self.version is not None:
            return self.version
        if self._end is None or self.follow:
            self._end = int(self._log.table().version())
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
        found = str(self._log.table(self.version).metadata().id)
        if start["table"] != found or start["version"] > last + 1:
            what = "was replaced by another" if start["table"] != found else f"has only {last + 1} versions"
            raise ConnectorError(
                f"the Delta table {self.location.address} {what}, but the run continues after version "
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
            yield from self._read(piece)

    def _read(self, piece: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        file = self._log.open(piece["path"], piece["version"])
        first, last = piece["rows"]
        kept = self._kept_rows(piece) if piece["marks"] else None
        wanted = [c for c in self.columns if self._names is None or self._field_name(c.name) in self._names]
        present = set(file.schema_arrow.names)
        names = [c.name for c in wanted if c.name in present]
        names += [CHANGE_TYPE] if piece["kind"] == "cdc" else []
        at = 0
        with self.location.translating_errors("read"):
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if at + rows <= first or at >= last:
                    at += rows
                    continue
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
                    begin, end = max(first - at, 0), min(last - at, batch.num_rows)
                    if begin < end:
                        found = self._batch(batch.slice(begin, end - begin), at + begin, piece, wanted)
                        if kept is not None:
                            found = found.filter(pa.array(kept[at + begin : at + end]))
                        if found.num_rows:
                            yield found
                    at += batch.num_rows

    def _batch(self, rows: pa.RecordBatch, row: int, piece: dict[str, Any], wanted: list[pa.Field]) -> pa.RecordBatch:
        """Return rows of a file, from the given one on, with all fields of the source."""
        seq = piece["seq"] + row - piece["rows"][0]
        schema = self.schema
        columns = {"seq": pa.array(np.arange(seq, seq + rows.num_rows, dtype=np.int64))}
        for column in wanted:
            name = self._field_name(column.name)
            dtype = schema.field(name).type
            if column.name in piece["values"]:
                columns[name] = _constant(piece["values"][column.name], dtype, rows.num_rows)
            elif column.name in rows.schema.names:
                columns[name] = rows.column(column.name).cast(dtype)
            else:
                columns[name] = pa.nulls(rows.num_rows, dtype)
        if self.change_feed:
            known = rows.column(CHANGE_TYPE).cast(pa.string()) if piece["kind"] == "cdc" else None
            columns[CHANGE_TYPE] = _constant(piece["kind"], pa.string(), rows.num_rows) if known is None else known
            columns[COMMIT_VERSION] = pa.array(np.full(rows.num_rows, piece["version"], np.int64))
            time = self._log.commit_time(piece["version"]) if COMMIT_TIME in schema.names else 0
            columns[COMMIT_TIME] = pa.array(np.full(rows.num_rows, time, np.int64)).cast(TIMESTAMP)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _kept_rows(self, piece: dict[str, Any]) -> Any:
        """Return which rows of a file are not marked as deleted; None if none is."""
        if not self._log.has_deletion_vectors(piece["version"]):
            return None
        with self.location.translating_errors("read"):
            vectors = pa.table(self._log.table(piece["version"]).deletion_vectors().read_all())
        for path, kept in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True):
            if path.endswith(piece["path"]):
                found = np.ones(piece["rows"][1], np.bool_)
                marks = np.asarray(kept.values.to_numpy(zero_copy_only=False), np.bool_)[: len(found)]
                found[: len(marks)] = marks
                return found
        return None


def _constant(text: str | None, dtype: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one value, that of a partition as the log spells it."""
    if text is None or text == "":
        return pa.nulls(rows, dtype)
    if pa.types.is_timestamp(dtype) and dtype.tz is not None and not text.endswith("Z"):
        text += "Z"
    return pa.repeat(pc.cast(pa.scalar(text), dtype), rows)
