"""Records as messages of a broker, read by a bare client."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.connectors import KafkaSink
from riot_ops.core.errors import ConnectorError
from tests.connectors.kafka.tools import until

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]
AT = dt.datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def flow(*fields: tuple[str, pa.DataType]) -> ro.Dataflow:
    one = ro.Dataflow("write")
    raw = one.source("raw", schema=pa.schema([("seq", pa.int64()), *fields]))
    one.sink("out", raw)
    return one


def write(sink, rows, *fields, **options):
    return flow(*fields).run(rows, sinks={"out": sink, "errors": ro.MemorySink()}, **options)


def test_json_of_the_record_by_default(cluster, topic):
    name = topic()
    sink = KafkaSink(servers=cluster.servers, topic=name)
    write(sink, [{"a": 1.5, "b": "ü\n"}, {"a": None, "b": ""}], ("a", pa.float64()), ("b", pa.string()))
    assert [json.loads(m.value()) for m in cluster.read(name, 2)] == [
        {"seq": 0, "a": 1.5, "b": "ü\n"},
        {"seq": 1, "a": None, "b": ""},
    ]
    few = KafkaSink(servers=cluster.servers, topic=name, fields="b")
    write(few, [{"a": 1.5, "b": "x"}], ("a", pa.float64()), ("b", pa.string()))
    assert cluster.read(name, 3)[2].value() == b'{"b":"x"}'


def test_payload_key_headers_time_and_partition(cluster, topic):
    name = topic(3)
    sink = KafkaSink(
        servers=cluster.servers,
        topic=name,
        payload="p",
        key_field="k",
        header_fields=("h", "n"),
        time="t",
        partition_field="part",
    )
    rows = [
        {"p": b"\xff", "k": "a", "h": "x", "n": 5, "t": AT, "part": 2},
        {"p": None, "k": "a", "h": None, "n": None, "t": None, "part": 2},
    ]
    time_type = pa.timestamp("us", tz="UTC")
    write(
        sink, rows, ("p", pa.binary()), ("k", pa.string()), ("h", pa.string()), ("n", pa.int64()), ("t", time_type),
        ("part", pa.int64()),
    )  # fmt: skip
    first, second = cluster.read(name, 2, 3)
    assert (first.value(), first.key(), first.partition()) == (b"\xff", b"a", 2)
    assert first.headers() == [("h", b"x"), ("n", b"5")] and first.timestamp()[1] == round(AT.timestamp() * 1000)
    assert second.value() is None and second.headers() is None and second.timestamp()[1] > first.timestamp()[1]


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"t": EPOCH}, r"the time 't' .*must be after 1970-01-01T00:00.*got 0 ms"),
        ({"t": EPOCH - dt.timedelta(seconds=1)}, r"the time 't' .*got -1000 ms"),
        ({"part": -2}, r"the field 'part' .*from 0 to 2147483647, got -2"),
        ({"part": 2**31}, r"the field 'part' .*from 0 to 2147483647, got 2147483648"),
    ],
)
def test_times_and_partitions_that_kafka_lacks_are_refused(cluster, topic, record, message):
    """A time of 0 would be sent as the time of writing."""
    sink = KafkaSink(servers=cluster.servers, topic=topic(1), time="t", partition_field="part")
    row = {"t": AT, "part": 0, **record}
    with pytest.raises(ConnectorError, match=message):
        write(sink, [row], ("t", pa.timestamp("us", tz="UTC")), ("part", pa.int64()))


def test_first_time_and_no_time(cluster, topic):
    name = topic(1)
    first = EPOCH + dt.timedelta(milliseconds=1)
    sink = KafkaSink(servers=cluster.servers, topic=name, time="t", partition_field="part")
    write(
        sink,
        [{"t": first, "part": None}, {"t": None, "part": 0}],
        ("t", pa.timestamp("us", tz="UTC")),
        ("part", pa.int64()),
    )
    assert [message.timestamp()[1] == 1 for message in cluster.read(name, 2)] == [True, False]


def test_same_key_goes_to_the_partition_of_other_clients(cluster, topic):
    name = topic(3)
    rows = [{"k": f"k{i}"} for i in range(30)]
    write(KafkaSink(servers=cluster.servers, topic=name, key_field="k"), rows, ("k", pa.string()))
    java = topic(3)
    cluster.settings["partitioner"] = "murmur2_random"
    cluster.produce(java, [row["k"] for row in rows], key=lambda v: v)
    del cluster.settings["partitioner"]
    assert {m.key(): m.partition() for m in cluster.read(name, 30, 3)} == {
        m.key(): m.partition() for m in cluster.read(java, 30, 3)
    }


def test_topic_of_fields_and_stream(cluster, topic):
    name = topic()
    cluster.create(f"{name}-a")
    sink = KafkaSink(servers=cluster.servers, topic="{t}-{s}", payload="p")
    write(sink, [{"t": name, "s": "a", "p": "1"}], ("t", pa.string()), ("s", pa.string()), ("p", pa.string()))
    assert [m.value() for m in cluster.read(f"{name}-a", 1)] == [b"1"]
    cluster.create(f"{name}-raw")
    write(KafkaSink(servers=cluster.servers, topic=f"{name}-{{stream}}", payload="p"), [{"p": "2"}], ("p", pa.string()))
    assert [m.value() for m in cluster.read(f"{name}-raw", 1)] == [b"2"]


def test_record_that_is_too_large_stops_the_run(cluster, topic):
    sink = KafkaSink(servers=cluster.servers, topic=topic(), payload="p", client_options={"message.max.bytes": 2000})
    with pytest.raises(ro.ConnectorError, match=r"(?s)cannot be written.*too large.*message.max.bytes"):
        write(sink, [{"p": bytes(3000)}], ("p", pa.binary()))


def test_unreachable_broker_is_reported_before_the_run_ends():
    sink = KafkaSink(servers="localhost:1", topic="a", payload="p", timeout="1s")
    with pytest.raises(ro.ConnectorError, match=r"(?s)Kafka at localhost:1: .*is the broker running"):
        write(sink, [{"p": b"1"}], ("p", pa.binary()))


def test_fields_are_checked_when_the_run_starts(cluster):
    with pytest.raises(ro.ConfigError, match="KafkaSink reads the field 'k', which the stream 'raw' lacks"):
        write(KafkaSink(servers=cluster.servers, topic="a", key_field="k"), [{"p": 1}], ("p", pa.int64()))
    with pytest.raises(ro.ConfigError, match="the field 'p' of the stream 'raw' must be a timestamp, got int64"):
        write(KafkaSink(servers=cluster.servers, topic="a", time="p"), [{"p": 1}], ("p", pa.int64()))


@pytest.mark.parametrize(
    ("option", "kind", "value", "message"),
    [
        ("time", pa.timestamp("us", "UTC"), 0, "must be after 1970-01-01T00:00, .*got 0 ms"),
        ("time", pa.timestamp("us"), 999, "must be after 1970-01-01T00:00, .*got 0 ms"),
        ("time", pa.timestamp("s"), -3, "must be after 1970-01-01T00:00, .*got -3000 ms"),
        ("partition_field", pa.int64(), 2**31, "from 0 to 2147483647, got 2147483648"),
        ("partition_field", pa.uint64(), 2**64 - 1, "from 0 to 2147483647, got 18446744073709551615"),
        ("partition_field", pa.int32(), -2, "from 0 to 2147483647, got -2"),
    ],
)
def test_times_and_partitions_that_kafka_lacks(option, kind, value, message):
    sink = KafkaSink(servers="localhost:1", topic="a", payload="p", **{option: "x"})
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), pa.array([None, value], kind)], ["p", "x"])
    with pytest.raises(ConnectorError, match=f"'x' of a record of the stream 'out'.*{message}"):
        sink.messages("out", batch)


def test_rejected_records_need_a_sink_that_has_their_fields(cluster):
    sink = KafkaSink(servers=cluster.servers, topic="a", payload="p")
    with pytest.raises(ro.ConfigError, match="give rejected records a sink of their own, named 'errors'"):
        flow(("p", pa.int64())).run([{"p": 1}], sinks=sink)


def committed(cluster, name, n, partitions=1):
    return [int(m.value()) for m in cluster.read(name, n, partitions, **{"isolation.level": "read_committed"})]


def test_two_transactional_sinks_are_refused(cluster):
    one = ro.Dataflow("two")
    raw = one.source("raw", schema=pa.schema([("seq", pa.int64())]))
    one.sink("a", raw)
    one.sink("b", raw)
    sink = KafkaSink(servers=cluster.servers, topic="a", transactional=True)
    with pytest.raises(ro.ConfigError, match="the sinks 'a' and 'b' are transactional"):
        one.run([{"seq": 1}], sinks={"a": sink, "b": replace(sink, topic="b")})


def test_checkpoint_counts_only_if_the_transaction_was_committed(cluster, topic, tmp_path):
    """A run that ends between its checkpoint and the commit writes the epoch again, and one after the commit does not."""
    name = topic()
    table = pa.table({"seq": range(30), "p": [str(i) for i in range(30)]})

    def run(sink):
        return write(sink, table, ("p", pa.string()), checkpoint=tmp_path, epoch_rows=10, batch_size=10)

    class Failing(KafkaSink):
        before: ClassVar[bool]

        def commit(self, batch_id, messages):
            if batch_id == 1 and self.before:
                raise InterruptedError
            super().commit(batch_id, messages)
            if batch_id == 1:
                raise InterruptedError

    def sink(cls):
        return cls(servers=cluster.servers, topic=name, payload="p", transactional=True)

    for Failing.before in (True, False):
        with pytest.raises(InterruptedError):
            run(sink(Failing))
    run(sink(KafkaSink))
    found = committed(cluster, name, 40)
    if not cluster.hides_aborted:  # it shows the transaction that was aborted before the commit
        assert found[10:20] == found[20:30] == list(range(10, 20))
        del found[10:20]
    assert found == list(range(30))


def test_checkpoint_of_another_time_is_refused(cluster, topic, tmp_path):
    name = topic()

    def run(n):
        sink = KafkaSink(servers=cluster.servers, topic=name, payload="p", transactional=True)
        table = pa.table({"seq": range(n), "p": [str(i) for i in range(n)]})
        write(sink, table, ("p", pa.string()), checkpoint=tmp_path, epoch_rows=10, batch_size=10)

    run(10)
    older = {path.name: path.read_bytes() for path in tmp_path.glob("state-*")}
    run(40)
    for path in tmp_path.glob("state-*"):
        path.unlink()
    for file, data in older.items():
        (tmp_path / file).write_bytes(data)
    with pytest.raises(ro.StateError, match="not the checkpoint with which the sink was written"):
        run(50)


def test_micro_batch_that_is_repeated_is_left_out(cluster, topic):
    """The process that commits ends after the transaction: Spark repeats the micro-batch with the same records."""
    name = topic()
    sink = KafkaSink(servers=cluster.servers, topic=name, payload="p", transactional=True)
    sink.identify(f"run-{name}")
    worker, committer = (pickle.loads(pickle.dumps(sink)) for _ in range(2))
    messages = []
    for partition in (0, 1):
        writer = worker.writer(7, partition)
        writer.write("out", pa.RecordBatch.from_pydict({"p": [f"{partition}a", f"{partition}b"]}))
        messages.append(writer.finish())
    committer.commit(7, messages)
    again = pickle.loads(pickle.dumps(sink))
    again.commit(7, messages)
    again.commit(8, messages[:1])
    assert [m.value() for m in cluster.read(name, 9)] == [b"0a", b"0b", b"1a", b"1b", b"0a", b"0b"]


@pytest.mark.long
def test_killed_runs_write_each_record_once(cluster, topic, tmp_path):
    """The run is killed again and again; consumers of committed messages see each record once."""
    n = 4000
    source, target = topic(2), topic(2)
    cluster.produce(source, range(n - 2), partition=lambda v: v % 2, batched=True)
    cluster.produce(source, range(n - 2, n), partition=lambda v: v % 2)
    job = [sys.executable, str(ROOT / "tests/connectors/kafka/killed_job.py")]
    job += [",".join(cluster.servers), source, target, str(tmp_path)]
    marker = tmp_path / "batches"
    for _ in range(3):
        seen = len(marker.read_bytes()) if marker.exists() else 0
        run = subprocess.Popen(job, stderr=subprocess.DEVNULL)
        until(lambda seen=seen: marker.exists() and len(marker.read_bytes()) >= seen + 3, 60)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert subprocess.run(job, check=False, timeout=60).returncode == 0
    values = committed(cluster, target, 2 * n, 2)
    assert sorted(set(values)) == list(range(n))
    if cluster.hides_aborted:
        assert len(values) == n
