"""Each source and sink at each fault: one error that names address and remedy, and no secret."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import riot_ops as ro
from riot_ops.connectors import (
    DeltaSink,
    DeltaSource,
    HTTPSink,
    IcebergSink,
    IcebergSource,
    InfluxSink,
    KafkaSink,
    KafkaSource,
    MQTTSink,
    MQTTSource,
)
from riot_ops.core.storage import Address
from riot_ops.testing.services import Mosquitto, Tansu, free_port
from tests.connectors.conftest import PASSWORD
from tests.connectors.http_server import Recorder

FIELDS = {"a": "int64", "b": "string"}
ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
NOWHERE = "nowhere.invalid"
WORD = ro.Secret(PASSWORD)


@pytest.fixture(scope="module")
def dead():
    """An address of this machine at which nothing answers."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def kafka():
    with Tansu(authentication=True) as broker:
        yield broker.servers


@pytest.fixture(scope="module")
def mqtt():
    with Mosquitto(password=PASSWORD) as broker:
        yield broker.url


def write(sink, rows=ROWS, fields=FIELDS, **options):
    flow = ro.Dataflow("faults")
    flow.sink("out", flow.source("raw", schema=fields))
    return flow.run(rows, sinks=sink, **options)


def read(source, fields=None):
    flow = ro.Dataflow("faults")
    flow.sink("out", flow.source("raw", schema=fields or source.schema))
    return flow.run(source)


@contextlib.contextmanager
def refused(*parts, kind=ro.ConnectorError):
    """The body raises an error whose text has these parts, in this order, and no secret."""
    with pytest.raises(kind) as found:
        yield
    text = str(found.value)
    at = 0
    for part in parts:
        assert part in text[at:], (part, text)
        at = text.index(part, at) + len(part)
    assert PASSWORD not in text and "\n" not in text and len(text) < 1000


# -- brokers -----------------------------------------------------------------------------------------------

LOGIN = {"username": "nobody", "password": WORD, "timeout": "5s"}
SASL = LOGIN | {"security_protocol": "sasl_plaintext", "sasl_mechanism": "SCRAM-SHA-256"}
KAFKA_ENDS = {
    "source": lambda **options: read(KafkaSource(topics="t", **options)),
    "sink": lambda **options: write(KafkaSink(topic="t", **options)),
    "transactional sink": lambda **options: write(KafkaSink(topic="t", transactional=True, **options)),
}


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("end", KAFKA_ENDS)
def test_kafka(end, dead, kafka):
    run, quick = KAFKA_ENDS[end], {"timeout": "1s"}
    with refused(f"Kafka at {dead}: ", "Connection refused", "is the broker running"):
        run(servers=dead, **quick)
    with refused(f"Kafka at {NOWHERE}:9092: ", "Failed to resolve", "check the names of the servers"):
        run(servers=f"{NOWHERE}:9092", **quick)
    with refused(f"Kafka at {kafka}: ", "authentication failed", "check username, password and sasl_mechanism"):
        run(servers=kafka, **SASL)
    with Recorder() as web:
        servers = web.url.removeprefix("http://")
        with refused(f"Kafka at {servers}: ", "is the broker running"):
            run(servers=servers, **quick)


MQTT_ENDS = {
    "source": lambda folder, **options: read(MQTTSource(topics="x", client_id="me", spool=str(folder), **options)),
    "sink": lambda folder, **options: write(MQTTSink(topic="x", **options)),
}


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("end", MQTT_ENDS)
def test_mqtt(end, dead, mqtt, tmp_path):
    run, quick = MQTT_ENDS[end], {"timeout": "500ms"}
    with refused(f"mqtt://{dead}", "it refuses connections", "is it running?"):
        run(tmp_path / "a", url=f"mqtt://{dead}", **quick)
    with refused(f"mqtt://{NOWHERE}: the host '{NOWHERE}' is unknown", "check url"):
        run(tmp_path / "b", url=f"mqtt://{NOWHERE}", **quick)
    with refused(f"{mqtt}: it refuses the login of the user 'nobody'", "check username and password"):
        run(tmp_path / "c", url=mqtt, **LOGIN)
    with Recorder() as web:
        url = web.url.replace("http", "mqtt")
        with refused(f"{url}: it does not answer", "check url"):
            run(tmp_path / "d", url=url, **quick)


def test_spool_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    source = MQTTSource(url="memory://faults", topics="x", client_id="me", spool=str(tmp_path / "file"))
    with refused(f"the spool {tmp_path / 'file'} cannot be opened", "spool must be a folder"):
        read(source)


@pytest.mark.parametrize(
    "sink",
    [
        lambda url, **options: HTTPSink(url=url, **options),
        lambda url, **options: InfluxSink(url=url, database="d", time=None, **options),
    ],
    ids=["http", "influx"],
)
def test_http(sink, dead):
    quick = {"token": WORD, "retry": "0s", "timeout": "2s"}
    with refused(f"http://{dead}", "the server cannot be reached", "check url="):
        write(sink(f"http://{dead}", **quick))
    with refused(f"http://{NOWHERE}", "its host is unknown", "check url="):
        write(sink(f"http://{NOWHERE}", **quick))
    for status, remedy in ((401, "check token="), (403, "check token="), (404, "check url="), (413, "batch_size=")):
        answer = Recorder([(status, {})], text=f"not {PASSWORD}")
        with answer as web, refused(web.url, f"answers {status}", remedy, "not ***"):
            write(sink(web.url, **quick))
    with Recorder() as web, refused(web.url.replace("http", "https"), "TLS fails", "give http:// if not"):
        write(sink(web.url.replace("http", "https"), **quick))


def test_missing_database_of_influx():
    answer = Recorder([(404, {})], text="bucket not found")
    with answer as web, refused("answers 404", "check url=, api=, database=, org=", "bucket not found"):
        write(InfluxSink(url=web.url, database="d", time=None, retry="0s"))


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_missing_files_and_folders(name, tmp_path):
    (tmp_path / "empty").mkdir()
    format = name.partition(".")[2]
    with refused(f"no such file: {tmp_path / name}", "check the path"):
        read(ro.read(tmp_path / name), FIELDS)
    with refused(f"no such file: {tmp_path / 'none' / '*'}", "check the path"):
        read(ro.read(tmp_path / "none" / "*", format=format), FIELDS)
    with refused(f"the folder {tmp_path / 'empty'} holds no files", "check the path"):
        read(ro.read(tmp_path / "empty", format=format), FIELDS)


@pytest.mark.parametrize("kept", [0, 40, -5])
def test_half_written_parquet_file(kept, tmp_path):
    file = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pylist(ROWS), file)
    file.write_bytes(file.read_bytes()[:kept])
    with refused(f"cannot read {file}: ", "damaged or not complete", "'.rows'"):
        read(ro.read(file), FIELDS)


def test_half_written_line_of_json_is_rejected(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a":1,"b":"x"}\n{"a":2,"b"')
    result = read(ro.read(tmp_path / "rows.jsonl"), FIELDS)
    assert result["raw"]["a"].to_pylist() == [1]
    assert result.errors["reason"].to_pylist() == ["malformed"]


def test_field_that_a_source_lacks_is_named_beside_all_that_it_has(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n")
    with refused("lacks the field 'z'; it has seq, a, b", kind=ro.ConfigError):
        read(ro.read(tmp_path / "rows.csv"), {"a": "int64", "z": "int64"})
    source = KafkaSource(servers="localhost:1", topics="t")
    with refused("lacks the field 'pay'", "payload, key, topic", kind=ro.ConfigError):
        read(source, {"pay": "binary"})


@pytest.mark.parametrize("sink", [ro.ParquetSink, ro.CSVSink, ro.JSONLinesSink])
def test_folder_of_a_file_sink(sink, tmp_path):
    (tmp_path / "file").write_text("x")
    with refused(str(tmp_path / "file"), "cannot be taken for a run", "give a folder"):
        write(sink(tmp_path / "file"))
    write(sink(tmp_path / "out"))
    with refused(str(tmp_path / "out"), "holds the output of an earlier run", "overwrite=True"):
        write(sink(tmp_path / "out"))


def test_sink_given_as_out():
    flow = ro.Dataflow("faults")
    flow.sink("out", flow.source("raw", schema=FIELDS))
    with refused("out must be a path or an address, got KafkaSink: give a sink as sinks=", kind=ro.ConfigError):
        flow.run(ROWS, out=KafkaSink(servers="localhost:1", topic="t"))


# -- tables ------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    """A folder with the Delta table ``raw``."""
    write(DeltaSink(tmp_path / "lake"))
    return tmp_path / "lake"


def test_delta_table_that_is_missing_or_does_not_fit(lake, tmp_path):
    table = lake / "raw"
    with refused(f"no Delta table at {tmp_path / 'none'}", "create the table"):
        read(DeltaSource(tmp_path / "none"))
    with refused(f"version 99 of the Delta table {table} does not exist yet", "read another version"):
        read(DeltaSource(table, version=99))
    with refused(f"start_version = 99: the Delta table {table} has the versions up to 1 only", "2 for what"):
        read(DeltaSource(table, start_version=99))
    with refused("lacks the field 'z'; it has seq, table_seq, a, b", kind=ro.ConfigError):
        read(DeltaSource(table), {"z": "int64"})
    with refused(f"time: the column 'a' of the Delta table {table} must be a timestamp", kind=ro.ConfigError):
        read(DeltaSource(table, time="a"))
    with refused("'a' of stream 'raw' is string", str(table), "cast it in a task", kind=ro.ConfigError):
        write(DeltaSink(lake), [{"a": "x", "b": "y"}], {"a": "string", "b": "string"})


def test_start_of_a_delta_table_after_its_last_version(lake):
    assert read(DeltaSource(lake / "raw", start_version=2))["raw"].num_rows == 0


def test_damaged_delta_table(lake):
    log = sorted((lake / "raw" / "_delta_log").glob("*.json"))[-1]
    data = next((lake / "raw").glob("*.parquet"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    for run in (lambda: read(DeltaSource(lake / "raw")), lambda: write(DeltaSink(lake))):
        with refused(f"the Delta table {lake / 'raw'} cannot be opened", "damaged or not complete", "restore it"):
            run()
    log.write_bytes(whole)
    content = data.read_bytes()
    data.write_bytes(content[:60])
    with refused(f"the Delta table {lake / 'raw'} cannot be read", "damaged or not complete", "restore it"):
        read(DeltaSource(lake / "raw"))
    data.unlink()
    with refused(f"the file {data} of version 1 does not exist any more", "restore the file"):
        read(DeltaSource(lake / "raw"))


def test_errors_of_delta_show_no_secret():
    sink = DeltaSink("s3://bucket/x", storage_options={"aws_secret_access_key": WORD})
    error = sink.location.error("opened", OSError(f"signature of {PASSWORD} is wrong " + "x" * 900 + " the cause"))
    assert PASSWORD not in str(error) and "signature of ***" in str(error) and "the cause; " in str(error)
    body = "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>not there</Message><HostId>7</HostId></Error>"
    text = str(sink.location.error("opened", OSError(f"GET fails: {body}")))
    assert "GET fails: NoSuchBucket: not there; the bucket or container does not exist" in text


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "ice").mkdir()
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/ice/catalog.db", "warehouse": str(tmp_path / "ice")}


def test_iceberg(catalog, dead, tmp_path):
    def source(**options):
        return IcebergSource("ns.raw", catalog=catalog, **options)

    uri = catalog["uri"]
    with refused("there is no table ns.raw in the Iceberg catalogue " + uri, "create it first"):
        read(source())
    write(IcebergSink("ns", catalog=catalog))
    with refused("the table ns.raw has no snapshot 5", uri, "give one of those"):
        read(source(snapshot_id=5))
    rest = {"type": "rest", "uri": f"http://{dead}", "token": WORD}
    for run in (
        lambda: read(IcebergSource("ns.raw", catalog=rest)),
        lambda: write(IcebergSink("ns", catalog=rest)),
    ):
        with refused("cannot be reached", f"catalogue http://{dead}", "check the settings of the catalogue"):
            run()
    with refused("cannot be reached", "catalogue nowhere", "define the catalogue"):
        read(IcebergSource("ns.raw", catalog="nowhere"))
    (data,) = tmp_path.rglob("*.parquet")
    data.write_bytes(data.read_bytes()[:60])
    with refused(f"the file {data} of the table ns.raw cannot be read", uri, "damaged or not complete"):
        read(source())
    data.unlink()
    with refused(f"the file {data} of the table ns.raw cannot be read", uri, "removed or lost"):
        read(source())
    newest = sorted(tmp_path.rglob("*.metadata.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:60])
    for run in (lambda: read(source()), lambda: write(IcebergSink("ns", catalog=catalog))):
        with refused("the table ns.raw cannot be opened", uri, "damaged or not complete"):
            run()
    Path(uri.removeprefix("sqlite:///")).write_bytes(b"junk" * 200)
    with refused("cannot be reached", uri, "damaged or not complete"):
        read(source())
    shutil.rmtree(tmp_path / "ice")
    with refused("cannot be reached", uri, "create the folder of the database"):
        read(source())


# -- object stores -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [ro.ParquetSink, ro.CSVSink, ro.JSONLinesSink])
def test_object_store_that_cannot_be_reached(sink, dead, monkeypatch):
    monkeypatch.setattr("riot_ops.core.storage.PAUSES", ())
    options = {"aws_endpoint_url": f"http://{dead}", "aws_access_key_id": "me", "aws_secret_access_key": WORD}
    for run in (
        lambda: write(sink("s3://bucket/x", storage_options=options)),
        lambda: read(ro.read("s3://bucket/x.csv", storage_options=options), FIELDS),
        lambda: Address.of("s3://bucket/x", options).check(),
    ):
        with refused("s3://bucket/x", "Could not connect", "check the address, the settings of the store"):
            run()
