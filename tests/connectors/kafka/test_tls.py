"""Brokers that identify themselves and their clients by certificates."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops.connectors import KafkaSink, KafkaSource
from riot_ops.testing.services import Tansu
from tests.connectors.conftest import PASSWORD, write_certificates
from tests.connectors.kafka.tools import Cluster, TLSProxy, copy_flow, read_all

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Certificates of another authority."""
    return write_certificates(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def strict(certificates):
    """A broker that asks its clients for certificates; its address, as it is in the certificate."""
    proxy = TLSProxy(certificates, certificates / "ca.crt")
    with Tansu(advertised=proxy.servers) as broker:
        proxy.target = ("127.0.0.1", int(broker.servers.split(":")[1]))
        given = {"ca": "ca.crt", "certificate": "server.crt", "key": "server.key"}
        files = {f"ssl.{name}.location": str(certificates / file) for name, file in given.items()}
        Cluster(proxy.servers, **{"security.protocol": "ssl"}, **files).create("t", 1)
        yield proxy.servers


def options(servers, folder, **changed):
    return {"servers": servers, "security_protocol": "ssl", "timeout": "5s", "ca_file": str(folder / "ca.crt")} | {
        name: str(value) if name != "client_options" else value for name, value in changed.items()
    }


def write(given, topic="t"):
    flow = ro.Dataflow("tls")
    flow.sink("out", flow.source("raw", schema={"a": "int64"}))
    flow.run([{"a": 7}], sinks={"out": KafkaSink(topic=topic, fields="a", **given), "errors": ro.MemorySink()})


@pytest.mark.parametrize(
    "files",
    [
        {"certificate": "server.crt", "private_key": "server.key"},
        {"certificate": "both.pem"},
        {"certificate": "server.crt", "private_key": "locked.key", "locked": True},
    ],
    ids=["two files", "one file", "key with a password"],
)
def test_client_with_a_certificate_reads_and_writes(strict, certificates, files):
    given = {name: certificates / file for name, file in files.items() if name != "locked"}
    if "locked" in files:
        given["client_options"] = {"ssl.key.password": ro.Secret(PASSWORD)}
    given = options(strict, certificates, **given)
    source = KafkaSource(topics="t", starting_offsets="latest", **given)
    start = source.initial()
    write(given)
    assert [row["payload"] for split in source.splits(start, source.latest(start), 1) for b in source.read(split)
            for row in b.to_pylist()] == [b'{"a":7}']  # fmt: skip
    source.close()
    bounded = KafkaSource(topics="t", ending_offsets="latest", **given)
    assert copy_flow(bounded).run(bounded)["raw"].num_rows == len(read_all(bounded)) > 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "certificate required.*check ca_file, certificate and private_key"),
        ({"certificate": ("other", "both.pem")}, "check ca_file, certificate and private_key"),
        (
            {"certificate": ("own", "server.crt"), "private_key": ("other", "server.key")},
            "check ca_file, certificate and private_key .*belong together",
        ),
        ({"certificate": ("own", "server.crt"), "private_key": ("own", "none.key")}, "private_key = .* cannot be read"),
        ({"certificate": ("own", "server.crt")}, "ssl.key.*check ca_file, certificate and private_key"),
        ({"certificate": ("own", "both.pem"), "ca_file": ("other", "ca.crt")}, "verify failed.*check ca_file"),
    ],
    ids=["none", "of another authority", "another key", "no key file", "no key in the file", "wrong authority"],
)
def test_certificates_that_do_not_fit(strict, certificates, other, files, message):
    folders = {"own": certificates, "other": other}
    given = options(strict, certificates, **{name: folders[which] / file for name, (which, file) in files.items()})
    for run in (lambda: KafkaSource(topics="t", **given).initial(), lambda: write(given)):
        with pytest.raises(ro.ConnectorError, match=f"Kafka at {strict}: .*{message}"):
            run()


def test_key_whose_password_is_wrong(strict, certificates):
    files = {"certificate": certificates / "server.crt", "private_key": certificates / "locked.key"}
    word = "an0ther-never-shown"
    given = options(strict, certificates, **files, client_options={"ssl.key.password": ro.Secret(word)})
    with pytest.raises(
        ro.ConnectorError, match=f"Kafka at {strict}: .*check ca_file, certificate and private_key"
    ) as e:
        KafkaSource(topics="t", **given).initial()
    assert word not in str(e.value)


@pytest.mark.parametrize("made", [{"days": -1}, {"host": "elsewhere"}], ids=["expired", "another host"])
def test_certificates_of_brokers(tmp_path, made):
    folder = write_certificates(tmp_path, **made)
    proxy = TLSProxy(folder)
    with Tansu(advertised=proxy.servers) as broker:
        proxy.target = ("127.0.0.1", int(broker.servers.split(":")[1]))
        given = options(proxy.servers, folder)
        for run in (lambda: KafkaSource(topic_pattern="x.*", **given).initial(), lambda: write(given)):
            with pytest.raises(
                ro.ConnectorError, match=f"Kafka at {proxy.servers}: .*verify failed.*for this host, has not expired"
            ):
                run()
        unchecked = KafkaSource(
            topic_pattern="x.*", **given, client_options={"ssl.endpoint.identification.algorithm": "none"}
        )
        if "host" in made:  # what the option of librdkafka is for
            assert unchecked.initial() == {}
