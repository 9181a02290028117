"""A REST catalogue: both ends, a restart, conflicts, and refused credentials."""

from __future__ import annotations

import traceback

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import IcebergSink, IcebergSource
from riot_ops.core.errors import ConfigError, ConnectorError

pytest.importorskip("pyiceberg")
from tests.connectors.iceberg.rest_catalog import TOKEN, RestCatalog

ROWS = [{"bed": "ab"[i % 2], "value": float(i)} for i in range(6)]


@pytest.fixture
def rest(tmp_path):
    with RestCatalog(tmp_path) as catalog:
        yield catalog


def settings(rest: RestCatalog, token: str = TOKEN) -> dict:
    return {"type": "rest", "uri": rest.url, "token": ro.Secret(token)}


def copy(source, sink, **run):
    flow = ro.Dataflow("copy")
    schema = {"bed": "string", "value": "double"}
    flow.sink("kept", flow.source("in", schema=schema).apply(t.NoOp(), id="out"))
    return flow.run(source, sinks=sink, **run)


def test_from_table_to_table_with_a_restart(rest, tmp_path):
    for part in (ROWS[:4], ROWS[4:]):
        copy(part, IcebergSink("bronze", catalog=settings(rest), partition_by="bed"))
        source = IcebergSource("bronze.out", catalog=settings(rest))
        copy(source, IcebergSink("silver", catalog=settings(rest)), checkpoint=tmp_path / "kept")
    found = rest.backend.load_table("silver.out")
    assert sorted(found.scan().to_arrow()["value"].to_pylist()) == [row["value"] for row in ROWS]
    assert {f.name for f in rest.backend.load_table("bronze.out").spec().fields} == {"bed"}


def test_commit_is_tried_again_after_a_conflict(rest):
    sink = IcebergSink("bronze", catalog=settings(rest))
    copy(ROWS, sink)
    bound = sink.bind({"out": rest.backend.load_table("bronze.out").scan().to_arrow().schema})
    bound.begin(False)
    writer = bound.writer(0, 0)
    writer.write("out", rest.backend.load_table("bronze.out").scan().to_arrow().to_batches()[0])
    rest.conflicts = 2
    bound.commit(0, [writer.finish()])
    assert rest.conflicts == 0
    assert rest.backend.load_table("bronze.out").scan().count() == 2 * len(ROWS)


def test_refused_credentials_are_named_and_not_shown(rest):
    with pytest.raises(
        ConnectorError, match="refuses these credentials: check the settings of the catalogue"
    ) as caught:
        copy(ROWS, IcebergSink("bronze", catalog=settings(rest, "other-secret")))
    assert rest.url in str(caught.value)
    assert "other-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:hush4711@127.0.0.1:9/x?token=hush4711",
        "postgresql+psycopg://me:hush4711@127.0.0.1:9/db?password=hush4711",
    ],
)
def test_errors_with_their_causes_show_no_login_of_the_address(uri):
    kind = "rest" if uri.startswith("http") else "sql"
    with pytest.raises(ConfigError, match=r"catalog\['uri'\] may hold a secret: give Secret") as found:
        IcebergSink("bronze", catalog={"type": kind, "uri": uri, "warehouse": "/x"})
    assert "hush4711" not in "".join(traceback.format_exception(found.value))
    sink = IcebergSink("bronze", catalog={"type": kind, "uri": ro.Secret(uri), "warehouse": "/x"})
    with pytest.raises(ConnectorError, match="cannot be reached") as lost:
        copy(ROWS, sink)
    assert "hush4711" not in "".join(traceback.format_exception(lost.value)) + repr(sink)


@pytest.mark.parametrize("name", ["token", "credential", "s3.secret-access-key", "adls.account-key", "header.Cookie"])
def test_settings_with_secrets_must_be_secrets(name):
    with pytest.raises(ConfigError, match="may hold a secret: give Secret") as found:
        IcebergSource("bronze.out", catalog={"type": "rest", "uri": "http://host", name: "hush4711"})
    assert "hush4711" not in str(found.value)


def test_settings_without_secrets_may_be_texts():
    plain = {"s3.access-key-id": "AKIA", "oauth2-server-uri": "https://host/token", "token-refresh-enabled": "false"}
    IcebergSource("bronze.out", catalog={"type": "rest", "uri": "postgresql://me@host/db?sslmode=require", **plain})
