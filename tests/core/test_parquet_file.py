"""Parquet files: damage is found, and a full disk leaves no file."""

from __future__ import annotations

import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.parquet_file import read_parquet

ROWS = 4_000


def table(seed=0):
    values = np.random.default_rng(seed).random(ROWS)
    return pa.table({"name": [f"sensor {i % 7}" for i in range(ROWS)], "value": values})


def committed_file(folder):
    sink = ParquetSink(folder, compression="none")
    writer = sink.writer(0, 0)
    writer.write("out", table().to_batches()[0])
    sink.commit(0, [writer.finish()])
    return sink, sink.path("out", 0, 0)


def places_in_pages(path):
    """Some bytes of the values in the pages, of both columns."""
    group = pq.read_metadata(path).row_group(0)
    data = path.read_bytes()
    first_values = table()["value"].to_numpy()[:3].tobytes()
    values = data.index(first_values)
    names = data.index(b"sensor 3")
    assert values < sum(group.column(i).total_compressed_size for i in range(2)) + 4
    return [names + 2, values, *range(values + 5, values + 8 * ROWS, 1_777)]


def test_flipped_bits_in_pages_are_found_by_the_sink_and_by_read(tmp_path):
    sink, path = committed_file(tmp_path)
    assert sink.table("out") == table()
    whole = path.read_bytes()
    for number, place in enumerate(places_in_pages(path)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << number % 8
        path.write_bytes(damaged)
        with pytest.raises(ConnectorError, match=path.name):
            sink.table("out")
        with pytest.raises(ConnectorError, match=path.name):
            read_parquet(path, ["name"] if number == 0 else ["value"])
        flow = ro.Dataflow("f")
        flow.sink("o", flow.source("r", schema={"name": "string", "value": "double"}))
        with pytest.raises(ConnectorError, match=path.name):
            flow.run(ro.read(path))


def test_columns_are_read_alone(tmp_path):
    _, path = committed_file(tmp_path)
    assert read_parquet(path, ["value"]) == table().select(["value"])


@pytest.fixture
def full_disk():
    """The system refuses to write a file beyond 8 KB, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_raises_the_named_error_and_frees_the_folders(full_disk, tmp_path):
    def run():
        flow = ro.Dataflow("f")
        flow.sink("o", flow.source("r", schema={"name": "string", "value": "double"}))
        return flow.run(table(), out=str(tmp_path / "out"), checkpoint=str(tmp_path / "ck"))

    with pytest.raises(ConnectorError, match="out"):
        run()
    assert list((tmp_path / "out").rglob(".part-*")) == []
    full_disk()
    assert run()["r"].num_rows == ROWS


def test_abort_of_several_files_on_a_full_disk_does_not_raise_and_removes_all(full_disk, tmp_path):
    values = pa.record_batch({"value": np.random.default_rng(1).random(1000)})  # 8,000 bytes; its footer is too much
    writer = ParquetSink(tmp_path, compression="none").writer(0, 0)
    writer.write("fits_without_footer", values)
    writer.write("too_large", table().to_batches()[0])
    with pytest.raises(ConnectorError, match="too_large"):
        writer.finish()
    writer.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
