"""Parameters, secrets and errors of connections."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import riot_ops as ro
from riot_ops.connectors import KafkaSink, KafkaSource
from riot_ops.core.secret import Secret
from riot_ops.testing.services import Tansu
from tests.connectors.conftest import PASSWORD
from tests.connectors.kafka.tools import TLSProxy, read_all, until

SASL = {"servers": "a:1", "topics": "t", "security_protocol": "sasl_ssl", "username": "u"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": ()}, "servers must not be empty"),
        ({"servers": "host"}, "servers must be 'host:port' each, as 'localhost:9092', got 'host'"),
        ({"servers": "host:0"}, "servers must be 'host:port'"),
        ({"servers": "http://host:1"}, "servers must be 'host:port'"),
        ({"ca_file": "x"}, "ca_file needs security_protocol 'ssl' or 'sasl_ssl', got 'plaintext'"),
        ({"username": "x"}, "username needs security_protocol 'sasl_ssl'"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism needs security_protocol"),
        ({"security_protocol": "ssl", "private_key": "k"}, "private_key = 'k' needs certificate"),
        ({"security_protocol": "tls"}, "security_protocol = 'tls': must be 'plaintext' or 'ssl'"),
        ({"sasl_mechanism": "MD5"}, "sasl_mechanism = 'MD5': must be 'PLAIN'"),
        ({"client_id": ""}, "client_id must not be empty"),
        ({"timeout": "0s"}, "timeout"),
        ({"client_options": [1]}, "client_options must be a mapping"),
        ({"client_options": {"bootstrap.servers": "b:1"}}, "must not hold 'bootstrap.servers', which servers makes"),
        ({"client_options": {"auto.offset.reset": "latest"}}, "'auto.offset.reset', which on_missing_offset makes"),
        ({"client_options": {"ssl.key.password": "pw"}}, r"\['ssl.key.password'\] must be a Secret"),
        ({"client_options": {"sasl.oauthbearer.config": "secret=x"}}, r"oauthbearer.config'\] must be a Secret"),
        (
            {"client_options": {"sasl.oauthbearer.token.endpoint.url": "https://u:pw@h/t"}},
            r"endpoint.url'\] must be a Secret",
        ),
        ({"client_options": {"fetch.min.bytes": None}}, r"\['fetch.min.bytes'\] must be a text"),
        ({"client_options": {"no.such.option": 1}}, 'client_options: No such configuration property: "no.such.option"'),
        ({"client_options": {"fetch.min.bytes": "many"}}, "client_options: Invalid value"),
        ({"topics": ()}, "needs either topics, or topic_pattern"),
        ({"topic_pattern": "a.*"}, "needs either topics, or topic_pattern"),
        ({"topics": (), "topic_pattern": "("}, "topic_pattern = '.' is not a regular expression"),
        ({"topics": ("a", "a")}, "topics must be different names"),
        ({"starting_offsets": "middle"}, "starting_offsets must be 'earliest', 'latest', a time with a zone"),
        ({"starting_offsets": "2026-01-01T00:00:00"}, "needs a zone"),
        ({"starting_offsets": {"t": {0: -1}}}, "partitions and offsets from 0 on"),
        ({"starting_offsets": {"x": {0: 1}}}, "names the topic 'x', which topics lacks: t"),
        ({"starting_offsets": {"t": 5}}, "starting_offsets must be"),
        ({"max_queued_bytes": 5}, "max_queued_bytes"),
        ({"discovery_interval": "0s"}, "discovery_interval"),
        ({"group_id": ""}, "group_id must not be empty"),
    ],
)
def test_misuse_is_refused_at_construction(options, message):
    with pytest.raises(ro.ConfigError, match=message):
        KafkaSource(**{"servers": "a:1", "topics": "t"} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": "a", "payload": "b"}, "give payload=None"),
        ({"topic": "{a"}, "malformed"),
        ({"topic": "a-{b}", "transactional": True}, "needs a topic without fields"),
        ({"client_options": {"acks": 1}}, "must not hold 'acks', which the sink makes"),
        ({"client_options": {"linger.ms": "long"}}, "client_options: Invalid value"),
    ],
)
def test_misuse_of_the_sink_is_refused_at_construction(options, message):
    with pytest.raises(ro.ConfigError, match=message):
        KafkaSink(**{"servers": "a:1", "topic": "t"} | options)


def test_secrets_are_never_shown():
    secret = "pa55-never-shown"
    source = KafkaSource(
        **SASL, password=Secret(secret), client_options={"ssl.key.password": Secret(secret), "fetch.min.bytes": 5}
    )
    assert secret not in repr(source) + str(vars(source)) and source.description() is None
    settings = source.settings()
    assert settings["sasl.password"] == settings["ssl.key.password"] == secret and settings["fetch.min.bytes"] == 5
    named = KafkaSource(**SASL, password=Secret.env("NAME"), client_options={"ssl.key.password": Secret.env("KEY")})
    described = named.description()
    assert described["password"] == {"env": "NAME"} and described["client_options"]["ssl.key.password"] == {
        "env": "KEY"
    }
    assert pickle.loads(pickle.dumps(named)) == named


def test_settings_of_every_parameter(monkeypatch):
    monkeypatch.setenv("RIOT_OPS_KAFKA_USERNAME", "from-environment")
    monkeypatch.setenv("RIOT_OPS_KAFKA_PASSWORD", "pw")
    source = KafkaSource(
        servers=["a:1", "b:2"], topics="t", security_protocol="sasl_ssl", sasl_mechanism="SCRAM-SHA-256", ca_file="ca",
        certificate="cert", client_id="me",
    )  # fmt: skip
    assert source.settings() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "sasl_ssl",
        "client.id": "me",
        "socket.connection.setup.timeout.ms": 30_000,
        "reconnect.backoff.max.ms": 1000,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "from-environment",
        "sasl.password": "pw",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "cert",
        "ssl.key.location": "cert",
    }
    monkeypatch.delenv("RIOT_OPS_KAFKA_PASSWORD")
    with pytest.raises(ro.ConfigError, match="RIOT_OPS_KAFKA_USERNAME and RIOT_OPS_KAFKA_PASSWORD"):
        source.settings()


@pytest.mark.integration
def test_tls(certificates):
    proxy = TLSProxy(certificates)
    with Tansu(advertised=proxy.servers) as broker:
        proxy.target = ("127.0.0.1", int(broker.servers.split(":")[1]))
        options = {"servers": proxy.servers, "topic_pattern": "x.*", "timeout": "5s"}
        good = KafkaSource(**options, security_protocol="ssl", ca_file=str(certificates / "ca.crt"))
        assert good.initial() == {}
        sink = KafkaSink(servers=proxy.servers, topic="a", security_protocol="ssl", ca_file=good.ca_file, timeout="10s")
        admin = AdminClient(good.settings())
        admin.create_topics([NewTopic("xa", 1)])["xa"].result(10)
        writer = replace(sink, topic="xa").writer(0, 0)
        writer.write("out", pa.RecordBatch.from_pydict({"a": [1]}))
        writer.finish()
        assert [row["payload"] for row in read_all(good)] == [b'{"a":1}']
        with pytest.raises(
            ro.ConnectorError, match=r"(?s)Kafka at localhost.*certificate verify failed.*check ca_file"
        ):
            KafkaSource(**options, security_protocol="ssl").initial()
        with pytest.raises(ro.ConnectorError, match=r"(?s)does it talk the security_protocol\?"):
            KafkaSource(**options | {"timeout": "1s"}).initial()
        missing = KafkaSource(**options, security_protocol="ssl", ca_file="/no/such.pem")
        with pytest.raises(ro.ConnectorError, match=r"Kafka at .*: ca_file = '/no/such.pem' cannot be read"):
            missing.initial()


@pytest.mark.integration
def test_refused_login():
    with Tansu(authentication=True) as broker:
        source = KafkaSource(
            servers=broker.servers, topic_pattern="x.*", security_protocol="sasl_plaintext", username="nobody",
            sasl_mechanism="SCRAM-SHA-256", password=Secret(PASSWORD), timeout="5s",
        )  # fmt: skip
        with pytest.raises(ro.ConnectorError, match=r"check username, password and sasl_mechanism") as raised:
            source.initial()
        assert PASSWORD not in str(raised.value)


@pytest.mark.integration
def test_forked_process_does_not_wait_for_clients_of_its_parent(cluster, topic):
    name = topic()
    cluster.produce(name, range(3))
    source = KafkaSource(servers=cluster.servers, topics=name)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start), 1)
    assert sum(b.num_rows for b in source.read(split)) == 3  # a consumer is idle now
    child = os.fork()
    if not child:
        other = pickle.loads(pickle.dumps(source))
        source.__dict__.clear()
        rows = sum(b.num_rows for b in other.read(split))
        os._exit(0 if rows == 3 else 1)
    until(lambda: os.waitpid(child, os.WNOHANG) != (0, 0), 20)
    source.close()
