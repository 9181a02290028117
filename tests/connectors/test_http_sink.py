"""Sending streams over HTTP: bodies, retries, refusals, and what a restart sends again."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.connectors import HTTPSink, retry
from riot_ops.connectors.http import HTTPConnection
from tests.connectors.conftest import write_certificates
from tests.connectors.http_server import Recorder

ROWS = [
    {"device": "a", "value": 1.5, "on": True},
    {"device": "b", "value": float("nan"), "on": None},
    {"device": "ü", "value": 2.0, "on": False},
]
SCHEMA = {"device": "string", "value": "double", "on": "bool"}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retry, "MAX_PAUSE_S", 0.002)


def flow():
    made = ro.Dataflow("http")
    made.source("in", schema=SCHEMA).filter("device != ''", id="kept").to("out")
    return made


def rows(request):
    return json.loads(request.body)


def test_array_of_objects_in_batches_of_a_size():
    with Recorder() as server:
        flow().run(ROWS, sinks=HTTPSink(url=f"{server.url}/in/{{stream}}?x=1", batch_size=2))
    first, second = server.requests
    assert rows(first) == [
        {"seq": 0, "device": "a", "value": 1.5, "on": True},
        {"seq": 1, "device": "b", "value": None, "on": None},
    ]
    assert rows(second) == [{"seq": 2, "device": "ü", "value": 2.0, "on": False}]
    assert (first.verb, first.path, first.headers["Content-Type"]) == ("POST", "/in/kept?x=1", "application/json")


def test_lines_and_fields_and_verb():
    with Recorder() as server:
        sink = HTTPSink(url=server.url, format="jsonlines", fields=("device", "value"), verb="PUT")
        flow().run(ROWS, sinks=sink)
    (request,) = server.requests
    assert request.body.decode().splitlines()[0] == '{"device":"a","value":1.5}' and request.body.count(b"\n") == 3
    assert (request.verb, request.headers["Content-Type"]) == ("PUT", "application/x-ndjson")


def test_senml_pack():
    made = ro.Dataflow("http")
    made.source(
        "in", schema={"device": "string", "value": "double", "on": "bool", "event_time": "timestamp[us, tz=UTC]"}
    ).filter("device != ''", id="kept").to("out")
    given = [{**row, "event_time": "2026-01-01T00:00:00.5Z"} for row in ROWS]
    with Recorder() as server:
        made.run(given, sinks=HTTPSink(url=server.url, format="senml", senml_name="{device}:"))
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/senml+json"
    assert rows(request) == [
        {"bn": "a:", "bt": 1767225600.5, "n": "value", "v": 1.5},
        {"n": "on", "vb": True},
        {"bn": "ü:", "bt": 1767225600.5, "n": "value", "v": 2.0},
        {"n": "on", "vb": False},
    ]


def test_rejected_records_go_as_json():
    with Recorder() as server:
        flow().run([{"device": "a", "value": "warm", "on": True}], sinks=HTTPSink(url=server.url, format="senml"))
    (request,) = server.requests
    assert [row["task"] for row in rows(request)] == ["in"] and request.headers["Content-Type"] == "application/json"


def test_logins_headers_and_compression_are_sent():
    secret = ro.Secret("never-shown")
    with Recorder() as server:
        flow().run(ROWS, sinks=HTTPSink(url=server.url, token=secret, headers={"X-Tenant": "t", "X-Key": secret}))
        flow().run(ROWS, sinks=HTTPSink(url=server.url, username="me", password=secret, compression="gzip"))
    bearer, basic = server.requests
    assert bearer.headers["Authorization"] == "Bearer never-shown" and bearer.headers["X-Tenant"] == "t"
    assert bearer.headers["X-Key"] == "never-shown"
    assert base64.b64decode(basic.headers["Authorization"].split()[1]) == b"me:never-shown"
    assert basic.headers["Content-Encoding"] == "gzip" and gzip.decompress(basic.body) == bearer.body


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_transient_answers_are_repeated_with_the_same_key(status):
    with Recorder([(status, {}), (status, {})]) as server:
        flow().run(ROWS, sinks=HTTPSink(url=server.url))
    keys = [request.headers["Idempotency-Key"] for request in server.requests]
    assert len(keys) == 3 and len(set(keys)) == 1 and len({request.body for request in server.requests}) == 1


def test_retry_after_is_waited_for():
    waited = []
    client = ["503"]

    def call():
        if client:
            client.pop()
            raise ValueError
        return "done"

    assert retry.retry("x", call, lambda _: retry.Failure("busy", True, 7.0), 60, sleep=waited.append) == "done"
    assert waited == [7.0]
    client.append("503")
    with pytest.raises(ro.ConnectorError, match="busy"):  # longer than the patience
        retry.retry("x", call, lambda _: retry.Failure("busy", True, 61.0), 60, sleep=waited.append)


def test_retry_after_of_a_server_is_read():
    with Recorder([(429, {"Retry-After": "1"})]) as server:
        begun = time.monotonic()
        flow().run(ROWS, sinks=HTTPSink(url=server.url))
        assert time.monotonic() - begun >= 1 and len(server.requests) == 2
    with Recorder([(503, {"Retry-After": "3600"})]) as server, pytest.raises(ro.ConnectorError, match="503"):
        flow().run(ROWS, sinks=HTTPSink(url=server.url, retry="5s"))


def test_keys_differ_between_batches_and_runs():
    with Recorder() as server:
        for _ in range(2):
            flow().run(ROWS[:1] * 2, sinks=HTTPSink(url=server.url, batch_size=1, fields=("device",)))
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 4


def test_refusal_ends_the_run_without_the_secret():
    with Recorder([(400, {})], text="no field 'x' for never-shown") as server:
        with pytest.raises(
            ro.ConnectorError, match=r"3 records of the stream 'kept'.*400.*no field 'x' for \*\*\*"
        ) as found:
            flow().run(ROWS, sinks=HTTPSink(url=f"{server.url}/a?who=me", token=ro.Secret("never-shown")))
        assert not found.value.retryable and len(server.requests) == 1 and "who" not in str(found.value)


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "token="), (403, "password="), (413, "batch_size="), (302, "not followed")]
)
def test_refusals_name_the_remedy(status, remedy):
    with Recorder([(status, {})]) as server, pytest.raises(ro.ConnectorError, match=f"{status}.*{remedy}"):
        flow().run(ROWS, sinks=HTTPSink(url=server.url))


def test_silent_and_missing_servers():
    gate = threading.Event()
    with Recorder(delay=gate) as server:
        with pytest.raises(ro.ConnectorError, match=r"does not answer within 0\.05 s"):
            flow().run(ROWS, sinks=HTTPSink(url=server.url, timeout="50ms", retry="0s"))
        gate.set()
    with pytest.raises(ro.ConnectorError, match=rf"{server.url}.* cannot be reached") as found:
        flow().run(ROWS, sinks=HTTPSink(url=server.url, retry="10ms"))
    assert found.value.retryable


@pytest.mark.parametrize(
    "files",
    [{"certificate": "server.crt", "private_key": "server.key"}, {"certificate": "both.pem"}],
    ids=["two files", "one file"],
)
def test_client_certificates(certificates, files):
    given = {name: str(certificates / file) for name, file in files.items()}
    with Recorder(certificates=certificates, client_authority=certificates / "ca.crt") as server:
        flow().run(ROWS, sinks=HTTPSink(url=server.url, ca_file=str(certificates / "ca.crt"), retry="0s", **given))
    assert [one["device"] for one in rows(server.requests[0])] == ["a", "b", "ü"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "TLS fails: .*check ca_file= and certificate="),
        ({"certificate": ("other", "both.pem")}, "check ca_file= and certificate="),
        ({"certificate": ("own", "server.crt"), "private_key": ("other", "server.key")}, "server.crt and .*server.key cannot be used.*belong together"),
        ({"certificate": ("own", "server.crt")}, "server.crt cannot be used.*private_key must be in PEM"),
        ({"certificate": ("own", "none.crt")}, "none.crt cannot be used: No such file"),
        ({"certificate": ("own", "server.crt"), "private_key": ("own", "none.key")}, "server.crt and .*none.key cannot be used: No such file"),
        ({"certificate": ("own", "server.crt"), "private_key": ("own", "locked.key")}, "locked.key cannot be used.*the key without a passphrase"),
        ({"certificate": ("own", "both.pem"), "ca_file": ("own", "none.crt")}, "the CA file .*none.crt cannot be used"),
        ({"certificate": ("own", "both.pem"), "ca_file": ("own", "server.key")}, "the CA file .*server.key cannot be used"),
        ({"certificate": ("own", "both.pem"), "ca_file": ("other", "ca.crt")}, "verify failed.*check ca_file="),
    ],
    ids=["none", "of another authority", "another key", "no key", "no file", "no key file", "locked key",
         "no authority", "not an authority", "another authority"],
)  # fmt: skip
def test_certificates_that_do_not_fit(certificates, tmp_path, files, message):
    folders = {"own": certificates, "other": write_certificates(tmp_path)}
    given = {"ca_file": certificates / "ca.crt"}
    given |= {name: folders[which] / file for name, (which, file) in files.items()}
    with Recorder(certificates=certificates, client_authority=certificates / "ca.crt") as server:
        sink = HTTPSink(url=server.url, retry="20s", timeout="5s", **{name: str(path) for name, path in given.items()})
        with pytest.raises(ro.ConnectorError, match=f"to {server.url}: .*{message}"):
            flow().run(ROWS, sinks=sink)


def test_certificate_that_is_lost_during_a_run(certificates, tmp_path):
    own = tmp_path / "own.pem"
    own.write_bytes((certificates / "both.pem").read_bytes())
    ends = [(204, {"Connection": "close"})]  # the next request needs another connection
    with Recorder(ends, certificates=certificates, client_authority=certificates / "ca.crt") as server:
        sink = HTTPSink(url=server.url, ca_file=str(certificates / "ca.crt"), certificate=str(own), timeout="5s")
        flow().run(ROWS, sinks=sink)
        own.unlink()
        with pytest.raises(ro.ConnectorError, match=f"to {server.url}.*own.pem cannot be used: No such file"):
            flow().run(ROWS, sinks=sink)


@pytest.mark.parametrize(
    ("made", "message"),
    [({"days": -1}, "has expired"), ({"host": "elsewhere"}, "'localhost'")],
    ids=["expired", "another host"],
)
def test_certificates_of_servers(tmp_path, made, message):
    folder = write_certificates(tmp_path, **made)
    with Recorder(certificates=folder) as server:
        sink = HTTPSink(url=server.url, ca_file=str(folder / "ca.crt"), retry="0s")
        with pytest.raises(ro.ConnectorError, match=f"to {server.url}: TLS fails.*{message}"):
            flow().run(ROWS, sinks=sink)


def test_requests_of_a_crash_come_again_after_the_restart(tmp_path):
    """The answer to the second request is a refusal; the run that continues sends its records again."""
    with Recorder([(204, {}), (400, {})]) as server:
        sink = HTTPSink(url=server.url, batch_size=1, fields=("device",))
        with pytest.raises(ro.ConnectorError):
            flow().run(pa.Table.from_pylist(ROWS), sinks=sink, checkpoint=tmp_path)
        flow().run(pa.Table.from_pylist(ROWS), sinks=sink, checkpoint=tmp_path)
    sent = [(rows(request)[0]["device"], request.headers["Idempotency-Key"]) for request in server.requests]
    assert [device for device, _ in sent] == ["a", "b", "a", "b", "ü"]
    assert sent[0] == sent[2] and sent[1] == sent[3]  # a server that knows the keys stores each once


def test_slow_server_slows_the_source_and_nothing_is_dropped():
    """The sink holds no more than a batch; the source is asked for no more than the buffers take."""
    n, held = 20_000, []
    with Recorder() as server:
        sink = HTTPSink(url=server.url, batch_size=500, fields=("value",))
        send = HTTPSink.send_batch

        class Slow(HTTPSink):
            def send_batch(self, stream, batch, label):
                held.append(batch.num_rows)
                time.sleep(0.002)
                send(self, stream, batch, label)

        made = ro.Dataflow("slow")
        made.source("in", schema={"value": "int64"}).filter("value >= 0", id="kept").to("out")
        buffering = ro.Buffering(capacity=8_000, queue=16_000)
        slow = Slow(url=sink.url, batch_size=500, fields=("value",))
        summary = made.run(({"value": i} for i in range(n)), sinks=slow, buffering=buffering).summary
    assert [row["value"] for request in server.requests for row in rows(request)] == list(range(n))
    assert max(held) == 500 and summary.buffered <= 200_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://x"}, "http://host:port/path.*got ftp"),
        ({"url": "http://me:pa55@x"}, "must not hold user or password"),
        ({"url": "http://x?api_key=1"}, "'api_key', which may be a secret"),
        ({"url": "http://x/{device}"}, "field {stream} only, got {device}"),
        ({"url": "http://x:99999"}, "port between"),
        ({"ca_file": "a"}, "ca_file is for https"),
        ({"url": "https://x", "private_key": "a"}, "private_key needs certificate"),
        ({"username": "me"}, "belong together"),
        ({"token": "plain"}, "token must be a Secret"),
        ({"headers": {"Authorization": "Basic x"}}, "Authorization must be a Secret"),
        ({"headers": {"a b": "x"}}, "a name must have"),
        ({"headers": {"X": "a\nb"}}, "printable"),
        ({"headers": "X"}, "must be a mapping"),
        ({"format": "xml"}, "format = 'xml'"),
        ({"senml_name": "{device}"}, "senml_name is for format='senml'"),
        ({"verb": "GET"}, "verb = 'GET'"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"compression": "zstd"}, "compression must be 'none' or 'gzip', got 'zstd'"),
        ({"timeout": "0s"}, "timeout must be"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ro.ConfigError, match=message) as found:
        HTTPSink(**{"url": "http://x", **options})
    assert "pa55" not in str(found.value)


def test_login_twice():
    secret = ro.Secret("x")
    with pytest.raises(ro.ConfigError, match="either token or username"):
        HTTPConnection(url="http://x", token=secret, username="me", password=secret)


@pytest.mark.parametrize("options", [{"fields": ("nothing",)}, {"format": "senml", "senml_name": "{nothing}"}])
def test_missing_fields_are_refused_before_the_run(options):
    with pytest.raises(ro.ConfigError, match=r"'nothing'.*'kept' lacks"):
        flow().run(ROWS, sinks=HTTPSink(url="http://127.0.0.1:9", **options))


def test_secrets_are_not_shown():
    assert "never-shown" not in repr(HTTPSink(url="http://x", headers={"X-Key": ro.Secret("never-shown")}))
