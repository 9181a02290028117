"""Addresses: which there are, whose settings count, and what happens if a store fails."""

from __future__ import annotations

import http.client
import json
import pickle
import random
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest

import riot_ops as ro
from riot_ops.core import storage
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.storage import Address, open_place
from riot_ops.testing.services import Azurite, GCSEmulator, Moto


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "out must be of the form s3://bucket/folder"),
        ("s3://bucket/x?versionId=1", "out must be of the form s3://bucket/folder"),
        ("s3://key:pa55@bucket/x", "out is a s3: address, which must not hold credentials"),
        ("abfss://account/x@y", None),
        ("abfss://container@account/x", "abfss://container@account.dfs.core.windows.net/folder"),
        ("nosuch://x/y", "out is an address of the kind nosuch:, which is not supported here"),
        ("s3://[x/y", "out is no address"),
        ("s3://bucket/a\0b", "out must be an address without NUL characters"),
    ],
)
def test_what_is_no_address_is_refused_by_name(url, message):
    if message is None:
        assert open_place(url, None, "out").url == url
        return
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        ro.ParquetSink(url) if "out" not in message else open_place(url, None, "out")
    assert "pa55" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        (
            "s3://bucket/x",
            {"azure_storage_key": ro.Secret("k")},
            "is no setting of s3: addresses; they are aws_access_key_id, ",
        ),
        ("s3://bucket/x", {"aws_region": 1}, "storage_options['aws_region'] must be a text, or a Secret"),
        ("s3://bucket/x", ["aws_region"], "storage_options must be a mapping of name to text or Secret, got list"),
        ("out", {"aws_region": "x"}, "storage_options are for object stores, and folder is the path"),
    ],
)
def test_settings_are_checked(place, options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        ro.ParquetSink(place, storage_options=options)


def test_secrets_are_not_shown_and_addresses_are_equal_by_their_settings():
    one = Address.of("s3://bucket/x/", {"aws_secret_access_key": ro.Secret("pa55word"), "aws_region": "eu-north-1"})
    assert repr(one) == "Address('s3://bucket/x')" and str(one / "y") == "s3://bucket/x/y" and one.name == "x"
    assert pickle.loads(pickle.dumps(one)) == one != Address.of("s3://bucket/x", {})
    assert (one / "y").parent == one


def test_volumes_have_manifests_and_no_renames(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "VOLUMES", f"{tmp_path}/")
    for name in ("fsync", "replace", "rename"):
        monkeypatch.setattr(f"os.{name}", lambda *_: pytest.fail("a volume has none"))
    flow = ro.Dataflow("volume")
    flow.sink("out", flow.source("readings", schema={"value": "int64"}))
    rows = [{"value": i} for i in range(3)]
    flow.run(rows[:2], out=tmp_path / "out", checkpoint=tmp_path / "state")
    result = flow.run(rows, out=tmp_path / "out", checkpoint=tmp_path / "state")
    assert result["readings"]["value"].to_pylist() == [0, 1, 2]
    assert [*(tmp_path / "out" / "_riot_ops").iterdir()] and [*(tmp_path / "state").glob("state-*")]
    assert not [*tmp_path.rglob(".riot_ops.lock")]


# -- failures --------------------------------------------------------------------------------------


class Proxy:
    """Stands before a store, and answers some requests itself: those for which ``fault`` returns a status."""

    def __init__(self, port):
        self.requests = []
        self.fault = lambda number, request: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def body(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                raw = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    raw += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return raw

            def answer(self):
                raw = self.body()
                left = ("transfer-encoding", "expect", "content-length")
                headers = {name: value for name, value in self.headers.items() if name.lower() not in left}
                headers["Content-Length"] = str(len(raw))
                outer.requests.append(f"{self.command} {self.path}")
                status = outer.fault(len(outer.requests), outer.requests[-1])
                if status == "drop":
                    self.connection.close()
                    self.close_connection = True
                    return
                if status is not None:
                    code, name = status
                    body = f"<Error><Code>{name}</Code><Message>injected</Message></Error>".encode()
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(b"" if self.command == "HEAD" else body)
                    return
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request(self.command, self.path, raw, headers)
                got = connection.getresponse()
                data = got.read()
                self.send_response(got.status)
                for name, value in got.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                self.send_header("Content-Length", got.headers.get("Content-Length") or str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def moto():
    with Moto() as service:
        service.create_bucket("faults")
        yield service


@pytest.fixture
def proxy(moto, monkeypatch):
    made = Proxy(moto.ports()[0])
    for name, value in {**moto.settings(), "AWS_ENDPOINT_URL": made.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "PAUSES", (0.01, 0.01, 0.01))
    storage._OPENED.clear()
    yield made
    made.server.shutdown()
    made.server.server_close()
    storage._OPENED.clear()


def flow():
    made = ro.Dataflow("faults")
    made.sink("out", made.source("readings", schema={"value": "int64"}))
    return made


def rows(n):
    return [{"value": i} for i in range(n)]


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        "drop",
        # the client of S3 waits long before it repeats a request
        pytest.param((500, "InternalError"), marks=pytest.mark.slow),
        pytest.param((503, "SlowDown"), marks=pytest.mark.slow),
    ],
)
def test_passing_faults_are_waited_out(proxy, fault, request):
    chance = random.Random(0)  # not each third: a read of three requests would fail for ever
    proxy.fault = lambda *_: fault if chance.random() < 0.25 else None
    folder = re.sub(r"\W+", "-", request.node.name)
    for n in (10, 20):
        options = {"out": f"s3://faults/{folder}/out", "checkpoint": f"s3://faults/{folder}/state"}
        result = flow().run(rows(n), **options, batch_size=5, epoch_rows=5)
    assert result["readings"]["value"].to_pylist() == list(range(20))


@pytest.mark.integration
@pytest.mark.long
def test_lasting_fault_is_one_error_and_the_checkpoint_continues(proxy):
    options = {"out": "s3://faults/lasting/out", "checkpoint": "s3://faults/lasting/state"}

    def fault(_, request):
        return (503, "SlowDown") if request.startswith(("PUT", "POST")) and "part-000002" in request else None

    proxy.fault = fault
    with pytest.raises(
        ConnectorError,
        match=r"s3://faults/lasting/out/readings/part-000002-00000-[0-9a-f]{12}.parquet cannot be written: .*; check the address",
    ):
        flow().run(rows(20), **options, batch_size=5, epoch_rows=5)
    tries = sum("part-000002" in one for one in proxy.requests)
    assert tries >= 8  # those of the client, repeated
    proxy.fault = lambda *_: None
    assert flow().run(rows(20), **options, batch_size=5)["readings"]["value"].to_pylist() == list(range(20))


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ((403, "AccessDenied"), "the store refuses these credentials"),
        ((403, "InvalidAccessKeyId"), "the store refuses these credentials"),
        ((404, "NoSuchBucket"), "create the bucket or container"),
    ],
)
def test_refusals_end_a_run_before_it_reads(proxy, fault, remedy):
    proxy.fault = lambda _, request: fault if request.startswith(("PUT", "POST")) else None
    read = []

    def records():
        read.append(True)
        yield {"value": 1}

    with pytest.raises(ConnectorError, match=rf"s3://faults/refused/.* cannot be written: .*{remedy}") as caught:
        flow().run(records(), out="s3://faults/refused/out")
    assert not read[1:] and "riot-never-checked" not in str(caught.value)
    assert sum(one.startswith(("PUT", "POST")) for one in proxy.requests) == 1  # it is not tried again


@pytest.mark.integration
@pytest.mark.long
def test_missing_bucket_ends_a_run_at_its_start(proxy):
    with pytest.raises(ConnectorError, match=r"s3://no-such-bucket/.*create the bucket or container, or correct the"):
        flow().run(rows(1), out="s3://no-such-bucket/out")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("s3://bucket/x", "aws_secret_access_key"),
        ("s3://bucket/x", "AWS_SESSION_TOKEN"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure_storage_key"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure_storage_account_key"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure_storage_sas_token"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure_storage_connection_string"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure_client_secret"),
        ("sftp://host/x", "passphrase"),
    ],
)
def test_secrets_as_texts_are_refused_and_not_shown(address, name):
    word = "pa55-never-shown"
    ends = [ro.ParquetSink, ro.CSVSink, ro.JSONLinesSink, ro.read, ro.streams.replay]
    if not address.startswith("sftp"):
        ends += [ro.connectors.DeltaSink, ro.connectors.DeltaSource]
    for end in ends:
        with pytest.raises(
            ConfigError, match=rf"storage_options\['{name}'\] must be a secret: give Secret.env"
        ) as found:
            end(address, storage_options={name: word})
        assert word not in str(found.value)


def test_settings_that_are_no_secrets_are_texts():
    ro.ParquetSink("s3://bucket/x", storage_options={"aws_access_key_id": "me", "aws_endpoint_url": "http://h"})
    ro.ParquetSink("gs://bucket/x", storage_options={"google_application_credentials": "/etc/key.json"})
    ro.connectors.DeltaSink("s3://bucket/x", storage_options={"aws_container_credentials_relative_uri": "/v2"})


@pytest.mark.integration
@pytest.mark.long
def test_given_settings_come_before_the_environment(moto, monkeypatch):
    for name in moto.settings():
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    given = {name.lower(): value for name, value in moto.settings().items()}
    given["AWS_SECRET_ACCESS_KEY"] = ro.Secret(given.pop("aws_secret_access_key"))
    place = Address.of("s3://faults/given", given)
    place.write(b"abc")
    client = boto3.client(
        "s3",
        endpoint_url=moto.endpoint,
        region_name=moto.region,
        aws_access_key_id=moto.access_key,
        aws_secret_access_key=moto.secret_key,
    )
    assert client.get_object(Bucket="faults", Key="given")["Body"].read() == b"abc" == place.read()


def test_full_temporary_disk_is_named_and_leaves_nothing(monkeypatch):
    from riot_ops.core import stored_files

    class Full:
        def __init__(self, *_):
            self.closed = False

        def write(self, _):
            raise OSError(28, "No space left on device")

        def __getattr__(self, name):
            return lambda *_: 0

    monkeypatch.setattr(stored_files.tempfile, "SpooledTemporaryFile", Full)
    with pytest.raises(ConnectorError, match=r"memory://full/out.*No space left on device"):
        flow().run(rows(3), sinks=ro.JSONLinesSink("memory://full/out"))
    assert not Address.of("memory://full/out/readings", {}).files()


# -- Azure -----------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    "url",
    ["abfss://plant@devstoreaccount1.dfs.core.windows.net/{}", pytest.param("az://plant/{}", marks=pytest.mark.slow)],
)
def test_run_on_azure(azurite, monkeypatch, url):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection)
    place = url.format(url[:2])
    for n in (5, 12):
        result = flow().run(rows(n), out=f"{place}/out", checkpoint=f"{place}/state", batch_size=5, epoch_rows=5)
    assert result["readings"]["value"].to_pylist() == list(range(12))
    assert ro.read(f"{place}/out/readings").schema.names == ["seq", "value"]
    with pytest.raises(ConnectorError, match=r"missing.*create the bucket or container"):
        flow().run(rows(1), out=place.replace("plant", "missing"))


@pytest.fixture(scope="module")
def azurite():
    from azure.storage.blob import BlobServiceClient

    with Azurite() as service:
        BlobServiceClient.from_connection_string(service.connection).create_container("plant")
        yield service


# -- Google ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gcs():
    with GCSEmulator() as service:
        service.create_bucket("plant")
        yield service


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_run_on_google_cloud_storage(gcs, monkeypatch, scheme):
    for name, value in gcs.settings().items():
        monkeypatch.setenv(name, value)
    place = f"{scheme}://plant/{scheme}"
    for n in (5, 12):
        result = flow().run(rows(n), out=f"{place}/out", checkpoint=f"{place}/state", batch_size=5, epoch_rows=5)
    assert result["readings"]["value"].to_pylist() == list(range(12))
    assert ro.read(f"{place}/out/readings").schema.names == ["seq", "value"]
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        flow().run(rows(1), out=f"{place}/out")
    with pytest.raises(ConnectorError, match=rf"{scheme}://missing/out/.* cannot be written: .*; create the bucket"):
        flow().run(rows(1), out=f"{scheme}://missing/out")
    # a bare client sees the files
    url = f"{gcs.endpoint}/storage/v1/b/plant/o?prefix={scheme}/out/readings/"
    with urllib.request.urlopen(url) as answer:
        assert {one["name"] for one in json.load(answer)["items"]} == {
            f"{scheme}/out/readings/{file.name}" for file in Address.of(f"{place}/out/readings", {}).files()
        }


@pytest.mark.integration
@pytest.mark.long
def test_folders_of_google_cloud_storage(gcs):
    place = Address.of("gs://plant/folders", {"storage_emulator_host": gcs.endpoint, "google_cloud_project": "test"})
    for name in ("day=1/a.jsonl", "day=2/sub/b.jsonl", "c.jsonl"):
        (place / name).write(b'{"value": 1}\n')
    assert place.folders() == ["day=1", "day=2"] and [one.name for one in place.files()] == ["c.jsonl"]
    assert (place / "day=2").folders() == ["sub"] and (place / "none").folders() == []
    (place / "c.jsonl").delete()
    (place / "c.jsonl").delete()
    assert place.files() == [] and (place / "c.jsonl").read() is None and (place / "c.jsonl").size() is None
