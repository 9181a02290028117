"""The log of a Delta table as a source reads it: the data files of a version, and what later versions add."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from riot_ops.connectors.delta.data_files import partition_text
from riot_ops.connectors.delta.location import TableLocation
from riot_ops.connectors.table_source import ChangedFile, ChangeKind
from riot_ops.core.errors import ConfigError, ConnectorError

__all__ = ["DeltaLog"]

#: Versions whose files are remembered.
REMEMBERED = 64
MAPPING = "delta.columnMapping.mode"


@dataclass(eq=False)
class DeltaLog:
    """Reads the log of a table.

    Attributes
    ----------
    change_feed : bool
        Whether removed records and the files of the change feed are read as well.
    ignore_changes : bool
        Whether versions that remove or change records are passed over instead of refused.
    """

    location: TableLocation
    change_feed: bool
    ignore_changes: bool
    _table: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None}  # open tables stay in their process

    def table(self, version: int | None = None) -> Any:
        """Return the table in a version, or in the latest."""
        if version is None and self._table is not None:
            with self.location.translating_errors("read"):
                self._table.update_incremental()
            return self._table
        try:
            found = self.location.open(version)
        except ConnectorError:
            newest = None if version is None else self.table().version()
            if newest is not None and version is not None:
                what = "expired" if version <= newest else f"does not exist yet: the latest is {newest}"
                raise ConnectorError(
                    f"version {version} of the Delta table {self.location.address} {what}; read another version, or "
                    "start again with a new checkpoint"
                ) from None
            raise
        if found is None:
            folder = self.location.local
            what = "the folder is not a Delta table" if folder is not None and folder.is_dir() else "it does not exist"
            raise ConnectorError(
                f"there is no Delta table at {self.location.address}: {what}; correct the address, or create the "
                "table first"
            )
        if version is None:
            self._table = found
        self._check(found)
        return found

    def _check(self, table: Any) -> None:
        configuration = table.metadata().configuration
        if configuration.get(MAPPING, "none") != "none":
            raise ConnectorError(
                f"the Delta table {self.location.address} has column mapping, which DeltaSource does not read: read it "
                "by Spark's own source, or copy it to a table without"
            )
        if self.change_feed and str(configuration.get("delta.enableChangeDataFeed")).lower() != "true":
            raise ConfigError(
                f"change_feed: the Delta table {self.location.address} keeps none; set its property "
                "delta.enableChangeDataFeed to true, and read from a later version"
            )

    def has_deletion_vectors(self, version: int) -> bool:
        """Whether records of data files may be marked as deleted."""
        return "deletionVectors" in (self.table(version).protocol().reader_features or [])

    @functools.lru_cache(maxsize=REMEMBERED)  # noqa: B019 (a log lives as long as its source)
    def snapshot(self, version: int) -> list[ChangedFile]:
        """Return the data files of a version, oldest first."""
        table = self.table(version)
        actions = pa.table(table.get_add_actions())
        names = table.metadata().partition_columns
        texts = [partition_text(actions["partition"].combine_chunks().field(n)).to_pylist() for n in names]
        found = sorted(
            (time, path, rows, [text[i] for text in texts])
            for i, (time, path, rows) in enumerate(
                zip(
                    pa.array(actions["modification_time"].to_pylist()).to_pylist(),
                    actions["path"].to_pylist(),
                    actions["num_records"].to_pylist(),
                    strict=True,
                )
            )
        )
        return [
            self._file(unquote(path), rows, dict(zip(names, values, strict=True)), "insert", version)
            for _, path, rows, values in found
        ]

    @functools.lru_cache(maxsize=REMEMBERED)  # noqa: B019
    def changes(self, version: int) -> list[ChangedFile]:
        """Return the data files that a version adds (with a change feed, all of its changes), in the order of the log.

        A version that only rearranges records has none.
        """
        added, removed, described = [], [], []
        for action, found in self._actions(version):
            if action == "add" and found.get("dataChange", True):
                added.append(found)
            elif action == "remove" and found.get("dataChange", True):
                removed.append(found)
            elif action == "cdc":
                described.append(found)
        if self.change_feed:
            parts: list[tuple[ChangeKind, list[dict[str, Any]]]] = [("cdc", described)]
            if not described:
                parts = [("delete", removed), ("insert", added)]
        elif removed and not self.ignore_changes:
            raise ConnectorError(
                f"version {version} of the Delta table {self.location.address} removes or changes records "
                f"({self.operation(version)}), and a stream of appended records cannot show that: pass over such "
                "versions with on_change='ignore', or read the changes with change_feed=True"
            )
        else:
            parts = [("insert", [] if removed else added)]
        return [
            self._file(unquote(one["path"]), _rows(one), one.get("partitionValues") or {}, kind, version)
            for kind, found in parts
            for one in found
        ]

    def operation(self, version: int) -> str:
        """Return the name of the operation that made a version."""
        return next(
            (str(found.get("operation")) for action, found in self._actions(version) if action == "commitInfo"), "?"
        )

    @functools.lru_cache(maxsize=REMEMBERED)  # noqa: B019
    def commit_time(self, version: int) -> int:
        """Return when a version was committed, in microseconds since 1970."""
        for action, found in self._actions(version):
            if action == "commitInfo":
                return 1000 * int(found.get("inCommitTimestamp") or found["timestamp"])
        return 0

    def schema_of(self, version: int) -> pa.Schema | None:
        """Return the columns that a version gives the table, if it changes them."""
        from deltalake import Schema

        for action, found in self._actions(version):
            if action == "metaData":
                return pa.schema(Schema.from_json(found["schemaString"]).to_arrow())
        return None

    def _actions(self, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
        name = f"_delta_log/{version:020d}.json"
        try:
            with self.location.translating_errors("read"), self.location.files.open_input_stream(name) as stream:
                text = stream.read()
        except ConnectorError as error:
            if isinstance(error.__context__, FileNotFoundError):
                raise ConnectorError(
                    f"version {version} of the Delta table {self.location.address} is not in its log any more: the run "
                    "stood longer than the table keeps its log (delta.logRetentionDuration); start again with a new "
                    "checkpoint, from the table as it is"
                ) from None
            raise
        for line in text.splitlines():
            yield from json.loads(line).items()

    def _file(
        self, path: str, rows: int | None, values: dict[str, str | None], kind: ChangeKind, version: int
    ) -> ChangedFile:
        return ChangedFile(path, self.open(path, version).metadata.num_rows if rows is None else rows, values, kind)

    def open(self, path: str, version: int) -> Any:
        """Open a data file."""
        from pyarrow import parquet

        try:
            with self.location.translating_errors("read"):
                return parquet.ParquetFile(self.location.files.open_input_file(path), page_checksum_verification=True)
        except ConnectorError as error:
            if isinstance(error.__context__, FileNotFoundError):
                raise ConnectorError(
                    f"the file {self.location.address}/{path} of version {version} does not exist any more: a vacuum "
                    "has removed it, if later versions do not need it, or it was lost; start again with a new "
                    "checkpoint, from the table as it is, or restore the file"
                ) from None
            raise


def _rows(action: dict[str, Any]) -> int | None:
    statistics = json.loads(action.get("stats") or "{}")
    rows = statistics.get("numRecords")
    return None if rows is None else int(rows)
