"""Data files of an Iceberg table: written by workers, and described in messages to the process that commits."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

__all__ = ["FileLayout", "describe_file", "file_from_description"]

#: Maps by column of a data file, in the order of its description.
COLUMN_MAPS = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
)  # fmt: skip


@dataclass(frozen=True)
class FileLayout:
    """What workers know of a table.

    Attributes
    ----------
    metadata : str
        The table's metadata in JSON.
    properties : mapping of str to str
        Settings of its store, which hold credentials.
    """

    metadata: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    @cached_property
    def table_metadata(self) -> Any:
        """The table's metadata."""
        from pyiceberg.table.metadata import TableMetadataUtil

        return TableMetadataUtil.parse_raw(self.metadata)

    @cached_property
    def files(self) -> Any:
        """The files of the table."""
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.properties), self.table_metadata.location)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        found: pa.Schema = schema_to_pyarrow(self.table_metadata.schema(), include_field_ids=False)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"metadata": self.metadata, "properties": self.properties}

    def write(self, batches: Sequence[pa.RecordBatch], name: uuid.UUID, number: itertools.count[int]) -> list[Any]:
        """Write rows to data files, by partition, and return these.

        The names depend on the arguments and the rows alone: a task that Spark runs again writes the same files.
        """
        from pyiceberg.io.pyarrow import _determine_partitions, pyarrow_to_schema, write_file
        from pyiceberg.table import WriteTask

        names = batches[0].schema.names
        wanted = pa.schema([f for f in self.schema if f.name in names])
        rows = pa.Table.from_batches([b.select(wanted.names).cast(wanted) for b in batches], wanted)
        metadata = self.table_metadata
        schema = pyarrow_to_schema(wanted, name_mapping=metadata.schema().name_mapping)
        if metadata.spec().is_unpartitioned():
            parts: list[tuple[Any, pa.Table]] = [(None, rows)]
        else:
            found = _determine_partitions(metadata.spec(), metadata.schema(), rows)
            parts = sorted(
                ((one.partition_key, one.arrow_table_partition) for one in found), key=lambda part: part[0].to_path()
            )
        tasks = (
            WriteTask(
                write_uuid=name,
                task_id=next(number),
                schema=schema,
                record_batches=part.to_batches(),
                partition_key=key,
            )
            for key, part in parts
        )
        return list(write_file(self.files, metadata, tasks))


def describe_file(file: Any, metadata: Any) -> list[Any]:
    """Return a data file as plain values and bytes."""
    from pyiceberg.conversions import to_bytes

    types = [f.field_type for f in metadata.spec().partition_type(metadata.schema()).fields]
    values = [None if v is None else to_bytes(t, v) for t, v in zip(types, _values(file.partition), strict=True)]
    maps = [[[k, v] for k, v in sorted((getattr(file, name) or {}).items())] for name in COLUMN_MAPS]
    return [file.file_path, file.record_count, file.file_size_in_bytes, values, maps, list(file.split_offsets or [])]


def file_from_description(described: Sequence[Any], metadata: Any) -> Any:
    """Return the data file of :func:`describe_file`."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    path, rows, size, values, maps, offsets = described
    types = [f.field_type for f in metadata.spec().partition_type(metadata.schema()).fields]
    partition = Record(*(None if v is None else from_bytes(t, v) for t, v in zip(types, values, strict=True)))
    columns: dict[str, Any] = {name: dict(pairs) for name, pairs in zip(COLUMN_MAPS, maps, strict=True)}
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=size,
        split_offsets=offsets or None,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **columns,
    )
    found.spec_id = metadata.default_spec_id
    return found


def _values(record: Any) -> list[Any]:
    return [record[i] for i in range(len(record))]
