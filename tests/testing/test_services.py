"""Servers start, restart and go away without a trace."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from riot_ops import ConnectorError
from riot_ops.testing.services import GCSEmulator, Mosquitto, Moto, Tansu, program

pytestmark = pytest.mark.integration
#: As the kernel writes 127.0.0.1, ::1 and ::ffff:127.0.0.1.
LOOPBACK = {"0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"}
ROOT = Path(__file__).resolve().parents[2]


def answers(url: str) -> bool:
    with socket.socket() as one:
        return one.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) == 0


def test_life_of_a_broker():
    with Mosquitto() as broker:
        first = broker.process.pid
        assert answers(broker.url) and answers(broker.ws) and not broker.tls
        broker.kill()
        assert not answers(broker.url)
        broker.start()
        assert broker.process.pid != first and answers(broker.url)
        folder = broker.folder
    assert not answers(broker.url) and not folder.exists()
    broker.close()


def test_given_folder_is_retained_and_reused(tmp_path):
    for _ in range(2):  # the second has ports of its own
        with Mosquitto(tmp_path / "broker") as broker:
            assert answers(broker.url)
            assert broker.log.parent == broker.folder == tmp_path / "broker"
    assert broker.log.exists()


def test_service_listens_on_loopback_only():
    with Mosquitto() as broker:
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                address, port = line.split()[1].split(":")
                if line.split()[3] == "0A" and int(port, 16) in broker.ports():
                    assert address in LOOPBACK, line


def test_failed_start_is_reported():
    broker = Mosquitto(options=("no_such_option true",))
    with pytest.raises(ConnectorError, match=r"(?s)does not start.*no_such_option"):
        broker.start()
    broker.close()


def test_missing_program_is_reported():
    with pytest.raises(ConnectorError, match="no-such-program is not installed: get it"):
        program("no-such-program", "get it")


def test_command_line():
    script = [sys.executable, str(ROOT / "tools" / "services.py")]
    process = subprocess.Popen([*script, "start", "mosquitto"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("MQTT: mqtt://127.0.0.1:") and answers(line.split()[1])
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0 and not answers(line.split()[1])
    done = subprocess.run([*script, "install", "no-such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "known are" in done.stderr
    assert subprocess.run([*script, "install", "mosquitto"], env=os.environ, check=False).returncode == 0


def test_missing_emulator_of_google_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConnectorError, match="pip install gcp-storage-emulator"):
        GCSEmulator().start()


def test_objects_of_a_store():
    with Moto() as store:
        assert store.create_bucket("readings") == "s3://readings"
        client = boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            aws_access_key_id=store.access_key,
            aws_secret_access_key=store.secret_key,
            region_name=store.region,
        )
        client.put_object(Bucket="readings", Key="a", Body=b"1")
        assert client.get_object(Bucket="readings", Key="a")["Body"].read() == b"1"


@pytest.mark.parametrize("durable", [False, True])
def test_topics_of_a_broker_outlive_it_in_a_store(durable):
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Tansu(store=stack.enter_context(Moto()) if durable else None))
        address = {"bootstrap.servers": broker.servers}
        producer, admin = Producer(address | {"enable.idempotence": True}), AdminClient(address)
        admin.create_topics([NewTopic("a", 2)])["a"].result(10)
        for i in range(20):
            producer.produce("a", str(i), partition=i % 2)
        assert producer.flush(10) == 0
        broker.kill()
        broker.start()
        assert ("a" in admin.list_topics(timeout=10).topics) == durable
        if durable:
            reader = Consumer(address | {"group.id": "g", "enable.auto.commit": False})
            reader.assign([TopicPartition("a", 0, 0), TopicPartition("a", 1, 0)])
            assert sorted(int(m.value()) for m in reader.consume(20, 10)) == list(range(20))
            reader.close()
