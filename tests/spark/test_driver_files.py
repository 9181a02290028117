"""Which files of the driver workers must see."""

from __future__ import annotations

import socket
from dataclasses import dataclass, fields

import pytest

import riot_ops as ro
from riot_ops import ConfigError, tables
from riot_ops import tasks as t
from riot_ops.connectors import HTTPSink, InfluxSink, KafkaSink, KafkaSource, MQTTSink, MQTTSource, PostgresSink
from riot_ops.core.source import WrappedSource
from riot_ops.spark import driver_files
from riot_ops.spark.driver_files import (
    FILE_PARAMETERS,
    FOLDER_PARAMETERS,
    check_driver_files,
    check_sources,
    files_of_options,
    files_of_tasks,
    servers_of,
    source_files,
)
from riot_ops.task import registered_tasks
from riot_ops.testing.parameter_table import PARAMETERS

#: Fields whose meaning speaks of files, but that name none of a machine.
OTHERS = {
    "folder": "a part of the names in a store",
    "wrapper": "a path within a record",
    "credential": "of a store",
    "blob": "a name in a store",
}


def found(task, schema=None):
    flow = ro.Dataflow("files")
    flow.sink("out", flow.source("raw", schema=schema or {"value": "double", "key": "string"}).to(task, id="step"))
    return [(one.path, one.what, one.marked) for one in files_of_tasks(flow)]


def test_parameters_that_name_files_are_known():
    kinds = [*registered_tasks(), tables.CSVTable, tables.KeyFile, tables.Networks, tables.RoadNetwork]
    names = {field.name for kind in [*kinds, tables.StoreTable] for field in fields(kind)}
    words = ("Path", "path", "Folder", "file", "File", "Address")
    speaking = {name for name in names if any(word in PARAMETERS.get(name, ("", ""))[1] for word in words)}
    assert speaking - FILE_PARAMETERS - FOLDER_PARAMETERS - OTHERS.keys() == set()
    assert (FILE_PARAMETERS | FOLDER_PARAMETERS) - names == set()


@pytest.mark.parametrize(
    ("task", "path", "parameter", "marked"),
    [
        (t.CheckBloomFilter(models={"key": "/a/keys.bloom"}), "/a/keys.bloom", "models", False),
        (t.PredictLinearRegression(inputs=("value",), model="/a/model.json"), "/a/model.json", "model", False),
        (t.PredictLinearRegression(inputs=("value",), model="M", store="/a/models"), "/a/models", "store", True),
        (t.PredictLinearRegression(inputs=("value",), model="M", store="file:///a%20b"), "/a b", "store", True),
        (t.Zip(to="/a/zips"), "/a/zips", "to", True),
        (t.PublishMQTT(url="file:///a/broker", topic="x", payload="key"), "/a/broker", "url", True),
        (t.PublishMQTT(url="mqtts://h", topic="x", payload="key", ca_file="/a/ca"), "/a/ca", "ca_file", False),
        (t.InsertTable(store="sqlite:////a/rows.db", table="rows", partition="key", row="key"), "/a", "store", True),
    ],
)
def test_files_of_a_task_are_found(task, path, parameter, marked):
    assert found(task) == [(path, f"{path}, {parameter} of the step 'step'", marked)]


@pytest.mark.parametrize(
    "task",
    [
        t.Lookup(table={"a": "b"}, on="key", columns="name"),
        t.CheckBloomFilter(models={"key": ["a", "b"]}),
        t.PredictLinearRegression(inputs=("value",), model="M", store="azure-blob://models"),
        t.PredictLinearRegression(inputs=("value",), model="M", store="memory://m"),
        t.PublishMQTT(url="mqtt://broker", topic="a/b", payload="key"),
        t.KalmanFilter(),
    ],
)
def test_addresses_in_the_network_are_no_files(task):
    assert found(task) == []


def test_files_of_tables_are_found(tmp_path):
    (tmp_path / "names.csv").write_text("key,name\na,Anna\n")
    path = str(tmp_path / "names.csv")
    for table in (path, tables.CSVTable(path)):
        assert found(t.Lookup(table=table, on="key", columns="name")) == [
            (path, f"{path}, table.path of the step 'step'", False)
        ]


def test_files_of_sources_are_found(tmp_path):
    (tmp_path / "a.csv").write_text("value\n1\n")
    (tmp_path / "b.txt").write_text("0,x\n")
    read = {"rows": ro.read(tmp_path / "a.csv"), "lines": ro.streams.replay(tmp_path / "b.txt")}
    assert [one.path for one in source_files(read)] == [str(tmp_path / "a.csv"), str(tmp_path / "b.txt")]
    assert "which the source 'rows' reads" in source_files(read)[0].what
    assert source_files({"city": ro.streams.city(sensors=2, messages=2), "frame": object()}) == []


# -- certificates, settings, and servers on this machine ------------------------------------------------


class Cluster:
    """A session whose workers run in this process, between two calls of ``elsewhere``."""

    def __init__(self, elsewhere):
        self.elsewhere, self.sparkContext, self.defaultParallelism = elsewhere, self, 2

    def parallelize(self, numbers, slots):
        assert slots == 2
        self.numbers = numbers
        return self

    def map(self, function):
        self.function = function
        return self

    def collect(self):
        with pytest.MonkeyPatch.context() as patch:
            self.elsewhere(patch)
            return [self.function(number) for number in self.numbers]


def other_disk(patch):
    patch.setattr("os.path.exists", lambda path: False)


def other_network(patch):
    def refuse(*_):
        raise ConnectionRefusedError

    patch.setattr("socket.create_connection", refuse)


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def more_than_one_machine(monkeypatch):
    monkeypatch.setattr(driver_files, "is_one_process", lambda spark: False)


class Through(WrappedSource):
    pass


def ends_in(task=None):
    flow = ro.Dataflow("ends")
    rows = flow.source("raw", schema={"value": "double", "key": "string"})
    flow.sink("out", rows if task is None else rows.to(task, id="step"))
    return flow


TLS = {"ca_file": "/a/ca", "certificate": "/a/client", "private_key": "/a/key"}
BROKERS = {"servers": "broker:9093", "security_protocol": "ssl"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: HTTPSink(url="https://h/x", **TLS),
        lambda: InfluxSink(url="https://h:8086", database="d", **TLS),
        lambda: MQTTSink(url="mqtts://h", topic="x", payload="key", **TLS),
        lambda: KafkaSink(**BROKERS, topic="x", **TLS),
    ],
    ids=["http", "influx", "mqtt", "kafka"],
)
def test_certificates_of_sinks_are_refused(make):
    with pytest.raises(ConfigError, match="do not see") as found:
        check_driver_files(Cluster(other_disk), ends_in(), sinks={"out": make()})
    for name, path in TLS.items():
        assert f"{path}, {name} of the sink 'out'" in str(found.value)


def test_certificates_of_sources_are_refused_where_workers_read(tmp_path):
    kafka = KafkaSource(**BROKERS, topics=("x",), **TLS)
    with pytest.raises(ConfigError, match=r"/a/key, source\.private_key of the source 'raw'"):
        check_sources(Cluster(other_disk), {"raw": Through(kafka)})
    # the driver receives, and workers need neither its certificates nor its spool
    mqtt = MQTTSource(url="mqtts://h", topics=["#"], client_id="me", spool=str(tmp_path), **TLS).carried()
    assert source_files({"raw": mqtt}) == [] and [*servers_of(mqtt, "it")] == []


def test_files_in_settings_of_libraries_are_refused(tmp_path):
    (tmp_path / "key.json").write_text("{}")
    key = str(tmp_path / "key.json")
    owners = {
        "client_options['ssl.crl.location']": KafkaSink(**BROKERS, topic="x", client_options={"ssl.crl.location": key}),
        "folder.options['google_application_credentials']": ro.ParquetSink(
            "gs://bucket/x", storage_options={"google_application_credentials": key}
        ),
    }
    for name, sink in owners.items():
        (one,) = files_of_options(sink, "it")
        assert one.path == key and one.what == f"{key}, {name} of it"


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("url", lambda port: HTTPSink(url=f"http://localhost:{port}/x")),
        ("url", lambda port: InfluxSink(url=f"http://127.0.0.1:{port}", database="d")),
        ("url", lambda port: PostgresSink(url=f"postgresql://me@127.0.0.1:{port}/d")),
        ("url", lambda port: MQTTSink(url=f"mqtt://127.0.0.1:{port}", topic="x", payload="key")),
        ("servers", lambda port: KafkaSink(servers=f"127.0.0.1:{port}", topic="x")),
        (
            "folder.options['aws_endpoint_url']",
            lambda port: ro.ParquetSink("s3://b/x", storage_options={"aws_endpoint_url": f"http://127.0.0.1:{port}"}),
        ),
    ],
)
def test_servers_of_the_driver_are_refused(port, name, make):
    sink = make(port)
    with pytest.raises(ConfigError, match=rf":{port}, .*of the sink 'out': the server is on the driver's machine") as e:
        check_driver_files(Cluster(other_network), ends_in(), sinks={"out": sink})
    assert f"{name} of the sink" in str(e.value)
    check_driver_files(Cluster(lambda patch: None), ends_in(), sinks={"out": sink})  # the workers reach it


def test_servers_of_tasks_and_sources_are_refused(port):
    publish = t.PublishMQTT(url=f"mqtt://localhost:{port}", topic="x", payload="key")
    with pytest.raises(ConfigError, match=f"localhost:{port}, url of the step 'step': the server"):
        check_driver_files(Cluster(other_network), ends_in(publish))
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}, servers of the source 'raw': the server"):
        check_sources(Cluster(other_network), {"raw": KafkaSource(servers=f"127.0.0.1:{port}", topics=("x",))})


def test_servers_that_are_not_the_drivers_are_not_asked_for(port):
    away = t.PublishMQTT(url="mqtt://broker", topic="x", payload="key")
    check_driver_files(Cluster(other_network), ends_in(away))
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    down = t.PublishMQTT(url=f"mqtt://127.0.0.1:{closed}", topic="x", payload="key")
    check_driver_files(Cluster(other_network), ends_in(down))  # perhaps each worker has one
    named = [("mqtt://[::1]", 1883), ("https://127.8.8.8/x", 443), ("postgresql+psycopg://localhost/d", 5432)]
    for url, default in named:
        (found,) = servers_of(OneAddress(url=url), "it")
        assert found.port == default
    for url in ("file:///x", "memory://x", "mqtt://h", "mqtt://localhost.example", "http://127.0.0.1:x/", "localhost"):
        assert [*servers_of(OneAddress(url=url), "it")] == []


@dataclass(frozen=True)
class OneAddress:
    url: str


@pytest.mark.parametrize(
    ("task", "sinks", "name"),
    [
        (t.PublishMQTT(url="memory://x", topic="x", payload="key"), {}, "url of the step 'step'"),
        (t.InsertTable(store="memory", table="rows", partition="key", row="key"), {}, "store of the step 'step'"),
        (t.InsertTable(store="sqlite://", table="rows", partition="key", row="key"), {}, "store of the step 'step'"),
        (t.InsertSQL(store="sqlite:///:memory:", table="rows", primary_key="key"), {}, "store of the step 'step'"),
        (None, {"out": MQTTSink(url="memory://x", topic="x", payload="key")}, "url of the sink 'out'"),
    ],
)
def test_memory_of_workers_is_refused(task, sinks, name):
    with pytest.raises(ConfigError, match=rf"{name} is (memory|sqlite)\S*, in the memory of a process"):
        check_driver_files(Cluster(lambda patch: None), ends_in(task), sinks=sinks)
    check_driver_files(Cluster(lambda patch: None), ends_in(), sinks={"out": ro.MemorySink()})
