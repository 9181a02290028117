"""Pairs over files and tables: Parquet, Delta, PostgreSQL and recorded lines."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.harness.data import write_city
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.requirements import require_extra
from riot_bench.suites.edges.pair import Pair
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source

__all__ = ["delta_sink", "delta_source", "iceberg_sink", "parquet_sink", "postgres_sink", "replay_source"]

#: Rows of a batch, as the engine hands them over.
BATCH_ROWS = 65_536
#: The stream that is written.
STREAM = "readings"


def readings(n: int) -> list[pa.RecordBatch]:
    """Return n readings of 1,000 sensors."""
    generator = np.random.default_rng(7)
    number = np.arange(n)
    table = pa.table(
        {
            "number": number,
            "event_time": pa.array(1_700_000_000_000_000 + 1000 * number).cast(TIMESTAMP),
            "sensor_id": pa.array([f"sensor-{i:04d}" for i in range(1000)]).take(pa.array(number % 1000)),
            "obs_type": pa.array(["temperature", "humidity", "dust"]).take(pa.array(number % 3)),
            "value": generator.normal(20.0, 5.0, n),
        }
    )
    return list(table.to_batches(max_chunksize=BATCH_ROWS))


def write_batch(sink: Sink, number: int, batches: list[pa.RecordBatch]) -> float:
    """Write and commit one batch of a sink; return the seconds."""
    start = time.perf_counter()
    writer = sink.writer(number, 0)
    for batch in batches:
        writer.write(STREAM, batch)
    sink.commit(number, [writer.finish()])
    sink.sync(number)
    return time.perf_counter() - start


def read_all(source: Source) -> tuple[float, pa.Table]:
    """Read a source to its end; return the seconds and the records."""
    start = time.perf_counter()
    at, found = source.initial(), []
    while not source.finished(at):
        end = source.latest(at)
        if end == at:
            break
        for split in source.splits(at, end, 1):
            found += list(source.read(split))
        at = end
    seconds = time.perf_counter() - start
    source.close()
    return seconds, pa.Table.from_batches(found)


def in_order(table: pa.Table) -> list[dict[str, object]]:
    """Return rows in the order of their numbers."""
    return list(table.select(readings(1)[0].schema.names).sort_by("number").to_pylist())


@contextmanager
def parquet_sink(quick: bool) -> Iterator[Pair]:
    """A file that is on disk, with its name, when the batch is committed."""
    from riot_bench.baselines.python.tables import write_parquet
    from riot_ops import ParquetSink

    n = 20_000 if quick else 1_000_000
    batches, numbers = readings(n), itertools.count()
    with temporary_folder() as base:
        sink = ParquetSink(base / "ours").bind({STREAM: batches[0].schema})
        sink.begin(True)

        def ours() -> tuple[float, object]:
            number = next(numbers)
            seconds = write_batch(sink, number, batches)
            return seconds, pq.read_table(max((base / "ours" / STREAM).glob("part-*.parquet")))

        def theirs() -> tuple[float, object]:
            path = base / "theirs.parquet"
            return write_parquet(path, batches), pq.read_table(path)

        yield Pair(n, ours, theirs, "pyarrow's ParquetWriter, fsync and rename, snappy", "rows/s", _same_tables)


def _same_tables(a: pa.Table, b: pa.Table) -> bool:
    return in_order(a) == in_order(b)


@contextmanager
def delta_sink(quick: bool) -> Iterator[Pair]:
    """A version of a table that is on disk, with statistics, when the batch is committed."""
    require_extra("this benchmark", "delta", "deltalake")
    from riot_bench.baselines.python.tables import append_delta
    from riot_ops.connectors import DeltaSink

    n = 20_000 if quick else 1_000_000
    batches, numbers = readings(n), itertools.count()
    with temporary_folder() as base:
        sink = DeltaSink(base / "ours").bind({STREAM: batches[0].schema})
        sink.identify("bench")
        sink.begin(True)

        def ours() -> tuple[float, object]:
            return write_batch(sink, next(numbers), batches), _newest(base / "ours" / STREAM, n)

        def theirs() -> tuple[float, object]:
            seconds = append_delta(base / "theirs", pa.Table.from_batches(batches))
            return seconds, _newest(base / "theirs", n)

        yield Pair(n, ours, theirs, "delta-rs: write_deltalake(), and fsync of its files", "rows/s", _same_tables)


def _newest(path: Path, n: int) -> pa.Table:
    """Return the rows of the files of the latest version that add up to n."""
    from deltalake import DeltaTable

    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
    found, rows = [], 0
    for file in actions["path"].to_pylist():
        if rows < n:
            found.append(pq.read_table(path / file, partitioning=None))
            rows += found[-1].num_rows
    return pa.concat_tables(found)


@contextmanager
def iceberg_sink(quick: bool) -> Iterator[Pair]:
    """A snapshot of a table that is on disk when the batch is committed, in a catalogue of SQLite."""
    require_extra("this benchmark", "iceberg", "pyiceberg")
    from pyiceberg.catalog import load_catalog

    from riot_bench.baselines.python.tables import append_iceberg
    from riot_ops.connectors import IcebergSink

    n = 20_000 if quick else 1_000_000
    batches, numbers = readings(n), itertools.count()
    with temporary_folder() as base:
        settings = {"type": "sql", "uri": f"sqlite:///{base}/catalog.db", "warehouse": f"file://{base}/lake"}
        sink = IcebergSink("ours", catalog=settings).bind({STREAM: batches[0].schema})
        sink.identify("bench")
        sink.begin(True)
        catalog = load_catalog("default", **settings)
        catalog.create_namespace("theirs")
        rows = pa.Table.from_batches(batches)
        catalog.create_table("theirs.readings", rows.schema)

        def newest(name: str) -> pa.Table:
            table: Any = catalog.load_table(name)
            snapshot = table.current_snapshot()
            added = next(m for m in snapshot.manifests(table.io) if m.added_snapshot_id == snapshot.snapshot_id)
            files = [e.data_file.file_path.removeprefix("file://") for e in added.fetch_manifest_entry(table.io)]
            return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)

        def ours() -> tuple[float, object]:
            return write_batch(sink, next(numbers), batches), newest(f"ours.{STREAM}")

        def theirs() -> tuple[float, object]:
            return append_iceberg(catalog.load_table("theirs.readings"), rows), newest("theirs.readings")

        yield Pair(n, ours, theirs, "pyiceberg: append(), and fsync of its files", "rows/s", _same_tables)


@contextmanager
def delta_source(quick: bool) -> Iterator[Pair]:
    """From a table of several versions to record batches."""
    require_extra("this benchmark", "delta", "deltalake")
    from deltalake import DeltaTable, write_deltalake

    from riot_ops.connectors import DeltaSource

    n = 20_000 if quick else 1_000_000
    with temporary_folder() as base:
        for part in np.array_split(np.arange(n), 4):
            rows = pa.Table.from_batches(readings(n)).slice(int(part[0]), part.size)
            write_deltalake(base / "table", rows, mode="append")

        def theirs() -> tuple[float, object]:
            start = time.perf_counter()
            batches = list(DeltaTable(base / "table").to_pyarrow_dataset().to_batches())
            seconds = time.perf_counter() - start
            return seconds, pa.Table.from_batches(batches)

        def ours() -> tuple[float, object]:
            return read_all(DeltaSource(base / "table"))

        yield Pair(n, ours, theirs, "delta-rs and pyarrow: to_pyarrow_dataset().to_batches()", "rows/s", _same_tables)


@contextmanager
def postgres_sink(quick: bool) -> Iterator[Pair]:
    """Rows that are committed, by COPY in one transaction."""
    require_extra("this benchmark", "postgres", "psycopg")
    import psycopg

    from riot_bench.baselines.python.tables import copy_postgres
    from riot_ops import Secret
    from riot_ops.connectors import PostgresSink
    from riot_ops.testing.services import Postgres

    n = 5000 if quick else 200_000
    batches, numbers = readings(n), itertools.count()
    with Postgres() as server:
        sink = PostgresSink(url=server.url, credential=Secret(server.password)).bind({STREAM: batches[0].schema})
        sink.identify("bench")
        sink.begin(True)  # waits for a server that is starting up
        with psycopg.connect(server.url, password=server.password, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE plain (LIKE {STREAM})")

            def rows(table: str) -> object:
                columns = ", ".join(batches[0].schema.names)
                found = connection.execute(f"SELECT {columns} FROM {table} ORDER BY number").fetchall()  # noqa: S608
                connection.execute(f"TRUNCATE {table}")
                return found

            def ours() -> tuple[float, object]:
                return write_batch(sink, next(numbers), batches), rows(STREAM)

            def theirs() -> tuple[float, object]:
                return copy_postgres(server.url, server.password, "plain", batches), rows("plain")

            yield Pair(n, ours, theirs, "psycopg: COPY row by row, one transaction, connecting included", "rows/s")


@contextmanager
def replay_source(quick: bool) -> Iterator[Pair]:
    """From a text file to record batches with line and time."""
    from riot_bench.baselines.python.tables import read_lines
    from riot_ops.ingest.replay import ReplaySource

    n = 5000 if quick else 200_000
    with temporary_folder() as base:
        path = next(write_city(base / "city", n, 1).glob("*.txt"))

        def ours() -> tuple[float, object]:
            return read_all(ReplaySource(path))

        def theirs() -> tuple[float, object]:
            return read_lines(path)

        def equal(a: pa.Table, b: pa.Table) -> bool:
            names = ["event_time", "payload"]
            return bool(a.select(names).cast(b.schema.remove_metadata()).to_pylist() == b.select(names).to_pylist())

        yield Pair(n, ours, theirs, "plain Python: the lines of a file, and their times, as a table", equal=equal)
