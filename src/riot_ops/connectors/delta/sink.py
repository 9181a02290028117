"""A sink that appends streams to Delta tables, each batch in one transaction."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from riot_ops.connectors.delta.data_files import DataFiles, FileLayout, WrittenFile
from riot_ops.connectors.delta.location import TableLocation, deltalake
from riot_ops.connectors.delta.types import delta_schema
from riot_ops.connectors.table_sink import MAX_COMMITS, TableSink
from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.file_sink import CODECS
from riot_ops.core.file_writer import MAX_HELD_BATCHES, ROW_GROUP_ROWS
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import sync
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Message, Writer
from riot_ops.core.storage import check_storage_options

__all__ = ["DeltaSink"]

#: What this writer cannot maintain: by a part of the name of a table's property, or of a column's metadata.
UNSUPPORTED = {
    "delta.constraints.": "a constraint",
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.": "an identity column",
    "delta.columnMapping.mode": "column mapping",
    "delta.enableRowTracking": "row tracking",
    "delta.enableIcebergCompat": "compatibility with Iceberg",
}


class DeltaSink(TableSink):
    """Appends each stream to a Delta table, a folder below ``folder``, which other programs read as a whole.

    The workers write Parquet files, on Spark in parallel; the commit of a batch (an epoch in process, a micro-batch on
    Spark) adds them to the table in one transaction, with statistics. Exactly once: the transaction carries the run and
    the number of the batch, so that a restart recognises a batch that was committed before its checkpoint. On Spark it
    passes over that batch, which comes again as it was; in process, where epochs are cut again, it removes the batch in
    a transaction and writes the records again. A new run appends to what the tables hold, or replaces it with
    ``overwrite=True``. Several runs may write to one table at a time.

    Missing tables are created at the start. The table of a stream has its fields, all nullable; a table that is there
    may have more. Integers without a sign become wider ones; times have microseconds, in UTC. An empty text in a
    partition column becomes null. Files of batches that failed are not in the table; :meth:`vacuum` removes them.

    Parameters
    ----------
    folder : str or Path
        A path or the address of a folder in an object store (``s3://``, ``gs://``, ``abfss://``).
    tables : mapping of str to str, optional
        By stream, its table: a name below ``folder``, or an address of its own. By default the name of the stream.
    partition_by : tuple of str, default ()
        Fields whose values divide a new table into folders; the stream of errors is not divided. An existing table
        keeps its own, which must be the same if they are given.
    on_new_field : "refuse" or "add", default "refuse"
        What happens at the start if a stream has fields that its table lacks: an error names them, or they are added
        to the table.
    compression : str, default "snappy"
        Parquet codec, such as ``snappy``, ``zstd`` or ``none``.
    properties : mapping of str to str, optional
        Properties of new tables, such as ``{"delta.logRetentionDuration": "interval 7 days"}``.
    storage_options : mapping of str to str or Secret, optional
        Settings of the object store, with the names that delta-rs and Polars take, such as ``aws_access_key_id``.

    Raises
    ------
    ConfigError
        At the start: a field has a type or name that Delta lacks, or does not fit the table.
    ConnectorError
        The folder cannot be reached or written, or holds a table that needs more than appending.

    Examples
    --------
    >>> import tempfile
    >>> import riot_ops as ro
    >>> from deltalake import DeltaTable
    >>> folder = tempfile.mkdtemp()
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", schema={"bed": "string", "moisture": "double"})
    >>> plausible = ro.tasks.RangeFilter(bounds={"moisture": (0, 100)}, by=None)
    >>> _ = readings.apply(plausible, id="kept").to(DeltaSink(folder, partition_by="bed"))
    >>> _ = flow.run([{"bed": "a", "moisture": 40.5}, {"bed": "b", "moisture": 7.25}])
    >>> table = DeltaTable(f"{folder}/kept")
    >>> table.version(), table.metadata().partition_columns, table.count()
    (1, ['bed'], 2)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tables: Mapping[str, str] | None = None,
        partition_by: str | Sequence[str] = (),
        on_new_field: Literal["refuse", "add"] = "refuse",
        compression: str = "snappy",
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        super().__init__(tables, partition_by, on_new_field, properties)
        if not isinstance(compression, str) or compression.lower() not in CODECS:
            raise ConfigError(f"compression must be one of {', '.join(CODECS)}, got {compression!r}")
        self.location = TableLocation.of(folder, check_storage_options(storage_options or {}))
        self.compression = compression
        for stream in self.tables:
            self.table_location(stream)
        deltalake()
        self.layouts: dict[str, FileLayout] = {}
        self.opened: dict[str, Any] = {}
        self.unsynced: list[tuple[str, str]] = []

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"opened": {}}  # open tables stay in their process

    def _shown(self) -> dict[str, Any]:
        codec = "" if self.compression == "snappy" else self.compression
        return {"": self.location.address, "compression": codec, "storage_options": self.location.options}

    def label(self, stream: str) -> str:
        return f"the Delta table {self.table_location(stream).address}"

    def divided_by(self, text: str) -> str:
        return text

    def table_schema(self, stream: str, schema: pa.Schema) -> pa.Schema:
        return delta_schema(stream, schema, self._partition_by(stream))

    def table_location(self, stream: str) -> TableLocation:
        """Return where the table of a stream is."""
        name = self.tables.get(stream, stream)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/|/", name):
            return TableLocation.of(name, self.location.options, "tables")
        if not name or ".." in name.split("/"):
            raise ConfigError(f"tables: the table of stream {stream!r} must be a name or an address, got {name!r}")
        return self.location.child(name)

    def worker_folders(self) -> list[Path]:
        named = [self.table_location(stream).local for stream in self.tables]
        return sorted({place for place in (self.location.local, *named) if place is not None})

    # -- before a run --------------------------------------------------------------------------------

    def bind(self, schemas: Mapping[str, pa.Schema]) -> DeltaSink:
        sink = super().bind(schemas)
        sink.opened, sink.layouts, sink.unsynced = {}, {}, []
        return sink

    def _partition_by(self, stream: str) -> tuple[str, ...]:
        return () if stream == ERRORS_STREAM else self.partition_by

    def begin(self, overwrite: bool) -> None:
        for stream in self.schemas:
            table = self.prepare(stream)
            if overwrite and table.get_add_actions().num_rows:
                with self.table_location(stream).translating_errors("overwritten"):
                    table.delete()

    def prepare(self, stream: str) -> Any:
        location, schema = self.table_location(stream), self.schemas[stream]
        table = location.open()
        if table is None:
            table = self._create(stream, location, schema)
        self._check_table(stream, location, table)
        table = self._check_fields(stream, location, table, schema)
        self.opened[stream] = table
        return table

    def _create(self, stream: str, location: TableLocation, schema: pa.Schema) -> Any:
        library = deltalake()
        if location.local is not None:
            with location.translating_errors("created"):
                location.local.mkdir(parents=True, exist_ok=True)
        with location.translating_errors("created"):
            return library.DeltaTable.create(
                location.address,
                schema,
                mode="ignore",
                partition_by=list(self._partition_by(stream)),
                configuration=self.properties or None,
                storage_options=location.storage_options,
            )

    def _check_table(self, stream: str, location: TableLocation, table: Any) -> None:
        found = list(table.metadata().configuration.items())
        found += [(name, value) for f in table.schema().fields for name, value in (f.metadata or {}).items()]
        for name, value in found:
            what = next((what for start, what in UNSUPPORTED.items() if name.startswith(start)), None)
            if what and str(value).lower() not in ("none", "false"):
                raise ConnectorError(
                    f"the Delta table {location.address} has {what} ({name}), which DeltaSink cannot maintain: write "
                    "to a table without it, or merge the results there by the engine that made it"
                )
        given, actual = list(self._partition_by(stream)), table.metadata().partition_columns
        if self.partition_by and stream != ERRORS_STREAM and given != actual:
            raise ConfigError(
                f"partition_by is {', '.join(given)}, but the Delta table {location.address} is divided by "
                f"{', '.join(actual) or 'nothing'}: leave it out, or use another table"
            )

    def _check_fields(self, stream: str, location: TableLocation, table: Any, schema: pa.Schema) -> Any:
        """Compare the fields of a stream with the columns of its table, and note what the data files hold."""
        columns = pa.schema(table.schema().to_arrow())
        new = self.new_fields(stream, schema, columns.names)
        if new:
            with location.translating_errors("altered"):
                table.alter.add_columns(list(deltalake().Schema.from_arrow(pa.schema(new)).fields))
            table = location.open()
            columns = pa.schema(table.schema().to_arrow())
        self.check_columns(stream, schema, columns, table.metadata().partition_columns)
        order = pa.schema([f for f in columns if f.name in schema.names])
        self.layouts[stream] = FileLayout(order, tuple(table.metadata().partition_columns))
        return table

    # -- a batch -------------------------------------------------------------------------------------

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _DeltaWriter(self, batch_id, partition)

    def data_files(self, stream: str, batch_id: int, partition: int) -> DataFiles:
        """Return a writer of the data files of a stream in a batch."""
        name = f"part-{batch_id:06d}-{partition:05d}-{self._mark(stream)}-{self._attempt}"
        return DataFiles(self.table_location(stream), self.layouts[stream], name, self.compression)

    def _application(self, stream: str) -> str:
        """Return the id of the application in the transactions of a stream."""
        return f"riot_ops/{self._run}/{stream}"

    def _mark(self, stream: str) -> str:
        """Return the part of the names of files that tells the files of this run and stream from all others."""
        return hashlib.sha256(self._application(stream).encode()).hexdigest()[:12]

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        found: dict[str, list[WrittenFile]] = {}
        for message in messages:
            for stream, path, size, values, statistics in message["files"]:
                found.setdefault(stream, []).append((path, size, values, statistics))
        for stream, files in found.items():
            self._commit(stream, batch_id, sorted(files, key=lambda file: file[0]))

    def _commit(self, stream: str, batch_id: int, files: list[WrittenFile]) -> None:
        library, location = deltalake(), self.table_location(stream)
        self._check_files(location, batch_id, files)
        for attempt in range(MAX_COMMITS):
            table = self._current(stream)
            done = table.transaction_version(self._application(stream))
            if done is not None and done >= batch_id:
                _remove_unused(location, table, [file[0] for file in files])
                return
            with location.translating_errors("committed to"):
                try:
                    self._add(table, stream, batch_id, files)
                except library.exceptions.CommitFailedError:
                    if attempt == MAX_COMMITS - 1:
                        raise
                    table = self.opened[stream] = location.open()
                    self._check_fields(stream, location, table, self.layouts[stream].schema)
                    continue
            break
        self.unsynced += [(location.address, file[0]) for file in files] if location.local else []

    def _current(self, stream: str) -> Any:
        """Return the table of a stream in its latest version."""
        location = self.table_location(stream)
        with location.translating_errors("read"):
            if stream in self.opened:
                self.opened[stream].update_incremental()
            elif (table := location.open()) is not None:
                self.opened[stream] = table
            else:
                raise self.removed(stream)
        return self.opened[stream]

    def _add(self, table: Any, stream: str, batch_id: int, files: Iterable[WrittenFile]) -> None:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        table.create_write_transaction(
            [AddAction(path, size, values, now, True, statistics) for path, size, values, statistics in files],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=self._properties(stream, batch_id),
        )

    def _properties(self, stream: str, batch_id: int) -> Any:
        library = deltalake()
        return library.CommitProperties(
            custom_metadata={"riotOpsRun": self._run, "riotOpsBatch": str(batch_id)},
            app_transactions=[library.Transaction(self._application(stream), batch_id)],
        )

    def _check_files(self, location: TableLocation, batch_id: int, files: Iterable[WrittenFile]) -> None:
        if location.local is None:
            return
        for path, size, _, _ in files:
            try:
                found = (location.local / path).stat().st_size
            except FileNotFoundError:
                found = None
            if found != size:
                what = "is missing" if found is None else f"has {found:,} bytes instead of {size:,}"
                raise ConnectorError(
                    f"batch {batch_id} is incomplete: the file {location.address}/{path}, which a writer has finished, "
                    f"{what}. On a cluster it must be a folder that the driver and all workers share under this path, "
                    "or an address of an object store, and no other program may remove files in it"
                )

    def take_back(self, stream: str, table: Any, batch_id: int) -> None:
        from deltalake.transaction import RemoveAction

        location = self.table_location(stream)
        done = table.transaction_version(self._application(stream))
        if done is None or done < batch_id:
            return
        now = int(time.time() * 1000)
        known = pa.table(table.get_add_actions().select(["path", "size_bytes"])).to_pylist()
        ours = re.compile(rf"(?:.*/)?part-(\d+)-\d+-{self._mark(stream)}-")
        removed = [
            RemoveAction(path, True, now, size=file["size_bytes"])
            for file in known
            for path in [unquote(file["path"])]
            if (found := ours.match(path)) and int(found[1]) >= batch_id
        ]
        if not removed:
            raise ConnectorError(
                f"the run continues with batch {batch_id}, whose records the Delta table {location.address} has "
                "already, in files that another program has rewritten since: restore the table to a version before "
                "that, or delete the records, and start again with a new checkpoint"
            )
        with location.translating_errors("written"):
            table.create_write_transaction(
                removed,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=self._properties(stream, batch_id - 1),
            )

    def sync(self, batch_id: int) -> None:
        try:
            for address, path in self.unsynced:
                sync(Path(address, path))
            for address in sorted({address for address, _ in self.unsynced}):
                log = Path(address, "_delta_log")
                sync(max(log.glob("*.json")))
                sync(log)
                sync(Path(address))
        except (OSError, ValueError) as error:
            raise ConnectorError(
                f"batch {batch_id} cannot be flushed to disk below {self.location.address}: {error}"
            ) from error
        self.unsynced = []

    # -- reading and care ----------------------------------------------------------------------------

    def table(self, stream: str) -> pa.Table:
        """Return all records of a table, in the order of ``seq``."""
        location = self.table_location(stream)
        table = location.open()
        if table is None:
            return pa.table({})
        with location.translating_errors("read"):
            schema = pa.schema(table.schema().to_arrow())
            found = pa.table(table.scan().read_all()).select(schema.names).cast(schema)
        return found.sort_by("seq") if "seq" in found.column_names else found

    def optimize(self, *, z_order: str | Sequence[str] = (), target_bytes: int | None = None) -> dict[str, Any]:
        """Join small files of each table, each in a transaction of its own; readers see the same records.

        Call it on the sink of a run that has ended, or in another process on a sink with the same arguments. It takes
        the tables in ``tables``, and those below ``folder``.

        Parameters
        ----------
        z_order : tuple of str, default ()
            Fields by which the records are arranged, so that a search by any of them reads few files.
        target_bytes : int, optional
            Size of the files to make; by default that of the table's property, or 100 MB.

        Returns
        -------
        dict of str to dict
            By table, the metrics of delta-rs.
        """
        names = [z_order] if isinstance(z_order, str) else list(z_order)
        if target_bytes is not None:
            check_count(target_bytes=target_bytes)
        found = {}
        for location in self._existing():
            table = location.open()
            columns = [f.name for f in table.schema().fields]
            with location.translating_errors("optimised"):
                if names and set(names) <= set(columns):
                    found[location.address] = table.optimize.z_order(names, target_size=target_bytes)
                else:
                    found[location.address] = table.optimize.compact(target_size=target_bytes)
        return found

    def vacuum(self, *, older_than: Duration = timedelta(days=7), dry_run: bool = False) -> dict[str, list[str]]:
        """Remove files that no version of this time needs, and those of batches that failed.

        Parameters
        ----------
        older_than : timedelta or text such as "7d", default 7 days
            How long removed files stay, for readers of earlier versions. Below the time that a batch takes, a
            vacuum would remove the files of a batch in progress.
        dry_run : bool, default False
            Whether to return the files without removing them.

        Returns
        -------
        dict of str to list of str
            By table, the removed files.
        """
        hours = int(duration_seconds("older_than", older_than, zero=True) // 3600)
        found = {}
        for location in self._existing():
            with location.translating_errors("vacuumed"):
                found[location.address] = location.open().vacuum(
                    hours, dry_run=dry_run, enforce_retention_duration=False, full=True
                )
        return found

    def _existing(self) -> list[TableLocation]:
        """Return the tables that exist, of those in ``tables``, of the bound streams and below the folder."""
        import pyarrow.fs as arrow_files

        names = {*self.tables, *self.schemas}
        locations = {(at := self.table_location(name)).address: at for name in names}
        with self.location.translating_errors("listed"):
            for entry in self.location.files.get_file_info(arrow_files.FileSelector("", allow_not_found=True)):
                if entry.type == arrow_files.FileType.Directory and not entry.base_name.startswith("_"):
                    at = self.location.child(entry.base_name)
                    locations.setdefault(at.address, at)
        return [at for _, at in sorted(locations.items()) if at.open() is not None]


class _DeltaWriter(Writer):
    """Collects the batches of each stream into row groups of its data files."""

    def __init__(self, sink: DeltaSink, batch_id: int, partition: int) -> None:
        self._sink, self._batch_id, self._partition = sink, batch_id, partition
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._files: dict[str, DataFiles] = {}

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        held = self._held.setdefault(stream, [])
        held.append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= ROW_GROUP_ROWS or len(held) >= MAX_HELD_BATCHES:
            self._flush(stream)

    def _flush(self, stream: str) -> None:
        batches, self._rows[stream] = self._held.pop(stream), 0
        if stream not in self._files:
            self._files[stream] = self._sink.data_files(stream, self._batch_id, self._partition)
        with self._sink.table_location(stream).translating_errors("written"):
            self._files[stream].write([batch for batch in batches if batch.num_rows])

    def finish(self) -> Message:
        for stream in list(self._held):
            self._flush(stream)
        files = []
        for stream, writer in self._files.items():
            with self._sink.table_location(stream).translating_errors("written"):
                files += [[stream, *file] for file in writer.finish()]
        return {"files": files}

    def abort(self) -> None:
        for files in self._files.values():
            files.abort()


def _remove_unused(location: TableLocation, table: Any, paths: Iterable[str]) -> None:
    """Remove the files of a batch that was committed before from files of its own; a second commit keeps its files."""
    used = {unquote(path) for path in pa.table(table.get_add_actions().select(["path"]))["path"].to_pylist()}
    for path in paths:
        if path not in used:
            with suppress(OSError):  # vacuum removes it
                location.files.delete_file(path)
