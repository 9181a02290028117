"""The source with a real broker."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import ConfigError, ConnectorError, Secret
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.spool import Spool
from riot_ops.streams.riotbench.city import CitySource
from tests.connectors.conftest import PASSWORD
from tests.connectors.mqtt.tools import Wire, apply, records, until

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def subscribe(tmp_path):
    """Creates sources, and closes them after the test."""
    sources = []

    def make(url, topics=("#",), **more):
        name = f"client-{os.urandom(4).hex()}"
        one = MQTTSource(**{"url": url, "topics": topics, "client_id": name, "spool": str(tmp_path / name), **more})
        one.open()
        sources.append(one)
        return one

    yield make
    for one in sources:
        one.close()


def publish(url, topic, batch, **more):
    out, rejects = apply(t.PublishMQTT(url=url, topic=topic, **more), batch)
    assert out.num_rows == batch.num_rows and not rejects


def read(source, start=None, end=None, n=1):
    start = source.initial() if start is None else start
    end = source.latest(start) if end is None else end
    batches = [b for split in source.splits(start, end, n) for b in source.read(split)]
    return pa.Table.from_batches(batches, source.schema)


def wait(source, n, seconds=30.0):
    until(lambda: source.latest({"seq": 0})["seq"] >= n, seconds)
    return read(source, {"seq": 0})


# -- delivery ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_arrive_once_and_in_order(mosquitto, subscribe, qos, protocol):
    topic = f"arrive/{qos}/{protocol}"
    source = subscribe(mosquitto.url, (topic,), qos=qos, protocol=protocol)
    before = dt.datetime.now(dt.UTC)
    publish(mosquitto.url, topic, records(700), qos=2)
    table = wait(source, 700)
    assert table["payload"].to_pylist() == records(700)["payload"].to_pylist()
    assert table["seq"].to_pylist() == list(range(700))
    assert set(table["topic"].to_pylist()) == {topic}
    assert before <= min(table["event_time"].to_pylist()) <= dt.datetime.now(dt.UTC)
    assert table.schema.equals(source.schema)


def test_ranges_replay_exactly(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("replay",))
    publish(mosquitto.url, "replay", records(1000))
    whole = wait(source, 1000)
    assert source.latest({"seq": 10}, 25) == {"seq": 35} and source.count({"seq": 10}, {"seq": 35}) == 25
    twin = pickle.loads(pickle.dumps(source))
    for a, b, n in ((0, 1000, 7), (13, 14, 3), (500, 731, 2)):
        assert read(twin, {"seq": a}, {"seq": b}, n).equals(whole.slice(a, b - a))
    source.commit({"seq": 400})
    assert read(twin, {"seq": 400}, {"seq": 1000}).equals(whole.slice(400))
    source.close()
    source.open()
    assert source.initial() == {"seq": 400} and source.latest(source.initial()) == {"seq": 1000}
    assert read(source).equals(whole.slice(400))


def test_unicode_topics_and_large_payloads(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("große/+/🌡/#",))
    data = os.urandom(1 << 20)
    batch = pa.RecordBatch.from_pydict({"k": ["ä", "日本"], "payload": [data, "naïve ☂".encode()]})
    publish(mosquitto.url, "große/{k}/🌡/x", batch)
    table = wait(source, 2)
    assert table["topic"].to_pylist() == ["große/ä/🌡/x", "große/日本/🌡/x"]
    assert table["payload"].to_pylist() == batch["payload"].to_pylist()


def test_event_time_from_a_property(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("times",), time_property="t")
    times = [
        "1700000000123456",
        "2023-11-14T22:13:20.123456Z",
        "2023-11-14T23:13:20.5+01:00",
        "-5",
        "soon",
        "9" * 30,
        None,
    ]
    batch = pa.RecordBatch.from_pydict({"t": pa.array(times, pa.string()), "payload": ["x"] * len(times)})
    publish(mosquitto.url, "times", batch, user_properties=("t",))
    found = wait(source, len(times))["event_time"].cast(pa.int64()).to_pylist()
    assert found == [1700000000123456, 1700000000123456, 1700000000500000, -5, None, None, None]


def test_retained_messages_arrive_once(mosquitto, subscribe):
    publish(mosquitto.url, "retained/{seq}", records(3), retain=True)
    source = subscribe(mosquitto.url, ("retained/#",))
    assert wait(source, 3)["payload"].to_pylist() == [b"m0", b"m1", b"m2"]
    source.close()
    source.open()
    publish(mosquitto.url, "retained/x", records(1, "last"))
    assert wait(source, 4)["payload"].to_pylist() == [b"m0", b"m1", b"m2", b"last0"]


def test_restart_changes_the_topics(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("first/#", "both"))
    source.close()
    changed = subscribe(mosquitto.url, ("both", "second"), client_id=source.client_id, spool=source.spool)
    for topic in ("first/a", "both", "second"):
        publish(mosquitto.url, topic, records(1, topic))
    assert wait(changed, 2)["topic"].to_pylist() == ["both", "second"], "and the broker sends them in this order"


def test_messages_with_known_identity_are_dropped(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("ids",), id_properties=("who", "seq"))
    batch = records(50).append_column("who", pa.array(["a"] * 50))
    for _ in range(2):  # as after a restart
        publish(mosquitto.url, "ids", batch, user_properties=("who", "seq"))
    until(lambda: source.duplicates == 50)
    source.close()
    source.open()
    publish(mosquitto.url, "ids", batch, user_properties=("who", "seq"))
    publish(mosquitto.url, "ids", batch, user_properties=("seq",))  # without identity: not dropped
    assert wait(source, 100)["payload"].to_pylist() == batch["payload"].to_pylist() * 2
    assert source.duplicates >= 50, (
        "and messages that the broker sends again because they were not acknowledged before the close"
    )


# -- restarts ----------------------------------------------------------------------------------------


def test_broker_queues_messages_for_a_closed_source(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("away",))
    publish(mosquitto.url, "away", records(10, "a"))
    wait(source, 10)
    source.close()
    publish(mosquitto.url, "away", records(500, "b"))
    source.open()
    assert wait(source, 510)["payload"].to_pylist()[10:] == records(500, "b")["payload"].to_pylist()


@pytest.mark.parametrize("qos", [1, 2])
def test_no_message_is_lost_when_connections_break(mosquitto, subscribe, short_pauses, qos):
    """QoS 2 gives each message once."""
    n, topic, rng = 2000, f"rx-cuts/{qos}", random.Random(qos)
    wire = Wire(mosquitto.url)
    source = subscribe(wire.url, (topic,), qos=qos, max_in_flight=100)
    publisher = threading.Thread(target=publish, args=(mosquitto.url, topic, records(n)), kwargs={"qos": 2})
    publisher.start()
    while wire.cuts < 8 and source.latest({"seq": 0})["seq"] < n:
        before = wire.bytes
        until(lambda: wire.bytes > before + rng.randrange(1000, 8000) or source.latest({"seq": 0})["seq"] >= n)  # noqa: B023
        wire.cut()
    publisher.join()
    until(lambda: len(set(read(source)["payload"].to_pylist())) == n)
    repeated = read(source).num_rows - n
    assert wire.cuts >= 3
    print(f"QoS {qos}: {repeated} of {n} messages came again, {wire.cuts} cuts")
    # the broker sends more than max_in_flight at once, see its issue tracker: no bound can be asserted with QoS 1
    assert qos == 1 or repeated == 0
    wire.close()


def test_closed_source_has_its_acknowledgements_read(mosquitto, subscribe):
    """The broker sends the messages again if the client connects again before it has read their acknowledgements."""
    wire = Wire(mosquitto.url)
    source = subscribe(wire.url, ("acknowledged",))
    publish(mosquitto.url, "acknowledged", records(50))
    wire.delay = 0.2
    wait(source, 50)
    source.close()
    wire.delay = 0.0
    source.open()
    publish(mosquitto.url, "acknowledged", records(1, "last"))
    assert wait(source, 51)["payload"].to_pylist()[50:] == [b"last0"]
    source.close()
    wire.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_message_is_lost_when_the_broker_restarts(own_mosquitto, subscribe, how):
    broker, n = own_mosquitto, 3000
    source = subscribe(broker.url, ("load",), timeout="30s")
    source.close()
    publish(broker.url, "load", records(n))
    if how == "kill":
        published, saved = time.time(), broker.folder / "data" / "mosquitto.db"
        until(lambda: saved.exists() and saved.stat().st_mtime > published)
    source.open()
    until(lambda: source.latest({"seq": 0})["seq"] > 200)
    getattr(broker, how)()
    time.sleep(0.2)
    broker.start()
    until(lambda: len(set(read(source)["payload"].to_pylist())) == n)
    publish(broker.url, "load", records(5, "after"))
    until(lambda: len(set(read(source)["payload"].to_pylist())) == n + 5)


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_process_loses_no_message(mosquitto, tmp_path, qos):
    n = 1500
    command = [sys.executable, "-m", "tests.connectors.mqtt.killed_job", mosquitto.url, str(tmp_path), str(n), str(qos)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes) as jobs:
        too_long = threading.Timer(90, os.killpg, (jobs.pid, signal.SIGKILL))
        too_long.start()

        def started():
            jobs.stdin.write("start\n")
            return int(jobs.stdout.readline())

        job, rng = started(), random.Random(5)
        until((tmp_path / "spool" / "subscription.json").exists)
        publisher = threading.Thread(target=publish, args=(mosquitto.url, "job/x", records(n)), kwargs={"qos": 2})
        publisher.start()
        for _ in range(3):
            time.sleep(rng.uniform(0.02, 0.1))
            os.kill(job, signal.SIGKILL)
            assert int(jobs.stdout.readline()) == -signal.SIGKILL, "it was over before it could be killed"
            job = started()
        publisher.join()
        assert int(jobs.stdout.readline()) == 0
        too_long.cancel()

    def payloads():
        files = sorted((tmp_path / "out" / "raw").glob("part-*.parquet"))
        return [v for f in files for v in pq.read_table(f)["payload"].to_pylist()]

    if qos == 2:
        found = payloads()
        assert sorted(found) == sorted(records(n)["payload"].to_pylist()) and len(found) == n
    else:  # repeated messages are among those after which the run ends
        source = MQTTSource(url=mosquitto.url, topics=("job/#",), client_id="job-1", spool=str(tmp_path / "spool"))
        source.open()
        found = payloads()
        assert len(found) == n
        until(lambda: len({*found, *read(source)["payload"].to_pylist()}) == n)
        assert len(found) - len(set(found)) <= 3 * 500
        source.close()


# -- bounds ------------------------------------------------------------------------------------------


def test_full_spool_stops_acknowledgements(mosquitto, subscribe):
    """Nothing is acknowledged while the spool is full, and nothing is lost."""
    source = subscribe(mosquitto.url, ("flood",), max_spool_bytes=4 << 20, max_in_flight=20)
    n, size = 240, 100_000
    batch = pa.RecordBatch.from_pydict({"payload": [f"{i:06d}".encode() * (size // 6) for i in range(n)]})
    publish(mosquitto.url, "flood", batch)
    time.sleep(1.0)
    folder = Path(source.spool)

    def used():
        return sum(f.stat().st_size for f in folder.glob("*.spool"))

    assert source.latest({"seq": 0})["seq"] < n and used() < 3 * (4 << 20)
    found, offset = [], source.initial()
    until_time = time.monotonic() + 60
    while len(found) < n and time.monotonic() < until_time:
        end = source.latest(offset, 7)
        found += read(source, offset, end)["payload"].to_pylist()
        source.commit(end)
        offset = end
        assert used() < 3 * (4 << 20)
    assert found == batch["payload"].to_pylist()


def test_source_ends_by_count_and_by_idle_time(mosquitto, subscribe):
    flow = ro.Dataflow("f")
    source = subscribe(mosquitto.url, ("end/a",), messages=30)
    flow.sink("out", flow.source("raw", schema=source.schema))
    publish(mosquitto.url, "end/a", records(50))
    assert flow.run(source)["raw"].num_rows == 30
    idle = subscribe(mosquitto.url, ("end/b",), idle="600ms")
    publish(mosquitto.url, "end/b", records(20))
    start = time.monotonic()
    assert flow.run(idle)["raw"].num_rows == 20
    assert time.monotonic() - start >= 0.5


def test_run_continues_at_its_checkpoint(mosquitto, subscribe, tmp_path):
    flow = ro.Dataflow("f")
    source = subscribe(mosquitto.url, ("again",), idle="500ms")
    flow.sink("out", flow.source("raw", schema=source.schema))
    for part, checkpoint in (("a", tmp_path / "c"), ("b", tmp_path / "c")):
        publish(mosquitto.url, "again", records(15, part))
        result = flow.run(source, checkpoint=checkpoint)
        assert result["raw"]["payload"].to_pylist() == records(15, part)["payload"].to_pylist()


def test_run_commits_to_the_spool(mosquitto, subscribe):
    flow = ro.Dataflow("f")
    source = subscribe(mosquitto.url, ("empty",), messages=40)
    flow.sink("out", flow.source("raw", schema=source.schema))
    publish(mosquitto.url, "empty", records(40))
    flow.run(source)
    assert source.initial() == {"seq": 40}


# -- errors -----------------------------------------------------------------------------------------


def test_connection_errors_reach_the_reader(secured, subscribe, certificates, tmp_path):
    base = {"topics": ("#",), "client_id": "x", "timeout": "1s"}
    for name, more in {
        "refuses the login": {"url": secured.url, "username": "riot", "password": Secret("wrong-one")},
        "certificate": {"url": secured.tls},
        "refuses connections": {"url": "mqtt://127.0.0.1:1"},
        "unknown": {"url": "mqtt://no.such.host.invalid"},
    }.items():
        source = MQTTSource(**base, **more, spool=str(tmp_path / name))
        with pytest.raises(ConnectorError, match=name) as caught:
            source.latest(source.initial())
        assert "wrong-one" not in str(caught.value)
        source.close()
    good = subscribe(
        secured.wss, username=secured.user, password=Secret(PASSWORD), ca_file=str(certificates / "ca.crt")
    )
    assert PASSWORD not in repr(good) + repr(vars(good))
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConnectorError, match="cannot be opened"):
        MQTTSource(**base, url=secured.url, spool=str(blocked / "x")).open()


def test_spool_is_free_after_a_refused_login(secured, tmp_path):
    common = {"url": secured.url, "topics": ("#",), "client_id": "x", "spool": str(tmp_path / "s"), "timeout": "1s"}
    with pytest.raises(ConnectorError, match="refuses the login"):
        MQTTSource(**common, username=secured.user, password=Secret("wrong-one")).open()
    with contextlib.closing(MQTTSource(**common, username=secured.user, password=Secret(PASSWORD))) as source:
        source.open()


def test_lost_broker_is_an_error(own_mosquitto, subscribe):
    source = subscribe(own_mosquitto.url, timeout="1s")
    own_mosquitto.kill()
    with pytest.raises(ConnectorError, match="refuses connections"):
        until(lambda: source.latest({"seq": 0}) and False, 20)


def test_spool_has_one_writer(mosquitto, subscribe, monkeypatch):
    source = subscribe(mosquitto.url)
    monkeypatch.setattr("riot_ops.connectors.mqtt.spool.LOCK_TIMEOUT_S", 0.1)
    with pytest.raises(ConfigError, match="in use by another source"):
        subscribe(mosquitto.url, spool=source.spool)
    with pytest.raises(ConnectorError, match="in use by another process"):
        Spool(Path(source.spool), 4 << 20)


@pytest.mark.parametrize("same", [True, False], ids=["equal", "other"])
def test_second_source_on_a_spool_does_not_close_the_first(mosquitto, subscribe, same):
    first = subscribe(mosquitto.url, ("second",))
    second = dataclasses.replace(first) if same else dataclasses.replace(first, qos=2)
    if same:
        second.open()
    second.close()
    second.close()
    publish(mosquitto.url, "second", records(3))
    wait(first, 3)
    first.close()
    with contextlib.closing(Spool(Path(first.spool), 4 << 20)):  # now it is free
        pass


def test_forgotten_source_does_not_hold_its_spool(mosquitto, subscribe):
    first = subscribe(mosquitto.url, ("forgotten",))
    second = dataclasses.replace(first)
    second.open()
    del second
    first.close()
    with contextlib.closing(Spool(Path(first.spool), 4 << 20)):
        pass


def test_one_of_two_clients_with_the_same_id_fails(mosquitto, subscribe, short_pauses):
    """One gives way, instead of driving the other one out again and again."""
    twins = [subscribe(mosquitto.url, ("twins",))]
    twins.append(subscribe(mosquitto.url, ("twins",), client_id=twins[0].client_id))
    lost = []

    def one_fails():
        for twin in twins:
            try:
                twin.latest({"seq": 0})
            except ConnectorError as error:
                assert "another client" in str(error)
                lost.append(twin)
        return bool(lost)

    until(one_fails, 60)
    assert len(lost) == 1
    publish(mosquitto.url, "twins", records(5))
    [other] = [twin for twin in twins if twin is not lost[0]]
    wait(other, 5)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_overlapping_filters_deliver_once(mosquitto, subscribe, qos):
    source = subscribe(mosquitto.url, ("over/+/a", "over/#", "$share/g/over/#", "over/1/a"), qos=qos)
    for topic in ("over/1/a", "over/2/a", "over/3", "over/1/a"):
        publish(mosquitto.url, topic, records(1), qos=qos)
    publish(mosquitto.url, "over/end", records(1), qos=qos)
    wait(source, 5)
    time.sleep(0.1)
    assert read(source)["topic"].to_pylist() == ["over/1/a", "over/2/a", "over/3", "over/1/a", "over/end"]


def test_messages_queued_before_other_topics_are_kept(mosquitto, subscribe):
    """The broker holds them with the identifiers of the earlier filters."""
    source = subscribe(mosquitto.url, ("queued/#", "other"))
    source.close()
    publish(mosquitto.url, "queued/1", records(3))
    again = subscribe(mosquitto.url, ("queued/1", "queued/#"), client_id=source.client_id, spool=source.spool)
    wait(again, 3)


def test_client_id_clash_is_logged_once_with_its_cause(mosquitto, subscribe, short_pauses, caplog):
    """Another client that begins clean sessions drives the source out (MQTT 3.1.1 does not say why)."""
    from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv311

    source = subscribe(mosquitto.url, ("clash",), protocol="3.1.1")

    def displace():
        other = Client(CallbackAPIVersion.VERSION2, source.client_id, clean_session=True, protocol=MQTTv311)
        other.connect("127.0.0.1", int(mosquitto.url.rsplit(":", 1)[1]))
        for _ in range(5):
            other.loop(0.02)
        other.disconnect()
        try:
            source.latest({"seq": 0})
        except ConnectorError as error:
            assert "does another client use the client_id" in str(error)
            return True
        return False

    until(displace)
    lost = [r.getMessage() for r in caplog.records if "has lost the session" in r.getMessage()]
    assert len(lost) == 1
    assert lost[0].startswith(f"does another client use the client_id {source.client_id!r}?")


def test_lost_session_is_logged(own_mosquitto, subscribe, caplog):
    source = subscribe(own_mosquitto.url, ("told",), timeout="20s")
    own_mosquitto.kill()
    (own_mosquitto.folder / "data" / "mosquitto.db").unlink(missing_ok=True)
    own_mosquitto.start()
    until(lambda: "has lost the session" in caplog.text)

    def arrived():
        publish(own_mosquitto.url, "told", records(5))  # those from before the new subscription are lost
        return source.latest({"seq": 0})["seq"] >= 5

    until(arrived)


def test_outage_does_not_count_as_idle_time(own_mosquitto, subscribe):
    source = subscribe(own_mosquitto.url, ("idle",), idle="500ms", timeout="20s")
    own_mosquitto.stop()
    time.sleep(0.8)
    assert source.latest({"seq": 0}) == {"seq": 0}
    own_mosquitto.start()
    until(lambda: source.finished(source.latest({"seq": 0})), 10)


def test_lost_spool_is_an_error(mosquitto, subscribe):
    source = subscribe(mosquitto.url, ("lost",))
    with pytest.raises(ConnectorError, match="has 0 messages, but the run continues after 12"):
        source.latest({"seq": 12})
    with pytest.raises(ConnectorError, match="does not hold the messages 3 to 4"):
        read(source, {"seq": 3}, {"seq": 5})


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"client_id": None}, "client_id"),
        ({"topics": ()}, "topics"),
        ({"topics": ("a/#/b",)}, "topic filter"),
        ({"topics": ("a+/b",)}, "topic filter"),
        ({"topics": ("",)}, "topic filter"),
        ({"topics": ("$share/g",)}, "GROUP/FILTER"),
        ({"topics": ("$share//a",)}, "GROUP/FILTER"),
        ({"topics": ("$share/+/a",)}, "GROUP/FILTER"),
        ({"topics": ("$share/g/",)}, "GROUP/FILTER"),
        ({"qos": 5}, "qos"),
        ({"max_spool_bytes": 1000}, "max_spool_bytes"),
        ({"idle": "0s"}, "idle must be > 0"),
        ({"idle": 5}, "idle = 5: must be a timedelta or a text such as"),
        ({"session_expiry": "1.5s"}, "session_expiry must be a whole number of seconds"),
        ({"messages": 0}, "messages"),
        ({"protocol": "3.1.1", "id_properties": ("a",)}, "protocol"),
        ({"password": "hunter2"}, "Secret"),
    ],
)
def test_invalid_parameters_are_refused(tmp_path, parameters, text):
    with pytest.raises(ConfigError, match=text) as caught:
        MQTTSource(
            **{"url": "mqtt://h", "topics": ("a",), "client_id": "c", "spool": str(tmp_path / "s"), **parameters}
        )
    assert "hunter2" not in str(caught.value)


# -- in dataflows --------------------------------------------------------------------------------------


def test_messages_survive_publisher_broker_and_parser(mosquitto, subscribe):
    """CITY messages are unchanged after the broker."""
    city = CitySource(20, 400)
    flow = ro.Dataflow("f")
    source = subscribe(mosquitto.url, ("city",), messages=400)
    flow.sink("out", flow.source("raw", schema=source.schema).to(t.ParseSenML(schema="city"), id="parsed"))
    lines = city.lines(0, 400)
    publish(mosquitto.url, "city", lines)
    result = flow.run(source)
    assert result.errors.num_rows == 0
    wanted = t.ParseSenML(schema="city").session().push_batch(lines)
    assert result["parsed"].to_pylist() == wanted.drop_columns(["ordinal"]).to_pylist()


def test_task_list_shows_the_source():
    code = "from riot_ops.cli import main as cli\nfor a in (['tasks', '--json'], ['show', 'MQS']): cli.app(a, standalone_mode=False)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"code": "MQS"' in done.stdout and '"code": "MQP"' in done.stdout
    assert "durable spool" in done.stdout


def test_source_of_a_memory_broker(tmp_path):
    broker = MemoryBroker.of("memory://m")
    broker.publish("kept", b"0", retain=True)
    source = MQTTSource(
        url="memory://m", topics=("a/+", "kept"), client_id="c", spool=str(tmp_path / "s"), messages=4, idle="5s"
    )
    source.open()
    apply(t.PublishMQTT(url="memory://m", topic="a/{seq}"), records(3))
    broker.publish("b/x", b"no")
    assert wait(source, 4)["payload"].to_pylist() == [b"0", b"m0", b"m1", b"m2"]
    source.close()
    broker.publish("a/1", b"while away")
    endless = dataclasses.replace(source, messages=None)
    endless.open()
    assert wait(endless, 5)["payload"].to_pylist()[4:] == [b"while away"]
    endless.close()
