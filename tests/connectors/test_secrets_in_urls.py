"""No form of a URL leaks a secret into an error, a log, a repr or a descriptor."""

from __future__ import annotations

import logging
import traceback

import pytest
import sqlalchemy as sa

from riot_ops import ConfigError, Secret, dataflows
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.connectors.stores import open_blobs, open_table
from riot_ops.connectors.stores.sql import SqlTable
from riot_ops.connectors.stores.sql_url import SAFE_PARAMETERS, check_sql_url
from riot_ops.dataflows.local_services import LocalServices
from tests.connectors.stores.test_sql import SCHEMA

WORD = "hush4711"

DATABASES = [
    f"postgresql://me:{WORD}@h/d",
    f"mysql+pymysql://:{WORD}@h/d",
    f"postgresql://me%3A{WORD}@h/d",
    f"postgresql://me:a@{WORD}@h/d",
    f"postgresql://h:{WORD}/d",
    f"postgresql://[{WORD}/d",
    f"postgresql://h/d#{WORD}",
    f"postgresql://h/d;password={WORD}",
    f"postgresql://h/d?{WORD}",
    f"postgresql://h/d?=&{WORD}=",
    *(
        f"postgresql://h/d?{name}={WORD}"
        for name in (
            "password",
            "PASSWORD",
            "passwd",
            "pwd",
            "token",
            "sig",
            "secret",
            "sslpassword",
            "passfile",
            "key",
        )
    ),
    f"postgresql://h/d?options=-c%20app.key%3D{WORD}",
    f"postgresql://h/d?sslmode=require&sslpassword={WORD}",
    f"postgresql://h/d?application_name=x%3Dy&p%77d={WORD}",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BX%7D%3BUID%3Dme%3BPWD%3D{WORD}",
    f"mssql+pyodbc://h/d?driver=X;PWD={WORD}",
    f"mssql+pyodbc://h/d?driver=X%3BPWD%3D{WORD}",
    f"sqlite:///f.db?key={WORD}",
    f"sqlite:///f.db#{WORD}",
]
BROKERS = [
    f"mqtt://me:{WORD}@h",
    f"mqtt://{WORD}@h",
    f"mqtt://h?password={WORD}",
    f"mqtt://h:1883/?{WORD}",
    f"mqtt://h#{WORD}",
    f"mqtt://h/{WORD}",
    f"mqtt://h:{WORD}",
    f"mqtt://[{WORD}",
    f"wss://h/mqtt?token={WORD}",
    f"http://h/?key={WORD}",
    f"mqtt:{WORD}",
    f"file:///tmp/x?password={WORD}",
    f"file://{WORD}/tmp/x",
]
FOLDERS = [f"file:///tmp/x?sig={WORD}", f"file:///tmp/x#{WORD}", f"azure-blob://models?sig={WORD}", f"s3://{WORD}@b"]


def refused(caplog, build):
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as caught:
        build()
    lines = [*traceback.format_exception(caught.value), caplog.text]
    lines = [line for text in lines for line in text.splitlines() if "build" not in line and "lambda" not in line]
    assert not any(WORD in line or WORD.upper() in line for line in lines), lines


@pytest.mark.parametrize("url", DATABASES)
def test_database_urls_leak_no_secret(url, caplog):
    for build in (
        lambda: check_sql_url("store", url),
        lambda: open_table(url, "rows"),
        lambda: open_blobs(url),
        lambda: SqlTable(url, "rows", SCHEMA, ("n",)),
        lambda: t.InsertSQL(store=url, table="rows", primary_key=("n",)),
        lambda: t.InsertTable(store=url, table="rows", partition="p", row="{n}"),
        lambda: t.UploadBlob(store=url),
        lambda: t.PredictLinearRegression(inputs=("x",), store=url, model="m"),
        lambda: dataflows.etl(store=url),
        lambda: dataflows.train(table_store=url),
    ):
        refused(caplog, build)


@pytest.mark.long
@pytest.mark.parametrize("url", BROKERS)
def test_broker_urls_leak_no_secret(url, caplog, tmp_path):
    for build in (
        lambda: MQTTConnection(url=url),
        lambda: t.PublishMQTT(url=url, topic="x"),
        lambda: MQTTSource(url=url, topics=("x",), client_id="a", spool=str(tmp_path)),
        lambda: dataflows.stats(publish={"url": url, "topic": "x"}),
        lambda: LocalServices("city", tmp_path, broker=url).etl(["a"]),
    ):
        refused(caplog, build)


@pytest.mark.parametrize("url", FOLDERS)
def test_folder_and_container_urls_leak_no_secret(url, caplog):
    refused(caplog, lambda: open_blobs(url))
    refused(caplog, lambda: t.UploadBlob(store=url))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///my data/f.db?mode=ro&uri=true",
        "postgresql+psycopg://me@h:5432/d?sslmode=verify-full&sslrootcert=/etc/ca.crt&application_name=a b",
        "mysql+pymysql://me@h/d?charset=utf8mb4",
        "mssql+pyodbc://me@h/d?driver=ODBC+Driver+18+for+SQL+Server&TrustServerCertificate=yes&Encrypt=yes",
    ],
)
def test_harmless_parameters_are_allowed(url):
    check_sql_url("store", url)


def test_error_lists_the_allowed_parameters():
    with pytest.raises(ConfigError, match=f"allowed are {', '.join(sorted(SAFE_PARAMETERS))}"):
        check_sql_url("store", "postgresql://h/d?options=x")


@pytest.mark.parametrize("store", ["sqlite://", "sqlite:///rows.db"])
def test_sqlite_takes_no_credential(store, caplog):
    """SQLite has no users; the driver would fail only at the first record."""
    secret = Secret(WORD)
    for build in (
        lambda: t.InsertSQL(store=store, table="rows", primary_key=("n",), credential=secret),
        lambda: t.InsertTable(store=store, table="rows", partition="p", row="{n}", credential=secret),
        lambda: t.UploadBlob(store=store, credential=secret),
        lambda: open_table(store, "rows", secret),
        lambda: open_blobs(store, secret),
        lambda: SqlTable(store, "rows", SCHEMA, ("n",), secret),
        lambda: dataflows.etl(store=store, credential=secret),
    ):
        with pytest.raises(ConfigError, match="SQLite has no users and takes no credential"):
            build()
        refused(caplog, build)


def test_error_of_an_unknown_driver_is_one_line():
    with pytest.raises(ConfigError, match=r"the driver of postgresql\+nothing:// is not installed"):
        SqlTable("postgresql+nothing://h/d", "rows", SCHEMA, ("n",))


def test_label_of_a_table_is_its_url(monkeypatch):
    monkeypatch.setattr(sa, "create_engine", lambda address, **options: sa.create_mock_engine("sqlite://", None))
    table = SqlTable("postgresql://me@h/d?sslmode=require", "rows", SCHEMA, ("n",), Secret(WORD))
    assert table.label == "the table rows of postgresql://me@h/d?sslmode=require"
