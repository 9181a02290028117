"""Writing Parquet files, Delta tables and PostgreSQL tables with their own libraries, durably, and reading lines."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["append_delta", "append_iceberg", "copy_postgres", "read_lines", "sync", "write_parquet"]


def sync(*paths: Path) -> None:
    """Write files and folders to disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_parquet(path: Path, batches: Sequence[pa.RecordBatch]) -> float:
    """Write a file that is there as a whole or not at all; return the seconds until it is on disk."""
    start = time.perf_counter()
    hidden = path.with_name(f".{path.name}")
    with pq.ParquetWriter(hidden, batches[0].schema, compression="snappy") as file:
        for batch in batches:
            file.write_batch(batch)
    sync(hidden)
    hidden.rename(path)
    sync(path.parent)
    return time.perf_counter() - start


def append_delta(path: Path, data: Any) -> float:
    """Append rows to a Delta table; return the seconds until files and log are on disk."""
    from deltalake import write_deltalake

    start = time.perf_counter()
    before = {file.name for file in path.glob("*.parquet")} | {file.name for file in path.glob("_delta_log/*")}
    write_deltalake(path, data, mode="append")
    written = [file for file in (*path.glob("*.parquet"), *path.glob("_delta_log/*")) if file.name not in before]
    sync(*written, path, path / "_delta_log")
    return time.perf_counter() - start


def append_iceberg(table: Any, data: pa.Table) -> float:
    """Append rows to an Iceberg table in local folders; return the seconds until data and metadata are on disk."""
    start = time.perf_counter()
    table.append(data)
    folder = Path(table.location().removeprefix("file://"))
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io)
    added = [m for m in manifests if m.added_snapshot_id == snapshot.snapshot_id]
    files = [e.data_file.file_path for m in added for e in m.fetch_manifest_entry(table.io)]
    written = [*files, *(m.manifest_path for m in added), snapshot.manifest_list, table.metadata_location]
    paths = [Path(name.removeprefix("file://")) for name in written]
    sync(*paths, *{path.parent for path in paths}, folder)
    return time.perf_counter() - start


def copy_postgres(url: str, password: str, table: str, batches: Sequence[pa.RecordBatch]) -> float:
    """Copy rows to a table in one transaction, over a connection of its own; return the seconds."""
    import psycopg

    start = time.perf_counter()
    with (
        psycopg.connect(url, password=password) as connection,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} FROM STDIN") as copy,
    ):
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row(row)
    return time.perf_counter() - start


def read_lines(path: Path) -> tuple[float, pa.Table]:
    """Read lines that begin with a time in milliseconds; return the seconds, and time and line of each."""
    start = time.perf_counter()
    lines, times = [], []
    with path.open("rb") as file:
        for line in file:
            lines.append(line)
            times.append(int(line[: line.index(b",")]) * 1000)
    columns = {"event_time": pa.array(times, pa.timestamp("us", "UTC")), "payload": pa.array(lines, pa.binary())}
    table = pa.table(columns)
    return time.perf_counter() - start, table
