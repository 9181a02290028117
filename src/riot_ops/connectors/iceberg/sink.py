"""A sink that appends streams to Iceberg tables, each batch in one snapshot."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from riot_ops.connectors.delta.types import delta_schema
from riot_ops.connectors.iceberg.catalog import TableCatalog, check_catalog, table_name
from riot_ops.connectors.iceberg.data_files import FileLayout, describe_file, file_from_description
from riot_ops.connectors.table_sink import MAX_COMMITS, TableSink
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Message, Writer

__all__ = ["IcebergSink"]

#: How much a writer collects for a data file, in memory; the file is a few times smaller.
FILE_BYTES = 128 << 20
#: What the summary of a snapshot says of the batch that made it.
RUN, BATCH = "riot-ops.run", "riot-ops.batch"
#: Fields by which a table is divided: a name, or a transform of one.
TRANSFORM = re.compile(r"(?:(identity|year|month|day|hour|bucket|truncate)\((?:(\d+),\s*)?([^(),]+)\)|([^(),]+))")


class IcebergSink(TableSink):
    """Appends each stream to a table of an Iceberg catalogue, in the namespace ``namespace``.

    The workers write Parquet files, on Spark in parallel; the commit of a batch (an epoch in process, a micro-batch on
    Spark) adds them in one snapshot, whose summary names the run and the batch. Exactly once: a restart looks for the
    batch in the snapshots of the table. On Spark it passes over a batch that was committed before the checkpoint; in
    process, where epochs are cut again, it removes that batch in a snapshot and writes the records again. Snapshots of
    the last batch must therefore not expire while a run stands still. A new run appends to what the tables hold, or
    replaces it with ``overwrite=True``. Several runs may write to one table at a time.

    Missing namespaces and tables are created at the start; all fields may be null. Files of batches that failed are in
    no snapshot; the catalogue's own maintenance (remove orphan files) removes them.

    Parameters
    ----------
    namespace : str
        The namespace of the tables, such as ``"bronze"``.
    catalog : str, or mapping of str to str or Secret
        The catalogue: a name in the configuration of pyiceberg, or settings with its ``name`` (``default``), and those
        of the store: ``{"type": "sql", "uri": "sqlite:////lake/catalog.db", "warehouse": "/lake"}``, ``{"type":
        "rest", "uri": "https://…", "token": Secret.env("TOKEN")}``.
    tables : mapping of str to str, optional
        By stream, its table: a name in the namespace, or ``namespace.table``. By default the name of the stream.
    partition_by : tuple of str, default ()
        How a new table is divided: fields, or transforms of these such as ``"day(event_time)"``, ``"bucket(16, bed)"``
        or ``"truncate(4, bed)"``. The table of errors is not divided. An existing table keeps its own.
    on_new_field : "refuse" or "add", default "refuse"
        What happens at the start if a stream has fields that its table lacks.
    properties : mapping of str to str, optional
        Properties of new tables, such as ``{"write.parquet.compression-codec": "zstd"}``.

    Raises
    ------
    ConfigError
        At the start: a field has a type that Iceberg lacks, or does not fit the table.
    ConnectorError
        The catalogue or the store cannot be reached, or refuses.

    Examples
    --------
    >>> import tempfile
    >>> import riot_ops as ro
    >>> folder = tempfile.mkdtemp()
    >>> catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder}
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", schema={"bed": "string", "moisture": "double"})
    >>> plausible = ro.tasks.RangeFilter(bounds={"moisture": (0, 100)}, by=None)
    >>> _ = readings.apply(plausible, id="kept").to(IcebergSink("bronze", catalog=catalog, partition_by="bed"))
    >>> _ = flow.run([{"bed": "a", "moisture": 40.5}, {"bed": "b", "moisture": 7.25}])
    >>> from pyiceberg.catalog import load_catalog
    >>> table = load_catalog("default", **catalog).load_table("bronze.kept")
    >>> len(table.snapshots()), table.scan().count()
    (1, 2)
    """

    def __init__(
        self,
        namespace: str,
        *,
        catalog: str | Mapping[str, str | Secret],
        tables: Mapping[str, str] | None = None,
        partition_by: str | Sequence[str] = (),
        on_new_field: Literal["refuse", "add"] = "refuse",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(tables, partition_by, on_new_field, properties)
        self.catalog = TableCatalog(check_catalog(catalog))
        self.namespace = table_name(namespace, "namespace")
        for text in self.partition_by:
            if _transform(text)[0] != "identity":
                _check_transforms(text)
        for stream in self.tables:
            self.identifier(stream)
        self.layouts: dict[str, FileLayout] = {}
        self.client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"client": None}  # connections stay in their process

    def _shown(self) -> dict[str, Any]:
        return {"": ".".join(self.namespace), "catalog": self.catalog.settings}

    def label(self, stream: str) -> str:
        return f"the table {'.'.join(self.identifier(stream))}"

    def divided_by(self, text: str) -> str:
        return _transform(text)[2]

    def table_schema(self, stream: str, schema: pa.Schema) -> pa.Schema:
        # both formats have the same types, but for integers of less than 32 bits
        return delta_schema(stream, schema, ())

    def identifier(self, stream: str) -> tuple[str, ...]:
        """Return the name of the table of a stream."""
        parts = table_name(self.tables.get(stream, stream), f"tables: the table of stream {stream!r}")
        return parts if len(parts) > 1 else (*self.namespace, *parts)

    def worker_folders(self) -> list[Path]:
        return [] if self.catalog.warehouse is None else [self.catalog.warehouse]

    # -- before a run --------------------------------------------------------------------------------

    def bind(self, schemas: Mapping[str, pa.Schema]) -> IcebergSink:
        sink = super().bind(schemas)
        sink.layouts, sink.client = {}, None
        return sink

    def begin(self, overwrite: bool) -> None:
        for stream in self.schemas:
            table = self.prepare(stream)
            if overwrite and table.current_snapshot() is not None:
                with self._translating(stream, "overwritten"):
                    table.delete()

    def _translating(self, stream: str, what: str) -> Any:
        return self.catalog.translating_errors(f"{self.label(stream)} cannot be {what}")

    def _load(self, stream: str) -> Any:
        """Return the table of a stream, None if there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        if self.client is None:
            self.client = self.catalog.load()
        with self._translating(stream, "opened"):
            try:
                return self.client.load_table(self.identifier(stream))
            except NoSuchTableError:
                return None

    def prepare(self, stream: str) -> Any:
        table = self._load(stream) or self._create(stream)
        table = self._check_fields(stream, table)
        self.layouts[stream] = FileLayout(table.metadata.model_dump_json(), dict(table.io.properties))
        return table

    def _create(self, stream: str) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.transforms import parse_transform

        identifier = self.identifier(stream)
        with self._translating(stream, "created"):
            self.client.create_namespace_if_not_exists(identifier[:-1])
            with suppress(TableAlreadyExistsError):  # another run creates it at the same time
                made = self.client.create_table_transaction(
                    identifier, self.schemas[stream], properties=self.properties
                )
                with made as transaction, transaction.update_spec() as spec:
                    for text in self.partition_by if stream != ERRORS_STREAM else ():
                        transform, width, name = _transform(text)
                        label = name if transform == "identity" else f"{name}_{transform}"
                        spec.add_field(name, parse_transform(transform + (f"[{width}]" if width else "")), label)
            return self.client.load_table(identifier)

    def _check_fields(self, stream: str, table: Any) -> Any:
        """Compare the fields of a stream with the columns of its table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema = self.schemas[stream]
        new = self.new_fields(stream, schema, table.schema().column_names)
        if new:
            with self._translating(stream, "altered"), table.update_schema() as update:
                update.union_by_name(pa.schema(new))
            table = self._load(stream)
        columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
        plain = pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in columns])
        divided = [table.schema().find_column_name(f.source_id) for f in table.spec().fields]
        self.check_columns(stream, schema, plain, divided)
        return table

    # -- a batch -------------------------------------------------------------------------------------

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _IcebergWriter(self, batch_id, partition)

    def write_files(
        self,
        stream: str,
        batches: Sequence[pa.RecordBatch],
        batch_id: int,
        partition: int,
        number: itertools.count[int],
    ) -> list[list[Any]]:
        """Write rows of a stream to data files, and describe these."""
        layout = self.layouts[stream]
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._run}/{self._attempt}/{stream}/{batch_id}/{partition}")
        with self._translating(stream, "written"):
            return [describe_file(file, layout.table_metadata) for file in layout.write(batches, name, number)]

    def remove_files(self, stream: str, described: Sequence[Sequence[Any]]) -> None:
        """Remove data files that are in no snapshot."""
        for file in described:
            with suppress(OSError):  # maintenance removes it
                self.layouts[stream].files.delete(file[0])

    def _application(self, stream: str) -> str:
        return f"{self._run}/{stream}"

    def _done(self, table: Any, stream: str) -> int | None:
        """Return the last batch of this run that the table has."""
        snapshot, known = table.current_snapshot(), {s.snapshot_id: s for s in table.snapshots()}
        while snapshot is not None:
            summary = snapshot.summary
            if summary is not None and summary.get(RUN) == self._application(stream):
                return int(summary[BATCH])
            snapshot = known.get(snapshot.parent_snapshot_id)
        return None

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        found: dict[str, list[Any]] = {}
        for message in messages:
            for stream, described in message["files"]:
                found.setdefault(stream, []).append(described)
        for stream, files in found.items():
            self._commit(stream, batch_id, sorted(files, key=lambda file: str(file[0])))

    def _commit(self, stream: str, batch_id: int, files: list[Any]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(MAX_COMMITS):
            table = self._load(stream)
            if table is None:
                raise self.removed(stream)
            done = self._done(table, stream)
            if done is not None and done >= batch_id:
                used = set(table.inspect.files()["file_path"].to_pylist())
                self.remove_files(stream, [file for file in files if file[0] not in used])
                return
            with self._translating(stream, "committed to"):
                try:
                    self._add(table, stream, batch_id, files)
                except CommitFailedException:
                    if attempt == MAX_COMMITS - 1:
                        raise
                    continue
            return

    def _add(self, table: Any, stream: str, batch_id: int, files: Sequence[Any]) -> None:
        metadata = self.layouts[stream].table_metadata
        if table.metadata.default_spec_id != metadata.default_spec_id:
            raise ConnectorError(
                f"{self.label(stream)} is divided in another way since the run began: start "
                "the run again from its checkpoint"
            )
        summary = {RUN: self._application(stream), BATCH: str(batch_id)}
        with table.transaction() as transaction:
            append = transaction.update_snapshot(snapshot_properties=summary).fast_append()
            with append as update:
                for file in files:
                    update.append_data_file(file_from_description(file, metadata))

    def take_back(self, stream: str, table: Any, batch_id: int) -> None:
        from pyiceberg.expressions import AlwaysTrue

        done = self._done(table, stream)
        if done is None or done < batch_id:
            return
        application = self._application(stream)
        ours = {
            s.snapshot_id
            for s in table.snapshots()
            if s.summary is not None and s.summary.get(RUN) == application and int(s.summary[BATCH]) >= batch_id
        }
        with self._translating(stream, "written"):
            added = [
                entry.data_file
                for manifest in table.current_snapshot().manifests(table.io)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                if entry.snapshot_id in ours
            ]
            if not added:
                raise ConnectorError(
                    f"the run continues with batch {batch_id}, whose records the table "
                    f"{'.'.join(self.identifier(stream))} has already, in files that another program has rewritten "
                    "since: roll the table back to a snapshot before that, and start again with a new checkpoint"
                )
            summary = {RUN: application, BATCH: str(batch_id - 1)}
            with table.transaction() as transaction:
                overwrite = transaction.update_snapshot(snapshot_properties=summary).overwrite()
                with overwrite as update:
                    update.delete_by_predicate(AlwaysTrue())  # all manifests may hold one of the files
                    for file in added:
                        update.delete_data_file(file)

    def table(self, stream: str) -> pa.Table:
        """Return all records of a table, in the order of ``seq``."""
        table = self._load(stream)
        if table is None:
            return pa.table({})
        with self._translating(stream, "read"):
            found = table.scan().to_arrow()
        return found.sort_by("seq") if "seq" in found.column_names else found


class _IcebergWriter(Writer):
    """Collects the batches of each stream into data files."""

    def __init__(self, sink: IcebergSink, batch_id: int, partition: int) -> None:
        self._sink, self._batch_id, self._partition = sink, batch_id, partition
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._numbers: dict[str, itertools.count[int]] = {}
        self._files: list[list[Any]] = []

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._held.setdefault(stream, []).append(batch)
            self._bytes[stream] = self._bytes.get(stream, 0) + batch.nbytes
            if self._bytes[stream] >= FILE_BYTES:
                self._flush(stream)

    def _flush(self, stream: str) -> None:
        batches, self._bytes[stream] = self._held.pop(stream), 0
        number = self._numbers.setdefault(stream, itertools.count())
        written = self._sink.write_files(stream, batches, self._batch_id, self._partition, number)
        self._files += [[stream, described] for described in written]

    def finish(self) -> Message:
        for stream in list(self._held):
            self._flush(stream)
        return {"files": self._files}

    def abort(self) -> None:
        for stream, described in self._files:
            self._sink.remove_files(stream, [described])


def _transform(text: Any) -> tuple[str, str, str]:
    """Return the transform, its width and the field of a text such as ``bucket(16, bed)``."""
    found = TRANSFORM.fullmatch(text) if isinstance(text, str) else None
    name = found[1] or "identity" if found is not None else ""
    width = found[2] or "" if found is not None else ""
    if found is None or (name in ("bucket", "truncate")) != bool(width):
        raise ConfigError(
            "partition_by must be fields, or transforms of them: year(at), month(at), day(at), hour(at), "
            f"bucket(16, bed) or truncate(4, bed), got {text!r}"
        )
    return name, width, found[3] or found[4]


def _check_transforms(text: str) -> None:
    """Check that the library with the transforms is installed."""
    if find_spec("pyiceberg_core") is None:
        raise MissingExtraError(f"partition_by {text}, a transform of a field,", "iceberg")


def _plain(dtype: pa.DataType) -> pa.DataType:
    """Return a type with the texts and lists that small columns have."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype):
        return pa.binary()
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return pa.list_(_plain(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in dtype.fields])
    if pa.types.is_map(dtype):
        return pa.map_(_plain(dtype.key_type), _plain(dtype.item_type))
    return dtype
