"""Records on their way from workers to a sink in the user's process, without any Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.core.errors import ConnectorError
from riot_ops.core.sink import MemorySink
from riot_ops.spark import driver_sink as relay
from riot_ops.spark.driver_sink import Relay
from riot_ops.spark.types import spark_type


def batch(*values):
    return pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})


def written(sink, number, partitions):
    """The messages of a batch's writers, the last partition's first."""
    found = []
    for partition, streams in sorted(partitions.items(), reverse=True):
        writer = sink.writer(number, partition)
        for stream, values in streams:
            writer.write(stream, batch(*values))
        found.append(writer.finish())
    return found


def test_records_come_in_the_order_of_batches_and_partitions(tmp_path):
    sink = Relay(tmp_path / "new" / "relay")
    for number in (10, 2):
        partitions = {p: [("a", [number, p]), ("b", [-p]), ("a", [0])] for p in (0, 1, 10)}
        sink.commit(number, written(sink, number, partitions))
    assert sorted(p.name for p in sink.folder.iterdir()) == ["000000000002.blocks", "000000000010.blocks"]
    to = MemorySink()
    sink.drain(to, None)
    wanted = [v for n in (2, 10) for p in (0, 1, 10) for v in (n, p, 0)]
    assert to.table("a")["x"].to_pylist() == wanted
    assert to.table("b")["x"].to_pylist() == [0, -1, -10] * 2
    assert not list(sink.folder.iterdir()), "what was handed over is gone"


def test_later_batches_wait(tmp_path):
    sink, to = Relay(tmp_path), MemorySink()
    for number in (1, 2, 3):
        sink.commit(number, written(sink, number, {0: [("a", [number])]}))
    sink.drain(to, 2)
    assert to.table("a")["x"].to_pylist() == [1, 2]
    sink.drain(to, 2)
    assert to.table("a")["x"].to_pylist() == [1, 2]
    sink.drain(to, 3)
    assert to.table("a")["x"].to_pylist() == [1, 2, 3]


def test_a_batch_without_records_leaves_no_file(tmp_path):
    sink = Relay(tmp_path / "none")
    sink.commit(1, written(sink, 1, {0: [], 1: []}))
    assert not sink.folder.exists()


def test_a_batch_that_is_committed_again_counts_once(tmp_path):
    sink, to = Relay(tmp_path), MemorySink()
    for _ in range(2):
        sink.commit(7, written(sink, 7, {0: [("a", [1, 2])]}))
    sink.drain(to, 7)
    assert to.table("a")["x"].to_pylist() == [1, 2]


def blocks(rows, batches, monkeypatch):
    monkeypatch.setattr(relay, "BLOCK_ROWS", rows)
    monkeypatch.setattr(relay, "MOST_HELD", batches)
    writer = Relay(None).writer(0, 5)
    for i in range(6):
        writer.write("a", batch(i, i))
        writer.write("b", batch(i))
    told = writer.finish()
    assert told["partition"] == 5
    return [[b.num_rows for b in relay.decode(data)] for name, data in told["blocks"] if name == "a"]


@pytest.mark.parametrize(
    ("rows", "batches", "wanted"), [(4, 99, [4, 4, 4]), (5, 99, [6, 6]), (99, 4, [8, 4]), (99, 99, [12])]
)
def test_blocks_hold_so_many_rows_or_batches_of_a_stream(rows, batches, wanted, monkeypatch):
    assert [sum(block) for block in blocks(rows, batches, monkeypatch)] == wanted


def test_one_writer_hands_over_so_many_bytes_at_most(monkeypatch):
    monkeypatch.setattr(relay, "BLOCK_ROWS", 2)
    writer = Relay(None).writer(0, 0)
    writer.write("a", batch(1, 2))
    writer.write("b", batch(3, 4))
    size = sum(len(data) for _, data in writer.finish()["blocks"])
    for most, allowed in ((size, True), (size - 1, False)):
        monkeypatch.setattr(relay, "MOST_BYTES", most)
        writer = Relay(None).writer(0, 0)
        writer.write("a", batch(1, 2))
        if allowed:
            writer.write("b", batch(3, 4))
        else:
            with pytest.raises(ConnectorError, match=r"take fewer records at a time \(max_records=\)"):
                writer.write("b", batch(3, 4))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.int8(), pa.int8()),
        (pa.list_(pa.uint8()), pa.list_(pa.int16())),
        (pa.large_list(pa.uint32()), pa.list_(pa.int64())),
        (pa.list_(pa.uint16(), 3), pa.list_(pa.int32())),
        (
            pa.struct([pa.field("a", pa.uint8(), nullable=False), pa.field("b", pa.list_(pa.uint64()))]),
            pa.struct([pa.field("a", pa.int16(), nullable=False), pa.field("b", pa.list_(pa.decimal128(20, 0)))]),
        ),
    ],
    ids=str,
)
def test_types_that_spark_has(kind, wanted):
    assert spark_type(kind) == wanted
