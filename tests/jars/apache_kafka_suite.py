"""What only Apache Kafka itself shows; ``make test-jars`` runs it with ``RIOT_OPS_JARS``."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

import riot_ops as ro
from riot_ops.connectors import KafkaSink, KafkaSource
from tests.connectors.conftest import PASSWORD, write_certificates
from tests.connectors.kafka.tools import Cluster, copy_flow, read_all, until
from tests.jars.kafka_cluster import KafkaCluster

ROOT = Path(__file__).resolve().parents[2]
JARS = Path(os.environ["RIOT_OPS_JARS"])


def values(rows):
    return [int(row["payload"]) for row in rows]


@pytest.fixture(scope="module")
def cluster():
    found = Cluster(os.environ["RIOT_OPS_TEST_KAFKA"])
    found.hides_aborted = True
    return found


@pytest.fixture
def topic(cluster):
    return cluster.create(f"own-{time.monotonic_ns()}", 1)


def test_aborted_and_open_transactions_are_left_out(cluster, topic):
    producer = Producer(cluster.settings | {"transactional.id": topic})
    producer.init_transactions(20)
    for i in range(4):
        producer.begin_transaction()
        producer.produce(topic, str(i), partition=0)
        producer.flush(20)
        if i == 3:
            break  # it stays open
        producer.abort_transaction(20) if i % 2 else producer.commit_transaction(20)
    source = KafkaSource(servers=cluster.servers, topics=topic, ending_offsets="latest", timeout="10s")
    assert values(copy_flow(source).run(source)["raw"].to_pylist()) == values(read_all(source)) == [0, 2]
    every = KafkaSource(
        servers=cluster.servers, topics=topic, ending_offsets="latest", isolation_level="read_uncommitted"
    )
    assert values(copy_flow(every).run(every)["raw"].to_pylist()) == [0, 1, 2, 3]
    producer.abort_transaction(20)
    # the end of the log is now after the marks of aborted transactions
    assert values(read_all(source)) == [0, 2]


@pytest.mark.parametrize("follows", [True, False])
def test_expired_offsets(cluster, topic, follows):
    cluster.produce(topic, range(10), batched=True)
    cluster.admin.delete_records([TopicPartition(topic, 0, 6)])
    until(lambda: KafkaSource(servers=cluster.servers, topics=topic).initial() == {topic: {"0": 6}})
    limit = 100 if follows else None

    def read(**options):
        source, found = KafkaSource(servers=cluster.servers, topics=topic, **options), []
        at, until_s = {topic: {"0": 2}}, time.monotonic() + 3
        while len(found) < 4 and time.monotonic() < until_s:
            end = source.latest(at, limit)
            found += [r for split in source.splits(at, end, 1) for b in source.read(split) for r in b.to_pylist()]
            at = end
        source.close()
        return values(found)

    with pytest.raises(
        ro.ConnectorError, match=r"offset 2 of the topic .* is gone: it has the offsets from 6 to 10; 4 me"
    ):
        read()
    assert read(on_missing_offset="earliest") == [6, 7, 8, 9]
    assert read(on_missing_offset="latest") == []


def test_compacted_topic_and_log_append_time(cluster):
    name = f"compacted-{time.monotonic_ns()}"
    cluster.create(
        name, 1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        message_timestamp_type="LogAppendTime", max_compaction_lag_ms="200", delete_retention_ms="0",
    )  # fmt: skip
    source = KafkaSource(servers=cluster.servers, topics=name, ending_offsets="latest", timeout="10s")
    cluster.produce(name, range(50), key=lambda v: f"k{v % 2}", timestamp=1)
    time.sleep(0.2)
    cluster.produce(name, range(50, 52), key=lambda v: f"k{v % 2}", timestamp=1)

    def compacted():
        time.sleep(0.3)
        cluster.produce(name, [99], key="other")  # rolls the segment
        return len(read_all(source)) < 40

    until(compacted, 30)
    rows = read_all(source)
    bare = cluster.read(name, 200)
    assert [(r["offset"], r["payload"]) for r in rows] == [(m.offset(), m.value()) for m in bare]
    assert {r["timestamp_type"] for r in rows} == {"log_append"}
    assert all(abs(r["event_time"].timestamp() - time.time()) < 600 for r in rows)


def test_start_at_a_time(cluster, topic):
    at = 1_700_000_000_000
    cluster.produce(topic, range(10), timestamp=lambda v: at + v * 1000)
    start = dt.datetime.fromtimestamp(at / 1000 + 6.5, dt.UTC)
    source = KafkaSource(servers=cluster.servers, topics=topic, starting_offsets=start, ending_offsets="latest")
    assert values(read_all(source)) == [7, 8, 9]
    late = KafkaSource(servers=cluster.servers, topics=topic, starting_offsets="2040-01-01T00:00:00Z")
    assert late.initial() == {topic: {"0": 10}}


def test_too_large_for_the_broker(cluster):
    name = cluster.create(f"small-{time.monotonic_ns()}", 1, max_message_bytes="1000")
    writer = KafkaSink(servers=cluster.servers, topic=name, payload="p").writer(0, 0)
    writer.write("out", pa.RecordBatch.from_pydict({"p": [os.urandom(5000)]}))
    with pytest.raises(ro.ConnectorError, match=r"cannot be written.*max\.message\.bytes of the topic"):
        writer.finish()


def test_three_brokers_are_killed_in_turn(tmp_path):
    """The run is killed too; consumers of committed messages see each record once."""
    n = 6000
    with KafkaCluster(JARS, 3) as brokers:
        cluster = Cluster(brokers.servers)
        until(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 3, 60)
        source, target = cluster.create("from", 3), cluster.create("to", 3)
        cluster.produce(source, range(n), batched=True, partition=lambda v: v % 3)
        job = [sys.executable, str(ROOT / "tests/connectors/kafka/killed_job.py")]
        job += [brokers.servers, source, target, str(tmp_path)]
        marker, said = tmp_path / "batches", tmp_path / "said"

        def begun() -> int:
            return len(marker.read_bytes()) if marker.exists() else 0

        def wait_for_batches(run: subprocess.Popen[bytes], n: int) -> None:
            """A run goes on over the loss of a broker."""
            end = begun() + n
            until(lambda: begun() >= end or run.poll() is not None, 120)
            assert run.poll() is None, said.read_text()[-2000:]

        for one in brokers.brokers:
            with said.open("w") as file:
                run = subprocess.Popen(job, stderr=file)
            wait_for_batches(run, 2)
            one.kill()
            wait_for_batches(run, 3)
            run.send_signal(signal.SIGKILL)
            run.wait()
            one.start()
            time.sleep(2)
        done = subprocess.run(job, check=False, timeout=120, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found = [int(m.value()) for m in cluster.read(target, 2 * n, 3, **{"isolation.level": "read_committed"})]
        assert len(found) == n and sorted(found) == list(range(n))
        follow_over_a_kill(brokers, cluster)


def follow_over_a_kill(brokers, cluster):
    """A run that reads goes on when the leader of its partition is killed."""
    name = cluster.create("followed", 1)
    source = KafkaSource(servers=brokers.servers.split(","), topics=name, timeout="60s")
    cluster.produce(name, range(100))
    found: list[int] = []

    def keep(stream, batch):
        found.extend(values(batch.to_pylist()))
        if len(found) >= 200:
            raise InterruptedError

    def read():
        with pytest.raises(InterruptedError):
            copy_flow(source).run(source, sinks=ro.CallbackSink(keep))

    flow = threading.Thread(target=read)
    flow.start()
    until(lambda: len(found) == 100)
    leader = cluster.admin.list_topics(name, timeout=10).topics[name].partitions[0].leader
    brokers.brokers[leader - 1].kill()
    Cluster(brokers.servers).produce(name, range(100, 200))
    flow.join(60)
    assert not flow.is_alive() and found == list(range(200))


def test_logins_over_connections_with_certificates(tmp_path):
    """Both mechanisms with passwords, over TLS with certificates on both sides; each thing that is wrong is named."""
    word = "abc-DEF-123"  # it stands in the broker's configuration
    mine, others = write_certificates(tmp_path / "mine"), write_certificates(tmp_path / "others")
    with KafkaCluster(JARS, certificates=mine, login=("plant", word)) as brokers:
        Cluster(brokers.servers).create("secured", 1)
        good = {
            "servers": brokers.brokers[0].secure, "security_protocol": "sasl_ssl", "username": "plant",
            "password": ro.Secret(word), "ca_file": str(mine / "ca.crt"), "certificate": str(mine / "both.pem"),
            "timeout": "20s",
        }  # fmt: skip
        flow = ro.Dataflow("secured")
        flow.sink("out", flow.source("raw", schema={"a": "int64"}))

        def write(n, **options):
            flow.run([{"a": n}], sinks=KafkaSink(**good | {"topic": "secured"} | options))

        write(1)
        write(2, sasl_mechanism="SCRAM-SHA-256")
        write(3, sasl_mechanism="SCRAM-SHA-256", transactional=True)
        source = KafkaSource(topics="secured", ending_offsets="latest", sasl_mechanism="SCRAM-SHA-256", **good)
        payloads = [row["payload"] for row in read_all(source)]
        assert [b'"a":%d' % n in one for n, one in enumerate(payloads, 1)] == [True, True, True]
        login, files = "check username, password", "check ca_file, certificate and private_key"
        for options, message in (
            ({"password": ro.Secret(PASSWORD)}, login),
            ({"password": ro.Secret(PASSWORD), "sasl_mechanism": "SCRAM-SHA-256"}, login),
            ({"username": "nobody", "sasl_mechanism": "SCRAM-SHA-256"}, login),
            ({"sasl_mechanism": "SCRAM-SHA-512"}, login),
            ({"certificate": None}, files),
            ({"certificate": str(others / "both.pem")}, files),
            ({"ca_file": str(others / "ca.crt")}, files),
        ):
            for run in (
                lambda o=options: KafkaSource(topics="secured", **good | o).initial(),
                lambda o=options: write(9, **o),
            ):
                with pytest.raises(ro.ConnectorError, match=f"Kafka at {good['servers']}: .*{message}") as found:
                    run()
                assert word not in str(found.value) and PASSWORD not in str(found.value)
