"""Database tables: with SQLite, and the statements for other databases."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
import traceback

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateTable

from riot_ops import ConfigError, ConnectorError, Secret
from riot_ops.connectors.stores import sql
from riot_ops.connectors.stores.sql import SqlTable, upsert
from riot_ops.connectors.stores.sql_url import check_sql_url

SCHEMA = pa.schema(
    [
        ("sensor", pa.string()),
        ("n", pa.int64()),
        ("value", pa.float64()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.float64())),
    ]
)


@pytest.fixture
def table(tmp_path):
    with SqlTable(f"sqlite:///{tmp_path}/rows.db", "rows", SCHEMA, ("sensor", "n"), retry="5s") as opened:
        yield opened


def _row(sensor="s", n=1, **values):
    return {**dict.fromkeys(SCHEMA.names), "sensor": sensor, "n": n, **values}


def test_columns_keep_their_types(table, tmp_path):
    time = dt.datetime(2015, 2, 1, 0, 0, 59, 5, dt.UTC)
    row = _row(value=0.1, flag=True, time=time, raw=b"\x00\xff", list="[1.5]")
    assert table.write([row, _row(n=2)])
    first, second = table.read()
    assert first == {**row, "time": time.replace(tzinfo=None)}
    assert second == _row(n=2)
    with sqlite3.connect(tmp_path / "rows.db") as plain:
        kinds = {name: kind for _, name, kind, *_ in plain.execute("pragma table_info(rows)")}
    assert kinds == {
        "sensor": "VARCHAR(512)",
        "n": "BIGINT",
        "value": "DOUBLE",
        "flag": "BOOLEAN",
        "time": "DATETIME",
        "raw": "BLOB",
        "list": "TEXT",
    }


ROWS = st.lists(st.tuples(st.sampled_from("aü'"), st.integers(0, 3), st.integers(-9, 9)), max_size=12)


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["sqlite", "other"])
@given(batches=st.lists(ROWS, max_size=4))
def test_upserts_equal_a_dict(dialect, batches):
    latest = {}
    columns = pa.schema([("sensor", pa.string()), ("n", pa.int64()), ("v", pa.int64())])
    with pytest.MonkeyPatch.context() as patch, SqlTable("sqlite://", "rows", columns, ("sensor", "n")) as table:
        patch.setattr(sql, "upsert", lambda opened, name: upsert(opened, dialect))
        for batch in batches:
            rows = {(sensor, n): {"sensor": sensor, "n": n, "v": v} for sensor, n, v in batch}
            latest.update(rows)
            assert table.write(list(rows.values()))
        assert table.read() == [latest[key] for key in sorted(latest)]


@pytest.mark.parametrize("dialect", ["sqlite", "other"])
def test_table_with_only_key_columns(dialect, monkeypatch):
    monkeypatch.setattr(sql, "upsert", lambda opened, name: upsert(opened, dialect))
    with SqlTable("sqlite://", "rows", pa.schema([("k", pa.string())]), ("k",)) as table:
        assert table.write([{"k": "a"}]) and table.write([{"k": "a"}, {"k": "b"}])
        assert table.read() == [{"k": "a"}, {"k": "b"}]


def test_refused_batch_writes_no_row(table):
    assert not table.write([_row(n=1), _row(n=1 << 63)])
    assert table.read() == []


def test_statements_of_other_databases():
    table = sql.SqlTable("sqlite://", "rows", SCHEMA, ("sensor",)).table
    text = str(CreateTable(table, if_not_exists=True).compile(dialect=postgresql.dialect()))
    assert 'sensor VARCHAR(512) COLLATE "C" NOT NULL' in text and "time TIMESTAMP WITH TIME ZONE" in text
    assert "ON CONFLICT (sensor) DO UPDATE SET" in str(
        upsert(table, "postgresql")[0].compile(dialect=postgresql.dialect())
    )
    text = str(CreateTable(table).compile(dialect=mysql.dialect()))
    assert "raw BLOB(4294967295)" in text and "sensor VARCHAR(512) COLLATE utf8mb4_bin NOT NULL" in text
    assert [s.is_delete for s in upsert(table, "mysql")] == [True, False]


@pytest.mark.long
def test_locked_database_is_retried(table, tmp_path, monkeypatch):
    table.write([_row()])
    other = sqlite3.connect(tmp_path / "rows.db", check_same_thread=False, isolation_level=None)
    other.execute("begin immediate")

    def release():
        time.sleep(0.5)
        other.execute("commit")
        other.close()

    thread = threading.Thread(target=release)
    thread.start()
    assert table.write([_row(n=2)])
    thread.join()
    assert len(table.read()) == 2


def test_concurrent_writers(tmp_path):
    def write(w):
        with SqlTable(f"sqlite:///{tmp_path}/rows.db", "rows", SCHEMA, ("sensor", "n")) as table:
            for n in range(20):
                assert table.write([_row(f"s{w}", n), _row("all", n, value=float(w))])

    threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with SqlTable(f"sqlite:///{tmp_path}/rows.db", "rows", SCHEMA, ("sensor", "n")) as table:
        assert len(table.read()) == 5 * 20


def test_table_with_other_columns_is_an_error(tmp_path):
    url = f"sqlite:///{tmp_path}/rows.db"
    with SqlTable(url, "rows", pa.schema([("k", pa.string())]), ("k",)) as old:
        old.create()
    with SqlTable(url, "rows", pa.schema([("k", pa.string()), ("v", pa.int64())]), ("k",)) as table:
        with pytest.raises(ConnectorError, match=r"rows .*no column named v") as caught:
            table.write([{"k": "a", "v": 4711}])
        assert "4711" not in str(caught.value)


def test_missing_folder_is_an_error(tmp_path):
    table = SqlTable(f"sqlite:///{tmp_path}/no/rows.db", "rows", SCHEMA, ("n",), retry="0s")
    with pytest.raises(ConnectorError, match="unable to open database file"):
        table.write([_row()])


def test_full_disk_is_an_error_and_keeps_the_old_rows(table):
    table.write([_row()])
    with table.begin() as connection:
        pages = connection.exec_driver_sql("pragma page_count").scalar()

    @sa.event.listens_for(table.engine, "checkout")
    def small(connection, *_):
        connection.execute(f"pragma max_page_count={pages}")

    with pytest.raises(ConnectorError, match="full"):
        table.write([_row(n=2, raw=bytes(1 << 20))])
    assert [row["n"] for row in table.read()] == [1]


def _mocked_table(monkeypatch):
    """A table with a password and without a connection, and the address that it would connect to."""
    addresses = []

    def create_engine(address, **options):
        addresses.append(address)
        return sa.create_mock_engine("sqlite://", None)

    monkeypatch.setattr(sa, "create_engine", create_engine)
    return SqlTable("postgresql://me@h/d", "rows", SCHEMA, ("n",), Secret("hush")), addresses[0]


def test_password_is_a_separate_parameter_and_never_shown(monkeypatch):
    for url in ("postgresql://me:hush@h/d", "mysql+pymysql://:hush@h/d", "postgresql://h/d?password=hush"):
        with pytest.raises(ConfigError, match=r"holds? a password") as caught:
            check_sql_url("store", url)
        assert "hush" not in str(caught.value)
    table, address = _mocked_table(monkeypatch)
    assert address.password == "hush"
    assert "hush" not in f"{table.label} {table!r} {address}"


def test_password_in_an_error_is_masked(monkeypatch):
    table, _ = _mocked_table(monkeypatch)
    error = sa.exc.OperationalError("connect", {}, sqlite3.OperationalError("no entry for me:hush"))
    failure = table.explain_failure(error)
    assert failure.message == "no entry for me:***"
    assert "hush" not in "".join(traceback.format_exception(ConnectorError(failure.message)))


@pytest.mark.parametrize("url", ["", "file.db", "postgres://h/d", "redis://h"])
def test_invalid_urls_are_refused(url):
    with pytest.raises(ConfigError, match="address of a database"):
        check_sql_url("store", url)
