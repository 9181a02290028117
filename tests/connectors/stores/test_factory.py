"""Stores and sources pass every option of their URL-based constructors on."""

from __future__ import annotations

import pytest

from riot_ops.connectors.mqtt import source as mqtt
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.connectors.stores import factory, open_blobs, open_table
from riot_ops.core.secret import Secret

SECRET = Secret("hush")


@pytest.fixture
def opened(monkeypatch):
    found = []
    for name in ("AzureBlobs", "AzureTable", "SqlBlobs", "SqlTableStore"):
        monkeypatch.setattr(factory, name, lambda *args, name=name, **options: found.append((name, args, options)))
    return found


@pytest.mark.parametrize(("retry", "wanted"), [({}, "1min"), ({"retry": "7s"}, "7s")], ids=str)
def test_blob_stores_get_all_options(opened, retry, wanted):
    open_blobs("azure-blob://models", SECRET, **retry)
    assert opened.pop() == ("AzureBlobs", ("models", SECRET), {"retry": wanted})
    url = "postgresql://me@host/db"
    open_blobs(url, SECRET, **retry)
    assert opened.pop() == ("SqlBlobs", (url, SECRET), {"retry": wanted})


@pytest.mark.parametrize(("retry", "wanted"), [({}, "1min"), ({"retry": "7s"}, "7s")], ids=str)
@pytest.mark.parametrize(("options", "at_once"), [({}, 8), ({"max_concurrency": 3}, 3)], ids=str)
def test_table_stores_get_all_options(opened, retry, wanted, options, at_once):
    open_table("azure-table://", "rows", SECRET, **retry, **options)
    assert opened.pop() == ("AzureTable", ("rows", SECRET), {"retry": wanted, "max_concurrency": at_once})
    url = "postgresql://me@host/db"
    open_table(url, "rows", SECRET, **retry)
    assert opened.pop() == ("SqlTableStore", (url, "rows", SECRET), {"retry": wanted})


def test_mqtt_source_subscribes_with_its_options(tmp_path, monkeypatch):
    receivers = []

    class FakeReceiver:
        def __init__(self, subscription, spool):
            self.subscription, self.spool = subscription, spool
            receivers.append(self)

        def wait_ready(self):
            pass

        def close(self):
            self.spool.close()

    monkeypatch.setattr(mqtt, "Receiver", FakeReceiver)
    options = {"qos": 2, "time_property": "at", "id_properties": ("a", "b"), "max_spool_bytes": 5 << 20}
    for changed, expiry in (({}, {}), (options, {"session_expiry": "77s"})):
        source = MQTTSource(
            url="mqtt://b",
            topics=("t/#",),
            client_id="me",
            spool=str(tmp_path / f"{len(changed)}"),
            **changed,
            **expiry,
        )
        source.open()
        receiver = receivers.pop()
        source.close()
        subscription, spool = receiver.subscription, receiver.spool
        wanted = {
            "qos": 1,
            "session_s": 604_800,
            "time_property": None,
            "id_properties": (),
            "max_spool_bytes": 1 << 30,
        }
        wanted |= changed | ({"session_s": 77} if expiry else {})
        assert (spool.max_bytes, str(spool.folder)) == (wanted.pop("max_spool_bytes"), source.spool)
        assert {name: getattr(subscription, name) for name in wanted} == wanted
        assert (subscription.topics, subscription.connection.url) == (("t/#",), "mqtt://b")
