"""Azure stores with the emulator: failures, retries, and secrets that are never shown."""

from __future__ import annotations

import datetime as dt
import logging
import os
import pickle
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

import riot_ops as ro
from riot_ops import ConfigError, ConnectorError, Secret
from riot_ops import tasks as t
from riot_ops.connectors.retry import close_shared_clients
from riot_ops.connectors.stores import open_blobs, open_table
from riot_ops.connectors.stores.table import Row
from riot_ops.testing.services import Azurite

pytestmark = pytest.mark.integration

#: Endpoints without a server.
NOWHERE = "BlobEndpoint=http://127.0.0.1:1/a;TableEndpoint=http://127.0.0.1:1/a"
OTHER_KEY = "aHVzaA" * 14 + "aHU="


def _name():
    return f"t{uuid.uuid4().hex}"


def _calls(connection, name, retry="0s"):
    blobs = open_blobs(f"azure-blob://{name}", Secret(connection), retry=retry)
    table = open_table("azure-table://", name, Secret(connection), retry=retry)
    return [
        lambda: blobs.read("a"),
        lambda: blobs.write("a", b"x"),
        lambda: blobs.write("a", b"x", overwrite=False),
        lambda: blobs.delete("a"),
        blobs.list,
        lambda: table.insert([Row("p", "r", {"a": 1})]),
        lambda: table.insert([Row("p", "r", {"a": 1}), Row("p", "s", {"a": 1})]),
        lambda: table.get([("p", "r")]),
        lambda: table.range("p", "a", "z"),
    ]


def _errors(calls):
    for call in calls:
        with pytest.raises(ConnectorError) as caught:
            call()
        yield str(caught.value), "".join(traceback.format_exception(caught.value))


def test_missing_container_or_table_is_named(azurite):
    name = _name()
    for text, _ in _errors(_calls(azurite.connection, name, retry="30s")):  # fails without retries
        assert name in text and "NotFound" in text and "does not exist" in text


def test_wrong_key_fails_immediately_and_is_not_shown(azurite, caplog):
    caplog.set_level(logging.DEBUG)
    connection = azurite.connection.replace(azurite.key, OTHER_KEY)
    for text, trace in _errors([*_calls(connection, _name(), retry="30s")]):
        assert "HTTP 403" in text and "is not accepted" in text
        assert OTHER_KEY not in trace + text and "MAC signature" not in trace
    assert OTHER_KEY not in caplog.text


@pytest.mark.parametrize("connection", ["hush", f"AccountName=a;AccountKey=hush;{NOWHERE}", "AccountKey=hush;hush;;="])
def test_malformed_connection_string_is_not_shown(connection):
    def blobs():
        open_blobs("azure-blob://models", Secret(connection), retry="0s").list()

    def table():
        open_table("azure-table://", "models", Secret(connection), retry="0s").get([("a", "b")])

    for use in (blobs, table):
        with pytest.raises((ConfigError, ConnectorError)) as caught:
            use()
        assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_missing_environment_variable_is_named(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    with pytest.raises(ConfigError, match="AZURE_STORAGE_CONNECTION_STRING"):
        open_blobs("azure-blob://models")


def test_unreachable_server_is_an_error(azurite):
    connection = f"AccountName=a;AccountKey={OTHER_KEY};{NOWHERE}"
    started = time.monotonic()
    for text, trace in _errors(_calls(connection, _name(), retry="300ms")):
        assert "Connection refused" in text and " tries" in text
        assert OTHER_KEY not in trace
    assert time.monotonic() - started < 40


def test_token_appears_neither_in_errors_nor_in_logs(azurite, caplog):
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    token = generate_account_sas(
        azurite.account,
        azurite.key,
        ResourceTypes(container=True, object=True),
        AccountSasPermissions(read=True, write=True, create=True),
        dt.datetime.now(dt.UTC) + dt.timedelta(hours=1),
    )
    signature = token.partition("sig=")[2].partition("&")[0]
    endpoint = azurite.connection.partition("BlobEndpoint=")[2].partition(";")[0]
    name = _name()
    caplog.set_level(logging.DEBUG)
    with open_blobs(
        f"azure-blob://{name}", Secret(f"BlobEndpoint={endpoint};SharedAccessSignature={token}"), retry="0s"
    ) as store:
        store.create()
        store.write("a", b"x")
        assert store.read("a") == b"x"
        (text, trace), *_ = _errors([lambda: store.delete("a")])  # the token does not allow it
        assert "HTTP 403" in text
    with open_blobs(f"azure-blob://{name}", Secret(f"{NOWHERE};SharedAccessSignature={token}"), retry="0s") as store:
        (_, more), *_ = _errors([lambda: store.read("a")])
    for shown in (caplog.text, trace, more):
        assert signature not in shown
    assert "sig=***" in caplog.text  # the URLs were logged


def test_tasks_do_not_show_their_credential(azurite):
    for secret in (Secret(azurite.connection), Secret.env("AZURITE_TEST")):
        task = t.UploadBlob(store="azure-blob://models", credential=secret)
        shown = f"{task!r} {task} {task.to_dict()}"
        assert azurite.key not in shown
    assert azurite.connection.encode() not in pickle.dumps(task)
    assert t.Task.from_dict(task.to_dict()) == task


# -- restarts --------------------------------------------------------------------------------------


@pytest.fixture
def own_azurite(monkeypatch):
    with Azurite() as service:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", service.connection)
        yield service
    close_shared_clients()


def test_restart_of_the_server_loses_and_repeats_no_row(own_azurite):
    name, rows = _name(), 1000
    blobs, table = open_blobs(f"azure-blob://{name}"), open_table("azure-table://", name)
    blobs.create()
    table.create()
    flow = ro.Dataflow("stores")
    source = flow.source("in", schema={"seq": "int64", "sensor": "string", "text": "string"})
    inserted = source.to(t.InsertTable(store="azure-table://", table=name, partition="{sensor}", row="{seq}"), id="ati")
    uploaded = source.to(
        t.UploadBlob(store=f"azure-blob://{name}", blob="{seq}", value="text", gather="lines/{seq}"), id="abu"
    )
    flow.sink("out", inserted, uploaded)
    some = threading.Event()

    def progress(summary):
        if summary.rows.get("ati", 0) >= 300:
            some.set()

    records = [{"seq": i, "sensor": f"s{i % 3}", "text": f"v{i}"} for i in range(rows)]
    # the main thread starts the server, which ends with the thread that started it
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, records, batch_size=100, epoch_rows=100, progress=progress)
        assert some.wait(60)
        own_azurite.stop()
        time.sleep(1)
        assert not running.done(), "the run ended before the server stopped"
        own_azurite.start()
        result = running.result(120)
    assert result["ati"].num_rows == result["abu"].num_rows == rows and result.errors.num_rows == 0
    found = [(r.partition, r.values["seq"], r.values["text"]) for p in range(3) for r in table.range(f"s{p}", "0", "9")]
    assert sorted(found, key=lambda r: r[1]) == [(f"s{i % 3}", i, f"v{i}") for i in range(rows)]
    lines = [line for blob in blobs.list("lines/") for line in blobs.read(blob).splitlines()]
    assert len(lines) == len(set(lines)) == rows


def test_large_upload_survives_a_restart_of_the_server(own_azurite):
    store = open_blobs(f"azure-blob://{_name()}")
    store.create()
    data = os.urandom(1 << 20) * 50
    upload = threading.Thread(target=store.write, args=("big", data))
    upload.start()
    time.sleep(0.2)
    own_azurite.stop()
    own_azurite.start()
    upload.join(60)
    assert not upload.is_alive() and store.read("big") == data
