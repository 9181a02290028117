"""Sinks in the user's process: records from workers, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.core.errors import ConnectorError
from riot_ops.core.sink import MemorySink
from riot_ops.spark import driver_sink
from riot_ops.spark.driver_sink import DriverSink


def batch(*values):
    return pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})


def written(sink, number, partitions):
    """Return the messages of a batch's writers, the last partition first."""
    found = []
    for partition, streams in sorted(partitions.items(), reverse=True):
        writer = sink.writer(number, partition)
        for stream, values in streams:
            writer.write(stream, batch(*values))
        found.append(writer.finish())
    return found


def test_records_are_in_order_of_batches_and_partitions(tmp_path):
    sink = DriverSink(tmp_path / "new" / "relay")
    for number in (10, 2):
        partitions = {p: [("a", [number, p]), ("b", [-p]), ("a", [0])] for p in (0, 1, 10)}
        sink.commit(number, written(sink, number, partitions))
    assert sorted(p.name for p in sink.folder.iterdir()) == ["000000000002.blocks", "000000000010.blocks"]
    to = MemorySink()
    sink.drain(to, None)
    wanted = [v for n in (2, 10) for p in (0, 1, 10) for v in (n, p, 0)]
    assert to.table("a")["x"].to_pylist() == wanted
    assert to.table("b")["x"].to_pylist() == [0, -1, -10] * 2
    assert not list(sink.folder.iterdir()), "drained files are removed"


def test_later_batches_are_not_drained(tmp_path):
    sink, to = DriverSink(tmp_path), MemorySink()
    for number in (1, 2, 3):
        sink.commit(number, written(sink, number, {0: [("a", [number])]}))
    sink.drain(to, 2)
    assert to.table("a")["x"].to_pylist() == [1, 2]
    sink.drain(to, 2)
    assert to.table("a")["x"].to_pylist() == [1, 2]
    sink.drain(to, 3)
    assert to.table("a")["x"].to_pylist() == [1, 2, 3]


def test_batch_without_records_writes_no_file(tmp_path):
    sink = DriverSink(tmp_path / "none")
    sink.commit(1, written(sink, 1, {0: [], 1: []}))
    assert not sink.folder.exists()


def test_repeated_commit_counts_once(tmp_path):
    sink, to = DriverSink(tmp_path), MemorySink()
    for _ in range(2):
        sink.commit(7, written(sink, 7, {0: [("a", [1, 2])]}))
    sink.drain(to, 7)
    assert to.table("a")["x"].to_pylist() == [1, 2]


def blocks(rows, batches, monkeypatch):
    monkeypatch.setattr(driver_sink, "BLOCK_ROWS", rows)
    monkeypatch.setattr(driver_sink, "MAX_HELD_BATCHES", batches)
    writer = DriverSink(None).writer(0, 5)
    for i in range(6):
        writer.write("a", batch(i, i))
        writer.write("b", batch(i))
    message = writer.finish()
    assert message["partition"] == 5
    return [[b.num_rows for b in driver_sink.decode(data)] for name, data in message["blocks"] if name == "a"]


@pytest.mark.parametrize(
    ("rows", "batches", "wanted"), [(4, 99, [4, 4, 4]), (5, 99, [6, 6]), (99, 4, [8, 4]), (99, 99, [12])]
)
def test_blocks_have_limited_rows_and_batches(rows, batches, wanted, monkeypatch):
    assert [sum(block) for block in blocks(rows, batches, monkeypatch)] == wanted


def test_bytes_of_a_writer_are_limited(monkeypatch):
    monkeypatch.setattr(driver_sink, "BLOCK_ROWS", 2)
    writer = DriverSink(None).writer(0, 0)
    writer.write("a", batch(1, 2))
    writer.write("b", batch(3, 4))
    size = sum(len(data) for _, data in writer.finish()["blocks"])
    for limit, allowed in ((size, True), (size - 1, False)):
        monkeypatch.setattr(driver_sink, "MAX_BYTES", limit)
        writer = DriverSink(None).writer(0, 0)
        writer.write("a", batch(1, 2))
        if allowed:
            writer.write("b", batch(3, 4))
        else:
            with pytest.raises(ConnectorError, match=r"take fewer records at a time \(max_records=\)"):
                writer.write("b", batch(3, 4))
