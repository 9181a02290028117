"""A source that reads an Iceberg table: its records, and those that later snapshots append."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from riot_ops.connectors.delta.types import fits
from riot_ops.connectors.iceberg.catalog import TableCatalog, check_catalog, table_name
from riot_ops.connectors.table_source import ChangedFile, TableSource, file_rows, numbers
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.secret import Secret

__all__ = ["IcebergSource"]

#: Snapshots whose files are remembered.
REMEMBERED = 64
#: Operations of a snapshot that add no records, and those that only add some.
REPLACE, APPEND = "replace", "append"
#: Where Parquet files have the numbers of columns.
FIELD_ID = b"PARQUET:field_id"


class IcebergSource(TableSource):
    """Reads an Iceberg table: the records of its latest snapshot, and then those that later snapshots append.

    An offset is a snapshot, a file of it and a row; a run with a checkpoint continues there, and so reads each appended
    record once. ``seq`` numbers the records in the order of the snapshots; a column ``seq`` of the table is read as
    ``table_seq``. Snapshots that only rearrange records have none. A snapshot that removes or changes records is
    refused by default, and so are tables of format 1 and files with deleted rows, which a rewrite of the data files
    applies. On Spark the workers read the files.

    Parameters
    ----------
    table : str
        The table, such as ``"bronze.readings"``.
    catalog : str, or mapping of str to str or Secret
        The catalogue, as for :class:`~riot_ops.connectors.IcebergSink`.
    snapshot_id : int, optional
        Read the table as of this snapshot, and end.
    start_snapshot_id : int, optional
        Do not read the table as it is, but what later snapshots than this one append.
    on_change : "refuse" or "ignore", default "refuse"
        What happens at a snapshot that removes or changes records: an error names it, or it is passed over as a whole.
    follow : bool, default False
        Whether to wait for more snapshots; by default the source ends with the one that is the latest when the run
        starts.
    time : str, optional
        Column with the time, which becomes ``event_time``; by default a column of that name is.

    Raises
    ------
    ConnectorError
        There is no table, the catalogue cannot be reached, a snapshot that is needed has expired, the table was
        replaced by another, or the type of a column has changed.

    Examples
    --------
    >>> import tempfile
    >>> import riot_ops as ro
    >>> folder = tempfile.mkdtemp()
    >>> catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder}
    >>> from pyiceberg.catalog import load_catalog
    >>> client = load_catalog("default", **catalog)
    >>> client.create_namespace("bronze")
    >>> rows = pa.table({"bed": ["a", "b"], "moisture": [40.5, 7.25]})
    >>> client.create_table("bronze.readings", rows.schema).append(rows)
    >>> source = IcebergSource("bronze.readings", catalog=catalog)
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", schema=source.schema)
    >>> _ = readings.apply(ro.tasks.RangeFilter(bounds={"moisture": (10, 100)}, by=None), id="wet").to("out")
    >>> flow.run(source)["wet"].to_pylist()
    [{'seq': 0, 'bed': 'a', 'moisture': 40.5}]
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, str | Secret],
        snapshot_id: int | None = None,
        start_snapshot_id: int | None = None,
        on_change: Literal["refuse", "ignore"] = "refuse",
        follow: bool = False,
        time: str | None = None,
    ) -> None:
        for name, given in (("snapshot_id", snapshot_id), ("start_snapshot_id", start_snapshot_id)):
            if given is not None and type(given) is not int:
                raise ConfigError(f"{name} must be the number of a snapshot, got {given!r}")
        if snapshot_id is not None and (start_snapshot_id is not None or follow):
            raise ConfigError("snapshot_id reads one snapshot of the table: leave out start_snapshot_id and follow")
        if on_change not in ("refuse", "ignore"):
            raise ConfigError(f"on_change must be 'refuse' or 'ignore', got {on_change!r}")
        self.catalog = TableCatalog(check_catalog(catalog))
        self.table = table_name(table, "table")
        if len(self.table) < 2:
            raise ConfigError(f"table must be a namespace and a name, such as 'bronze.readings', got {table!r}")
        super().__init__(None, None, follow, time)
        self.snapshot_id, self.start_snapshot_id = snapshot_id, start_snapshot_id
        self._ignore = on_change == "ignore"
        self._table: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None}  # connections stay in their process

    @property
    def label(self) -> str:
        return f"the table {'.'.join(self.table)}"

    def local_files(self) -> list[str]:
        return [] if self.catalog.warehouse is None else [str(self.catalog.warehouse)]

    def _loaded(self, refresh: bool = False) -> Any:
        """Return the table; its version is the sequence number of a snapshot."""
        from pyiceberg.exceptions import NoSuchTableError

        if self._table is None:
            client = self.catalog.load()
            with self.catalog.translating_errors(f"{self.label} cannot be opened"):
                try:
                    self._table = client.load_table(self.table)
                except NoSuchTableError:
                    raise ConnectorError(
                        f"there is {self.label.replace('the', 'no', 1)} in the Iceberg catalogue "
                        f"{self.catalog.address}: correct its name, or create it first"
                    ) from None
            if self._table.metadata.format_version < 2:
                raise ConnectorError(
                    f"{self.label} has format 1, whose snapshots are not numbered: upgrade it to format 2"
                )
            for name in ("snapshot_id", "start_snapshot_id"):
                if (number := getattr(self, name)) is not None:
                    version = self._version_of(name, number)
                    if name == "snapshot_id":
                        self.version = version
                    else:
                        self.start_version = version + 1
        elif refresh:
            with self.catalog.translating_errors(f"{self.label} cannot be read"):
                self._table.refresh()
        return self._table

    def _version_of(self, name: str, number: int) -> int:
        found = self._table.snapshot_by_id(number)
        if found is None:
            raise ConnectorError(
                f"{name}: {self.label} has no snapshot {number}, which may have expired (Iceberg catalogue "
                f"{self.catalog.address}); give one of those that it has"
            )
        return int(found.sequence_number)

    def table_columns(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._loaded()
        return schema_to_pyarrow(self._iceberg_schema(), include_field_ids=False)

    def _iceberg_schema(self) -> Any:
        table = self._loaded()
        snapshot = None if self.snapshot_id is None else table.snapshot_by_id(self.snapshot_id)
        known = {s.schema_id: s for s in table.metadata.schemas}
        return table.schema() if snapshot is None else known.get(snapshot.schema_id, table.schema())

    def table_id(self) -> str:
        return str(self._loaded().metadata.table_uuid)

    def initial(self) -> dict[str, Any]:
        self._loaded()  # knows the versions of the given snapshots
        return super().initial()

    def newest(self) -> int:
        snapshot = self._loaded(refresh=True).current_snapshot()
        return 0 if snapshot is None else int(snapshot.sequence_number)

    def _chain(self, since: int) -> dict[int, Any]:
        """Return the snapshots that led to the current one, by version, from a version on."""
        table = self._loaded()
        known = {s.snapshot_id: s for s in table.snapshots()}
        found, snapshot = {}, table.current_snapshot()
        while snapshot is not None and snapshot.sequence_number >= since:
            found[int(snapshot.sequence_number)] = snapshot
            parent = snapshot.parent_snapshot_id
            if parent not in known and snapshot.sequence_number > since:  # the first snapshot has number 1
                raise ConnectorError(
                    f"a snapshot of {self.label} that the run has not read has expired (before version "
                    f"{snapshot.sequence_number}): start again with a new checkpoint, from the table as it is"
                )
            snapshot = known.get(parent)
        return found

    @lru_cache(maxsize=REMEMBERED)  # noqa: B019 (the files live as long as the source)
    def snapshot(self, version: int) -> list[ChangedFile]:
        table = self._loaded()
        found = next((s for s in table.snapshots() if s.sequence_number == version), None)
        if found is None:
            if version == 0:  # a table without records
                return []
            raise ConnectorError(
                f"version {version} of {self.label} has expired: start again with a new checkpoint, from the table as "
                "it is"
            )
        with self.catalog.translating_errors(f"{self.label} cannot be read"):
            tasks = list(table.scan(snapshot_id=found.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise ConnectorError(
                f"{self.label} has files of deleted rows, which IcebergSource does not apply: rewrite its data files "
                "first (rewrite_data_files)"
            )
        return sorted(
            (ChangedFile(task.file.file_path, task.file.record_count, {}) for task in tasks), key=lambda one: one.path
        )

    def changes(self, version: int) -> list[ChangedFile]:
        snapshot = self._chain(version).get(version)
        if snapshot is None:  # numbers of snapshots on other branches, and of changes without a snapshot
            return []
        self._check_columns()
        operation = str(snapshot.summary.operation.value) if snapshot.summary is not None else APPEND
        if operation == REPLACE:
            return []
        if operation != APPEND:
            if self._ignore:
                return []
            raise ConnectorError(
                f"snapshot {snapshot.snapshot_id} of {self.label} removes or changes records ({operation}), and a "
                "stream of appended records cannot show that: pass over such snapshots with on_change='ignore'"
            )
        table = self._loaded()
        with self.catalog.translating_errors(f"{self.label} cannot be read"):
            added = [
                entry.data_file
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                if entry.snapshot_id == snapshot.snapshot_id
            ]
        return sorted((ChangedFile(one.file_path, one.record_count, {}) for one in added), key=lambda one: one.path)

    def _check_columns(self) -> None:
        """Refuse a table whose columns are not those that the run reads any more."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        now = schema_to_pyarrow(self._loaded().schema(), include_field_ids=False)
        for column in self.wanted():
            if column.name not in now.names:
                what = f"lacks the column {column.name!r} now"
            elif not fits(now.field(column.name).type, column.type):
                what = f"has the column {column.name!r} as {now.field(column.name).type} now; it was {column.type}"
            else:
                continue
            raise ConnectorError(
                f"{self.label} {what}: start again with a new checkpoint and a dataflow that declares the new columns"
            )

    def read_piece(self, piece: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        from pyarrow import parquet

        with self.catalog.translating_errors(f"the file {piece['path']} of {self.label} cannot be read"):
            file = parquet.ParquetFile(self._loaded().io.new_input(piece["path"]).open())
            places = self._places(file.schema_arrow)
            first, last = piece["rows"]
            names = sorted(set(places.values()))
            for row, batch in file_rows(file, first, last, names):
                yield self._batch(batch, piece["seq"] + row - first, places)

    def _places(self, found: pa.Schema) -> dict[str, str]:
        """Return by column of the table its name in a file, which has it by number, or else by name."""
        by_number = {f.metadata[FIELD_ID]: f.name for f in found if f.metadata and FIELD_ID in f.metadata}
        schema = self._iceberg_schema()
        places = {}
        for column in self.wanted():
            number = str(schema.find_field(column.name).field_id).encode()
            if number in by_number:
                places[column.name] = by_number[number]
            elif not by_number and column.name in found.names:
                places[column.name] = column.name
        return places

    def _batch(self, rows: pa.RecordBatch, seq: int, places: Mapping[str, str]) -> pa.RecordBatch:
        schema = self.schema
        columns = {"seq": numbers(seq, rows.num_rows)}
        for column in self.wanted():
            name = self.field_name(column.name)
            dtype = schema.field(name).type
            known = column.name in places
            columns[name] = rows.column(places[column.name]).cast(dtype) if known else pa.nulls(rows.num_rows, dtype)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
