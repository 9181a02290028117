"""Blob and table stores in a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from riot_ops.connectors.stores.blob import BlobStore, check_name
from riot_ops.connectors.stores.sql import SqlTable
from riot_ops.connectors.stores.table import MAX_BATCH_ROWS, Key, Row, TableStore
from riot_ops.core.errors import RecordError, excerpt
from riot_ops.core.parameters import Duration
from riot_ops.core.secret import Secret

__all__ = ["SqlBlobs", "SqlTableStore"]


class SqlBlobs(BlobStore):
    """Blobs as rows of the table ``blobs``, which is created at first use.

    Parameters
    ----------
    url : str
        URL of the database, without a password.
    credential : Secret, optional
        The password.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.
    """

    def __init__(self, url: str, credential: Secret | None = None, *, retry: Duration = "1min") -> None:
        columns = pa.schema([("name", pa.string()), ("data", pa.binary())])
        self._rows = SqlTable(url, "blobs", columns, ("name",), credential, retry=retry)
        self.label = self._rows.label

    def create(self) -> None:
        self._rows.create()

    def list(self, prefix: str = "") -> Iterator[str]:
        import sqlalchemy as sa

        # LIKE ignores case in some databases
        begins = sa.func.substr(self._rows.table.c.name, 1, len(prefix)) == prefix
        return iter(sorted(row["name"] for row in self._rows.read(begins, columns=["name"])))

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        import sqlalchemy as sa

        named = self._rows.table.c.name == check_name(name)
        if max_bytes is not None:
            size = sa.func.length(self._rows.table.c.data)
            if self._rows.read(named, size > max_bytes, columns=["name"]):
                raise RecordError(
                    f"the blob {excerpt(name)!r} of {self.label} has more than {max_bytes} bytes", reason="too_large"
                )
        found = self._rows.read(named)
        if not found:
            raise self._missing(name)
        return bytes(found[0]["data"])

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        import sqlalchemy as sa

        row = {"name": check_name(name), "data": data}
        if overwrite:
            if not self._rows.write([row]):
                raise RecordError(f"{self.label} refuses the blob {excerpt(name)!r}", reason="refused")
            return
        self._rows.create()

        def call() -> bool:
            try:
                with self._rows.begin() as connection:
                    connection.execute(sa.insert(self._rows.table), row)
            except sa.exc.IntegrityError:
                return False
            return True

        if not self._rows.run("written", call) and self.read(name) != data:
            raise self._exists(name)

    def delete(self, name: str) -> None:
        import sqlalchemy as sa

        self._rows.create()
        statement = sa.delete(self._rows.table).where(self._rows.table.c.name == check_name(name))

        def call() -> None:
            with self._rows.begin() as connection:
                connection.execute(statement)

        self._rows.run("written", call)

    def close(self) -> None:
        self._rows.close()


class SqlTableStore(TableStore):
    """Rows of a table with the columns ``partition_key``, ``row_key`` and ``data`` (the values as MessagePack).

    Parameters
    ----------
    url : str
        URL of the database, without a password.
    table : str
        Created at first use.
    credential : Secret, optional
        The password.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.
    """

    def __init__(self, url: str, table: str, credential: Secret | None = None, *, retry: Duration = "1min") -> None:
        columns = pa.schema([("partition_key", pa.string()), ("row_key", pa.string()), ("data", pa.binary())])
        self._rows = SqlTable(url, table, columns, ("partition_key", "row_key"), credential, retry=retry)
        self.label = self._rows.label

    def create(self) -> None:
        self._rows.create()

    def upsert_chunks(self, chunks: Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
        import msgspec

        return [
            rows
            for rows in chunks
            if not self._rows.write(
                [
                    {"partition_key": r.partition, "row_key": r.row, "data": msgspec.msgpack.encode(r.values)}
                    for r in rows
                ]
            )
        ]

    def get(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        import sqlalchemy as sa

        c = self._rows.table.c
        distinct = list(dict.fromkeys(keys))
        found: dict[Key, dict[str, Any]] = {}
        for i in range(0, len(distinct), MAX_BATCH_ROWS):
            wanted = sa.tuple_(c.partition_key, c.row_key).in_(distinct[i : i + MAX_BATCH_ROWS])
            found |= {(r["partition_key"], r["row_key"]): _decoded(r) for r in self._rows.read(wanted)}
        return [found.get(key) for key in keys]

    def range(self, partition: str, start: str, end: str, max_rows: int | None = None) -> list[Row]:
        c = self._rows.table.c
        found = self._rows.read(
            c.partition_key == partition,
            c.row_key >= start,
            c.row_key < end,
            limit=None if max_rows is None else max_rows + 1,
        )
        self._check_count(found, max_rows)
        return [Row(partition, r["row_key"], _decoded(r)) for r in found]

    def close(self) -> None:
        self._rows.close()


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    import msgspec

    values: dict[str, Any] = msgspec.msgpack.decode(row["data"])
    return values
