"""A source that reads a Delta table: its records, those that later versions append, or its change feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.connectors.delta.location import TableLocation, deltalake
from riot_ops.connectors.delta.log import DeltaLog
from riot_ops.connectors.delta.types import fits
from riot_ops.connectors.table_source import ChangedFile, TableSource, file_rows, numbers
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.secret import Secret
from riot_ops.core.storage import check_storage_options

__all__ = ["DeltaSource"]

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME = "_change_type", "_commit_version", "_commit_timestamp"
CHANGES = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIME, TIMESTAMP),
)


class DeltaSource(TableSource):
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
        super().__init__(version, start_version, follow, time)
        if on_change not in ("refuse", "ignore"):
            raise ConfigError(f"on_change must be 'refuse' or 'ignore', got {on_change!r}")
        if change_feed and on_change == "ignore":
            raise ConfigError("on_change='ignore' passes over the changes that change_feed=True reads: leave out one")
        deltalake()
        self.location = TableLocation.of(folder, check_storage_options(storage_options or {}))
        self.change_feed = change_feed
        self.added = CHANGES if change_feed else ()
        self._log = DeltaLog(self.location, change_feed, on_change == "ignore")

    @property
    def label(self) -> str:
        return f"the Delta table {self.location.address}"

    def local_files(self) -> list[str]:
        return [] if self.location.local is None else [self.location.address]

    def table_columns(self) -> pa.Schema:
        return pa.schema(self._log.table(self.version).schema().to_arrow())

    def table_id(self) -> str:
        return str(self._log.table(self.version).metadata().id)

    def newest(self) -> int:
        return int(self._log.table().version())

    def snapshot(self, version: int) -> list[ChangedFile]:
        return self._log.snapshot(version)

    def changes(self, version: int) -> list[ChangedFile]:
        self._check_columns(version)
        return self._log.changes(version)

    def _check_columns(self, version: int) -> None:
        """Refuse a version that gives the table columns whose values are others than those that the run reads."""
        found = self._log.schema_of(version)
        if found is None:
            return
        for column in self.wanted():
            if column.name not in found.names:
                what = f"drops the column {column.name!r}"
            elif not fits(found.field(column.name).type, column.type):
                what = f"makes the column {column.name!r} {found.field(column.name).type}; it was {column.type}"
            else:
                continue
            raise ConnectorError(
                f"version {version} of {self.label} {what}: start again with a new "
                "checkpoint and a dataflow that declares the new columns"
            )

    def read_piece(self, piece: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        file = self._log.open(piece["path"], piece["version"])
        first, last = piece["rows"]
        kept = self._kept_rows(piece) if piece["marks"] else None
        present = set(file.schema_arrow.names)
        names = [c.name for c in self.wanted() if c.name in present]
        names += [CHANGE_TYPE] if piece["kind"] == "cdc" else []
        with self.location.translating_errors("read"):
            for row, batch in file_rows(file, first, last, names):
                found = self._batch(batch, row, piece)
                if kept is not None:
                    found = found.filter(pa.array(kept[row : row + batch.num_rows]))
                if found.num_rows:
                    yield found

    def _batch(self, rows: pa.RecordBatch, row: int, piece: dict[str, Any]) -> pa.RecordBatch:
        """Return rows of a file, from the given one on, with all fields of the source."""
        seq = piece["seq"] + row - piece["rows"][0]
        schema = self.schema
        columns = {"seq": numbers(seq, rows.num_rows)}
        for column in self.wanted():
            name = self.field_name(column.name)
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
