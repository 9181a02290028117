"""Writing streams to PostgreSQL, read again by a bare client."""

from __future__ import annotations

import datetime as dt
import logging
import math
import pickle
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.connectors import PostgresSink, retry
from riot_ops.connectors.postgres_types import column_type
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.testing.services import Postgres

pytestmark = pytest.mark.integration
PASSWORD = "never-shown"
SECRET = ro.Secret(PASSWORD)
ROWS = pa.table({"device": ["a", "b", "a"], "value": [1.5, None, 2.5]})


@pytest.fixture(scope="module")
def server():
    with Postgres(password=PASSWORD, options=("fsync=off",)) as one:
        yield one


@pytest.fixture
def database(server):
    """A connection to a database without tables."""
    with psycopg.connect(server.url, password=PASSWORD, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        yield connection


def flow(schema=None):
    made = ro.Dataflow("db")
    made.source("in", schema=schema or {"device": "string", "value": "double"}).filter("seq >= 0", id="kept").to("out")
    return made


def sink(server, **options):
    return PostgresSink(**{"url": server.url, "credential": SECRET, **options})


def rows(database, query):
    return database.execute(query).fetchall()


def stages(database):
    return rows(database, "SELECT relname FROM pg_class WHERE relname LIKE 'riot_ops_stage%'")


def test_append_makes_tables_and_adds_to_them(server, database):
    for _ in range(2):
        flow().run(ROWS, sinks=sink(server, batch_size=2))
    assert rows(database, "SELECT * FROM kept") == [(0, "a", 1.5), (1, "b", None), (2, "a", 2.5)] * 2
    assert rows(database, "SELECT count(*) FROM errors") == [(0,)] and not stages(database)
    assert rows(database, "SELECT stream, batch, row_count FROM riot_ops_batches") == [("kept", 0, 3)] * 2
    flow().run(ROWS.slice(0, 1), sinks=sink(server), overwrite=True)
    assert rows(database, "SELECT * FROM kept") == [(0, "a", 1.5)]
    assert len(rows(database, "SELECT * FROM riot_ops_batches")) == 1


def test_upsert_keeps_the_last_record_of_each_key(server, database):
    upsert = sink(server, mode="upsert", by="device", table_name="last_{stream}", batch_size=1)
    flow().run(ROWS, sinks=upsert)
    assert sorted(rows(database, "SELECT * FROM last_kept")) == [(1, "b", None), (2, "a", 2.5)]
    flow().run(pa.table({"device": ["b", "c"], "value": [7.0, 8.0]}), sinks=upsert)
    assert sorted(rows(database, "SELECT device, value FROM last_kept")) == [("a", 2.5), ("b", 7.0), ("c", 8.0)]


def test_upsert_of_keys_alone(server, database):
    flow({"device": "string"}).run(
        pa.table({"device": ["a", "a"]}), sinks=sink(server, mode="upsert", by=("device", "seq"))
    )
    assert rows(database, "SELECT seq, device FROM kept ORDER BY seq") == [(0, "a"), (1, "a")]


def test_upsert_of_fields_with_dots_and_quotes(server, database):
    made = ro.Dataflow("db")
    made.source("in", schema={"a.b": "string", 'x"y z': "double"}).filter("seq >= 0", id="kept").to("out")
    for value in (1.5, 2.5):
        made.run(
            pa.table({"a.b": ["k"], 'x"y z': [value]}), sinks=sink(server, mode="upsert", by="a.b", table_name="last")
        )
    assert rows(database, "SELECT * FROM last") == [(0, "k", 2.5)]


def test_tables_of_the_user_keep_their_columns(server, database):
    database.execute("CREATE SCHEMA plant")
    database.execute(
        "CREATE TABLE plant.air (id serial PRIMARY KEY, device varchar(9), value numeric, seq int, at date DEFAULT '2026-01-01')"
    )
    flow().run(ROWS, sinks=sink(server, table_name="plant.air"))
    assert rows(database, "SELECT id, device, value, at FROM plant.air WHERE seq = 2") == [
        (3, "a", Decimal("2.5"), dt.date(2026, 1, 1))
    ]
    assert rows(database, "SELECT count(*) FROM plant.air_errors") == [(0,)]


def test_values_of_all_types(server, database):
    moment = dt.datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=dt.UTC)
    table = pa.table(
        {
            "b": [True],
            "i8": pa.array([-5], pa.int8()),
            "u16": pa.array([65535], pa.uint16()),
            "i32": pa.array([-(2**31)], pa.int32()),
            "u32": pa.array([2**32 - 1], pa.uint32()),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "f4": pa.array([0.1], pa.float32()),
            "f8": [float("nan")],
            "inf": [float("-inf")],
            "s": ['a"b,\n\\.\t\\N'],
            "empty": [""],
            "none": pa.array([None], pa.string()),
            "raw": [b"\x00\xff"],
            "dec": [Decimal("-12.30")],
            "ts": pa.array([moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
            "day": [dt.date(2026, 1, 2)],
            "clock": [dt.time(1, 2, 3)],
            "span": pa.array([90], pa.duration("s")),
            "list": [[1, None]],
            "code": pa.array(["x"]).dictionary_encode(),
        }
    )
    flow(table.schema).run(table, sinks=sink(server))
    (found,) = rows(database, "SELECT * FROM kept")
    row = dict(zip(["seq", *table.column_names], found, strict=True))
    assert math.isnan(row.pop("f8")) and row.pop("seq") == 0
    assert row == {
        "b": True, "i8": -5, "u16": 65535, "i32": -(2**31), "u32": 2**32 - 1, "u64": Decimal(2**64 - 1),
        "f4": pytest.approx(0.1, rel=1e-7), "inf": float("-inf"), "s": 'a"b,\n\\.\t\\N', "empty": "", "none": None,
        "raw": b"\x00\xff", "dec": Decimal("-12.30"), "ts": moment, "local": moment.replace(tzinfo=None),
        "day": dt.date(2026, 1, 2), "clock": dt.time(1, 2, 3), "span": dt.timedelta(seconds=90), "list": [1, None],
        "code": "x",
    }  # fmt: skip


class _Crash(Exception):
    pass


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "by": "seq"}], ids=["append", "upsert"])
@pytest.mark.parametrize("after_commit", [False, True], ids=["before-commit", "between-commit-and-checkpoint"])
def test_each_record_once_after_a_crash(server, database, tmp_path, monkeypatch, options, after_commit):
    """The run that continues cuts other epochs than the one that crashed, and so writes another batch 1."""
    table = pa.table({"device": [f"d{i}" for i in range(10)], "value": [float(i) for i in range(10)]})
    written, commit = [], PostgresSink.commit

    def write(self, saved, real=Checkpoint.write):
        written.append(saved.epoch)
        if after_commit and saved.epoch == 2:
            raise _Crash
        real(self, saved)

    def fail(self, batch_id, messages):
        if not after_commit and batch_id == 1:
            raise _Crash
        commit(self, batch_id, messages)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", write)
        patched.setattr(PostgresSink, "commit", fail)
        with pytest.raises(_Crash):
            flow().run(table, sinks=sink(server, **options), checkpoint=tmp_path, batch_size=3, epoch_rows=3)
    before = rows(database, "SELECT count(*) FROM kept")[0][0]
    assert before == (6 if after_commit else 3), written
    flow().run(table, sinks=sink(server, **options), checkpoint=tmp_path, batch_size=4, epoch_rows=4)
    assert sorted(rows(database, "SELECT device, value FROM kept")) == [(f"d{i}", float(i)) for i in range(10)]
    assert not stages(database)


def test_rows_that_another_program_changed_are_reported(server, database, caplog):
    made = sink(server).bind({"kept": ROWS.schema})
    made.identify("run")
    made.begin(False)
    _write(made, 0, ROWS)
    database.execute("UPDATE kept SET value = 0 WHERE device = 'b'")
    with caplog.at_level(logging.WARNING):
        made.recover(0)
    assert rows(database, "SELECT device FROM kept") == [("b",)]
    assert "of its 3 rows in kept only 2" in caplog.text


def _write(made, batch, table):
    writer = made.writer(batch, 0)
    for part in table.to_batches():
        writer.write("kept", part)
    message = writer.finish()
    made.commit(batch, [message])
    return message


def test_batch_is_committed_once(server, database):
    made = sink(server).bind({"kept": ROWS.schema})
    made.identify("run")
    made.begin(False)
    message = _write(made, 0, ROWS)
    made.commit(0, [message])
    made.resume(0)  # as Spark does: the same records come again
    _write(made, 0, ROWS)
    assert rows(database, "SELECT count(*) FROM kept") == [(3,)]
    made.identify("another run")
    _write(made, 0, ROWS)
    assert rows(database, "SELECT count(*) FROM kept") == [(6,)]


def _from_elsewhere(made):
    """The sink as a worker has it, in another process than the commit."""
    there = pickle.loads(pickle.dumps(made))
    object.__setattr__(there, "_home", "elsewhere")
    return there


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "by": "device"}], ids=["append", "upsert"])
def test_writers_in_other_processes_use_staging_tables(server, database, options):
    made = sink(server, **options).bind({"kept": ROWS.schema})
    made.identify("run")
    made.begin(False)
    there = _from_elsewhere(made)
    messages = []
    for partition, given in ((1, ROWS.slice(1)), (0, ROWS.slice(0, 1))):
        writer = there.writer(0, partition)
        writer.write("kept", given.to_batches()[0])
        messages.append(writer.finish())
    writer = there.writer(0, 2)
    writer.write("kept", ROWS.to_batches()[0])
    writer.abort()
    assert rows(database, "SELECT count(*) FROM kept") == [(0,)] and len(stages(database)) == 2
    made.commit(0, messages)
    made.commit(0, messages)
    wanted = [("a", 1.5), ("a", 2.5), ("b", None)]
    assert rows(database, "SELECT device, value FROM kept ORDER BY 1, 2") == (wanted[1:] if options else wanted)
    assert not stages(database)


def test_staging_tables_of_failed_batches_are_removed(server, database):
    made = sink(server).bind({"kept": ROWS.schema})
    made.identify("run")
    made.begin(False)
    for batch in (1, 2):
        writer = _from_elsewhere(made).writer(batch, 0)
        writer.write("kept", ROWS.to_batches()[0])
        message = writer.finish()
    made.abort(1)
    assert [name.split("_")[4] for (name,) in stages(database)] == ["2"]
    database.execute(f"TRUNCATE {message['stages'][0][1]}")  # as a crash of the server does with unlogged tables
    with pytest.raises(ro.ConnectorError, match="0 rows instead of 3"):
        made.commit(2, [message])
    made.resume(1)
    assert not stages(database)


def test_lost_server_ends_the_run_and_the_next_one_continues(database, server, tmp_path):
    """The server is killed while a batch is open."""
    with Postgres(password=PASSWORD) as own:
        made = sink(own).bind({"kept": ROWS.schema})
        made.identify("run")
        made.begin(False)
        _write(made, 0, ROWS)
        writer = made.writer(1, 0)
        writer.write("kept", ROWS.to_batches()[0])
        message = writer.finish()
        own.kill()
        with pytest.raises(ro.ConnectorError, match="batch 1 cannot be committed") as found:
            made.commit(1, [message])
        assert found.value.retryable
        own.start()
        with pytest.raises(ro.ConnectorError, match="batch 1 was not committed"):
            made.commit(1, [message])
        made.recover(1)
        with psycopg.connect(own.url, password=PASSWORD) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (3,)


def test_refused_logins_and_missing_servers_are_named(server, database, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    for options, message in (
        ({"credential": ro.Secret("wr0ng-secret")}, "password authentication failed.*check url= and credential="),
        ({"url": server.url.replace("/postgres", "/nowhere")}, 'database "nowhere" does not exist.*check url='),
        ({"url": "postgresql://riot@127.0.0.1:9/x", "retry": "5ms"}, "127.0.0.1:9/x.*refused.*check url="),
        ({"url": "postgresql://riot@nowhere.invalid/x", "retry": "5ms"}, "nowhere.invalid/x.*resolve.*check url="),
        ({"credential": None, "retry": "5ms"}, r"no password supplied \(give credential=Secret.env"),
        ({"url": f"{server.url}?sslmode=require", "retry": "5ms"}, "SSL was required.*check sslmode"),
    ):
        with pytest.raises(ro.ConnectorError, match=message) as found:
            flow().run(ROWS, sinks=sink(server, **options))
        assert "wr0ng" not in str(found.value) and PASSWORD not in str(found.value)


@pytest.mark.parametrize(
    ("statement", "options", "message"),
    [
        (
            "CREATE TABLE kept (seq bigint, device text)",
            {},
            "table kept .*lacks the column 'value' of the stream 'kept'",
        ),
        ("SELECT 1", {"create": False}, "has no table kept for the stream 'kept': create it"),
        ("CREATE VIEW kept AS SELECT 1 AS seq", {}, "kept .*is not a table"),
        (
            "CREATE TABLE kept (seq bigint, device text, value float8)",
            {"mode": "upsert", "by": "device"},
            "no primary key and no unique index over device",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused_before_the_run(server, database, statement, options, message):
    database.execute(statement)
    with pytest.raises(ro.ConnectorError, match=message):
        flow().run(ROWS, sinks=sink(server, **options))


def test_missing_schemas_and_rights_are_named(server, database):
    database.execute("DROP ROLE IF EXISTS reader")
    database.execute("CREATE ROLE reader LOGIN PASSWORD 'never-shown'")
    database.execute("GRANT USAGE ON SCHEMA public TO reader")
    reader = {"url": server.url.replace("riot@", "reader@")}
    for options, message in (
        ({"table_name": "nowhere.kept"}, 'schema "nowhere" does not exist.*create the schema'),
        (reader, r"postgresql://reader@.*permission denied.*grant the user of url= the right"),
    ):
        with pytest.raises(ro.ConnectorError, match=message):
            flow().run(ROWS, sinks=sink(server, **options))


def test_records_that_a_table_refuses_end_the_run(server, database):
    database.execute("CREATE TABLE kept (seq bigint, device varchar(1), value float8)")
    with pytest.raises(ro.ConnectorError, match=r"stream 'kept'.*too long.*alter the column"):
        flow().run(pa.table({"device": ["abc"], "value": [1.0]}), sinks=sink(server))
    with pytest.raises(ro.ConnectorError, match="1 records of the stream 'kept' have a null in the key 'device'"):
        flow().run(
            pa.table({"device": pa.array([None], pa.string()), "value": [1.0]}),
            sinks=sink(server, mode="upsert", by="device", table_name="x_{stream}"),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "postgresql://me:pa55@x/y"}, "holds a password"),
        ({"url": "mysql://x/y"}, "url must be postgresql://"),
        ({"table_name": "{device}"}, r"\{stream\} only, got \{device\}"),
        ({"mode": "upsert"}, "needs by="),
        ({"by": "device"}, "takes no by="),
        ({"mode": "merge"}, "mode = 'merge'"),
        ({"batch_size": 0}, "batch_size = 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ro.ConfigError, match=message) as found:
        PostgresSink(**{"url": "postgresql://x/y", **options})
    assert "pa55" not in str(found.value)


@pytest.mark.parametrize(
    ("stream", "field", "shown"), [("s" * 64, "v", "'s{64}'"), ("s", "ü" * 32, "'ü{32}'"), ("a..b", "v", "''")]
)
def test_names_that_the_server_would_cut_are_refused(stream, field, shown):
    one = PostgresSink(url="postgresql://x/y")
    with pytest.raises(ro.ConfigError, match=f"{shown}.* 1 to 63 bytes.*table_name="):
        one.bind({stream: pa.schema([(field, pa.int64())])})
    one.bind({"s" * 63: pa.schema([("ü" * 31, pa.int64())])})


def test_streams_that_do_not_fit_are_refused():
    schema = pa.schema([("v", pa.month_day_nano_interval())])
    with pytest.raises(ro.ConfigError, match="'v' of stream 's' has type month_day_nano_interval"):
        PostgresSink(url="postgresql://x/y").bind({"s": schema})
    with pytest.raises(ro.ConfigError, match="the key 'k', which the stream 's' lacks"):
        PostgresSink(url="postgresql://x/y", mode="upsert", by="k").bind({"s": pa.schema([("v", pa.int64())])})
    assert column_type(pa.null()) is None and column_type(pa.decimal128(5, 2)) == "numeric(5,2)"


@pytest.mark.parametrize("dtype", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")])
def test_nanoseconds_are_refused(dtype):
    with pytest.raises(ro.ConfigError, match=r"column 'at' of stream 'kept' has type .*ns.* cast it to these"):
        PostgresSink(url="postgresql://u@h/d").bind({"kept": pa.schema([("at", dtype)])})


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "by": "device"}], ids=["append", "upsert"])
def test_fields_with_the_names_of_our_own_columns(server, database, options):
    names = {"device": "string", "riot_ops_row": "int64", "riot_ops_row_": "int64", "riot_ops_part": "int64"}
    given = pa.table({"device": ["a", "b"], "riot_ops_row": [7, 6], "riot_ops_row_": [5, 4], "riot_ops_part": [3, 2]})
    bound = sink(server, **options).bind({"kept": given.schema})
    bound.begin(False)
    bound.identify("run")
    other = pickle.loads(pickle.dumps(bound))
    object.__setattr__(other, "_home", "elsewhere")  # as on another machine: a staging table
    writer = other.writer(0, 0)
    writer.write("kept", given.to_batches()[0])
    bound.commit(0, [writer.finish()])
    flow(names).run(given.slice(0, 1), sinks=sink(server, table_name="local", **options))
    query = "SELECT riot_ops_row, riot_ops_row_, riot_ops_part FROM {} ORDER BY device"
    assert rows(database, query.format("kept")) == [(7, 5, 3), (6, 4, 2)]
    assert rows(database, query.format("local")) == [(7, 5, 3)]


def test_secrets_are_not_shown():
    assert PASSWORD not in repr(PostgresSink(url="postgresql://x/y", credential=SECRET))
