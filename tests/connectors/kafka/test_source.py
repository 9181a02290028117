"""Messages of a broker as records: against a bare client, over cuts, restarts and kills."""

from __future__ import annotations

import datetime as dt
import pickle
import struct
import threading
import time

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import riot_ops as ro
from riot_ops.connectors import KafkaSource
from riot_ops.testing.services import Moto, Tansu
from tests.connectors.kafka.tools import Cluster, copy_flow, read_all, until

pytestmark = pytest.mark.integration


def run(source, **options):
    return copy_flow(source).run(source, **options)["raw"].to_pylist()


def values(rows):
    return [int(row["payload"]) for row in rows]


def test_columns_are_those_of_a_bare_client(cluster, topic):
    name = topic(2)
    at = 1_700_000_000_123
    cluster.produce(
        name,
        range(20),
        key=lambda v: None if v % 5 == 0 else f"k{v}",
        partition=lambda v: v % 2,
        timestamp=lambda v: at + v,
        headers=lambda v: [("a", b"1"), ("a", None)] if v % 3 == 0 else None,
    )
    cluster.produce(name, [None], key="k1", partition=1, timestamp=at)
    expected = sorted(
        (m.partition(), m.offset(), m.value(), m.key(), m.headers(), m.timestamp()) for m in cluster.read(name, 21, 2)
    )
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    rows = run(source)
    found = sorted(
        (
            r["partition"],
            r["offset"],
            r["payload"],
            r["key"],
            None if r["headers"] is None else [(h["key"], h["value"]) for h in r["headers"]],
            ({"create": 1, "log_append": 2}[r["timestamp_type"]], round(r["event_time"].timestamp() * 1000)),
        )
        for r in rows
    )
    assert len(found) == 21 and [*found] == [*expected]
    assert {r["topic"] for r in rows} == {name}
    assert {r["seq"] for r in rows} == {r["offset"] * 65_536 + r["partition"] for r in rows}


@pytest.mark.parametrize("splits", [1, 3])
def test_range_has_the_same_records_however_it_is_read(cluster, topic, splits):
    name = topic(3)
    cluster.produce(name, range(90), partition=lambda v: 0 if v < 60 else v % 3)
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    followed, planned = run(source), read_all(source, splits=splits)
    order = [row["seq"] for row in followed]
    assert len(order) == len(set(order)) == 90
    assert sorted(planned, key=lambda r: r["seq"]) == sorted(followed, key=lambda r: r["seq"])
    for partition in range(3):
        offsets = [row["offset"] for row in planned if row["partition"] == partition]
        assert offsets == sorted(offsets)


def test_cuts_of_a_follower_join_without_gaps(cluster, topic):
    name = topic(2)
    cluster.produce(name, range(50), partition=lambda v: v % 2)
    source = KafkaSource(servers=cluster.servers, topics=name)
    found, at = [], source.initial()
    while len(found) < 50:
        end = source.latest(at, 7)
        for split in source.splits(at, end, 1):
            batches = list(source.read(split))
            assert 0 < sum(b.num_rows for b in batches) <= 7
            found += [row for b in batches for row in b.to_pylist()]
        at = end
    source.close()
    assert sorted(values(found)) == list(range(50))
    assert source.count(source.initial(), at) == 50 and source.seq_at(at) == 25 * 65_536


def test_projection_makes_declared_columns_only(cluster, topic):
    name = topic()
    cluster.produce(name, range(3))
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    assert source.project(pa.schema([("payload", pa.binary())])).schema.names == ["seq", "event_time", "payload"]
    flow = ro.Dataflow("few")
    flow.sink("out", flow.source("raw", schema=pa.schema([("seq", pa.int64()), ("payload", pa.string())])))
    assert flow.run(source)["raw"].to_pylist() == [{"seq": i * 65_536, "payload": str(i)} for i in range(3)]


def test_start_at_offsets_and_latest(cluster, topic):
    name = topic(2)
    cluster.produce(name, range(20), partition=lambda v: v % 2)
    at = KafkaSource(servers=cluster.servers, topics=name, starting_offsets={name: {1: 7}}, ending_offsets="latest")
    assert sorted(values(run(at))) == sorted([*range(0, 20, 2), 15, 17, 19])
    source = KafkaSource(servers=cluster.servers, topics=name, starting_offsets="latest")
    assert source.initial() == {name: {"0": 10, "1": 10}}
    with pytest.raises(ro.ConnectorError, match=rf"starting_offsets names partition 5 of the topic '{name}'"):
        KafkaSource(servers=cluster.servers, topics=name, starting_offsets={name: {5: 1}}).initial()


def test_partitions_and_topics_that_come_later(cluster, topic):
    first = topic(1)
    names = [first + "-x", first + "-y"]
    cluster.create(names[0], 1)
    cluster.produce(names[0], range(5))
    source = KafkaSource(servers=cluster.servers, topic_pattern=first + "-[xy]", discovery_interval="50ms", idle="2s")
    found: list[int] = []
    seqs: set[int] = set()

    def keep(stream, batch):
        found.extend(values(batch.to_pylist()))
        seqs.update(batch.column("seq").to_pylist())

    def grow():
        until(lambda: len(found) >= 5)
        cluster.create(names[1], 1)
        cluster.produce(names[1], range(5, 9))

    grower = threading.Thread(target=grow)
    grower.start()
    copy_flow(source).run(source, sinks=ro.CallbackSink(keep))
    grower.join()
    assert sorted(found) == list(range(9)) and len(seqs) == 9
    # as another process reads them, with the number of each topic from the offset
    planned = KafkaSource(servers=cluster.servers, topic_pattern=first + "-[xy]")
    assert {row["seq"] for row in read_all(planned)} == seqs


def test_missing_offsets_are_refused_by_name_or_passed_over(cluster, topic):
    name = topic(1)
    cluster.produce(name, range(10))
    beyond = {name: {"0": 99}}
    source = KafkaSource(servers=cluster.servers, topics=name)
    with pytest.raises(
        ro.ConnectorError, match=rf"offset 99 of the topic '{name}', partition 0 is gone: .* from 0 to 10"
    ):
        source.latest(beyond)
    source = KafkaSource(servers=cluster.servers, topics=name, on_missing_offset="earliest")
    end = source.latest(beyond)
    assert [
        row["offset"] for split in source.splits(beyond, end, 1) for b in source.read(split) for row in b.to_pylist()
    ] == [*range(10)]
    latest = KafkaSource(servers=cluster.servers, topics=name, on_missing_offset="latest")
    end = latest.latest(beyond)
    assert latest.splits(beyond, end, 1) == []
    cluster.produce(name, [10])
    following = latest.latest(end)
    rows = [row for split in latest.splits(end, following, 1) for b in latest.read(split) for row in b.to_pylist()]
    assert values(rows) == [10]


def test_gaps_of_transactions_do_not_hang_a_range(cluster, topic):
    name = topic(1)
    producer = Producer(cluster.settings | {"transactional.id": name} | {"batch.num.messages": 1})
    producer.init_transactions(20)
    for i in range(3):  # the last record of the log is the mark of a transaction
        producer.begin_transaction()
        producer.produce(name, str(i))
        producer.flush(20)
        producer.commit_transaction(20)
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest", timeout="10s")
    assert values(run(source)) == [0, 1, 2]
    assert values(read_all(source)) == [0, 1, 2]
    assert source.count(source.initial(), source.latest(source.initial())) == 6


def test_framing_of_a_schema_registry(cluster, topic):
    name = topic(1)
    cluster.produce(name, [b"\0" + struct.pack(">I", 7) + b'{"a":1}', None, b"plain", b"\0\0"], key="k")
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest", wire_format="schema_registry")
    result = copy_flow(source).run(source)
    assert [(r["schema_id"], r["payload"]) for r in result["raw"].to_pylist()] == [(7, b'{"a":1}'), (None, None)]
    assert [r["reason"] for r in result.errors.to_pylist()] == ["malformed", "malformed"]


def test_framed_payloads_reach_parse_tasks(cluster, topic):
    name = topic(1)
    cluster.produce(name, [b"\0" + struct.pack(">I", n) + b'{"a":%d}' % n for n in (7, 8)] + [b'{"a":9}'])
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest", wire_format="schema_registry")
    flow = ro.Dataflow("framed")
    raw = flow.source("raw", schema=source.schema)
    flow.sink("out", raw.apply(ro.tasks.ParseJSON(schema={"a": ("a", "int64")}), id="parsed"))
    result = flow.run(source)
    assert result["parsed"]["a"].to_pylist() == [7, 8]
    assert [(r["task"], r["reason"]) for r in result.errors.to_pylist()] == [("raw", "malformed")]
    plain = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    flow = ro.Dataflow("plain")
    raw = flow.source("raw", schema=plain.schema)
    flow.sink("out", raw.apply(ro.tasks.ParseJSON(schema={"a": ("a", "int64")}), id="parsed"))
    assert flow.run(plain)["parsed"]["a"].to_pylist() == [9]


def test_group_shows_offsets_of_commits(cluster, topic):
    name = topic(1)
    cluster.produce(name, range(5))
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest", group_id=f"g-{name}")
    run(source)
    group = Consumer(cluster.settings | {"group.id": f"g-{name}"})
    until(lambda: group.committed([TopicPartition(name, 0)], timeout=5)[0].offset == 5)
    group.close()


def test_restart_continues_from_the_checkpoint(cluster, topic, tmp_path):
    name = topic(2)
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    cluster.produce(name, range(10), partition=lambda v: v % 2)
    assert sorted(values(run(source, **options))) == list(range(10))
    cluster.produce(name, range(10, 25), partition=lambda v: v % 2)
    assert sorted(values(run(source, **options))) == list(range(25))


def test_broker_is_killed_while_a_run_reads(tmp_path):
    with Moto() as store, Tansu(store=store) as broker:
        cluster = Cluster(broker.servers)
        name = cluster.create("kept", 2)
        cluster.produce(name, range(40), partition=lambda v: v % 2)
        source = KafkaSource(servers=broker.servers, topics=name, timeout="30s")
        found: list[int] = []

        def keep(stream, batch):
            found.extend(values(batch.to_pylist()))
            if len(found) >= 80:
                raise InterruptedError

        def read():
            with pytest.raises(InterruptedError):
                copy_flow(source).run(source, sinks=ro.CallbackSink(keep))

        flow = threading.Thread(target=read)
        flow.start()
        until(lambda: len(found) == 40)
        broker.kill()
        broker.start()
        Cluster(broker.servers).produce(name, range(40, 80), partition=lambda v: v % 2)
        flow.join(30)
        assert not flow.is_alive() and sorted(found) == list(range(80))


def test_slow_sink_bounds_memory(cluster, topic):
    name = topic(1)
    cluster.produce(name, [bytes(200_000)] * 100)
    source = KafkaSource(servers=cluster.servers, topics=name, max_queued_bytes=1 << 20)
    at = source.initial()
    until(lambda: source.latest(at, 1) != at)
    follower = source._run._follower
    assert follower is not None and sum(len(c.messages) for c in follower._chunks) == 1
    total = 0
    while total < 100:
        end = source.latest(at, 1)
        total += sum(b.num_rows for split in source.splits(at, end, 1) for b in source.read(split))
        at = end
    source.close()


def test_queue_of_the_client_holds_max_queued_bytes():
    with Tansu() as broker:
        cluster = Cluster(broker.servers)
        cluster.produce(cluster.create("a"), [bytes(100_000)] * 120)
        source = KafkaSource(
            servers=broker.servers,
            topics="a",
            max_queued_bytes=1 << 20,
            client_options={"fetch.message.max.bytes": 200_000},  # a fetch ends above the limit
        )
        at = source.initial()
        until(lambda: source.latest(at, 1) != at)
        time.sleep(1.0)  # it would fetch all 12 MB
        broker.kill()
        held, ends = 0, time.monotonic() + 2
        while time.monotonic() < ends:  # only what it holds can be read now
            end = source.latest(at, 10)
            held += sum(b.num_rows for split in source.splits(at, end, 1) for b in source.read(split))
            at = end
        source.close()
        assert 0 < held <= 40  # with fetches that were under way


def test_copies_of_other_processes_share_no_client(cluster, topic):
    name = topic(1)
    cluster.produce(name, range(3))
    source = KafkaSource(servers=cluster.servers, topics=name)
    start = source.initial()
    split = source.splits(start, source.latest(start), 1)[0]
    other = pickle.loads(pickle.dumps(source))
    assert other == source
    assert [b.to_pylist() for b in other.read(split)] == [b.to_pylist() for b in source.read(split)]
    other.close()
    source.close()


def test_limits_advance_partitions_together(cluster, topic):
    name = topic(2)
    cluster.produce(name, range(40), partition=lambda v: 0 if v < 30 else 1)
    source = KafkaSource(servers=cluster.servers, topics=name)
    start = source.initial()
    source.latest(start)  # a planner asks without a limit first
    source._run._is_planner = True
    assert source.latest(start, 8) == {name: {"0": 6, "1": 2}}


def test_end_is_that_of_the_beginning_of_the_run(cluster, topic):
    name = topic(1)
    cluster.produce(name, range(5))
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest")
    start = source.initial()
    end = source.latest(start)
    cluster.produce(name, range(5, 9))
    assert end == source.latest(start) == {name: {"0": 5}} and source.finished(end)
    assert not source.waits() and KafkaSource(servers=cluster.servers, topics=name).waits()


def test_missing_topic_and_unreachable_broker(cluster):
    with pytest.raises(ro.ConnectorError, match=r"the topic 'no-such' does not exist.*create it"):
        KafkaSource(servers=cluster.servers, topics="no-such").initial()
    with pytest.raises(ro.ConnectorError, match=r"(?s)Kafka at localhost:1: .*is the broker running"):
        KafkaSource(servers="localhost:1", topics="a", timeout="500ms").initial()


def test_time_where_a_run_begins():
    """On librdkafka's own cluster, which answers questions for times."""
    owner = Producer({"bootstrap.servers": "localhost:1", "test.mock.num.brokers": 1, "log_level": 0})
    servers = ",".join(f"{b.host}:{b.port}" for b in owner.list_topics(timeout=10).brokers.values())
    for i in range(6):
        owner.produce("times", str(i), partition=0, timestamp=1_700_000_000_000 + i * 1000)
        assert owner.flush(10) == 0
    zone = dt.timezone(dt.timedelta(hours=1))
    late = dt.datetime(2030, 1, 1, tzinfo=zone)
    source = KafkaSource(servers=servers, topics="times", starting_offsets=late)
    assert source.initial()["times"]["0"] == 6
