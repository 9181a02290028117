"""A sink that writes streams to tables of PostgreSQL, by COPY and upsert, exactly once."""

from __future__ import annotations

import copy
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeVar

import pyarrow as pa

from riot_ops.connectors.postgres_types import column_type, copy_text, free_name, row_number
from riot_ops.connectors.retry import Failure, retry
from riot_ops.connectors.stores.sql_url import check_sql_url
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, excerpt, value_text
from riot_ops.core.parameters import Count, Duration, Names, as_timedelta, check_parameters
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Message, Sink, Writer, align_schemas

__all__ = ["PostgresSink"]

_log = logging.getLogger("riot_ops")
T = TypeVar("T")

#: Table of the committed batches of each run and target.
BATCHES = "riot_ops_batches"
#: Beginning of the names of tables that hold the rows of batches before their commit.
STAGE = "riot_ops_stage_"
#: Of this many committed batches per target the notes are kept.
RETAINED = 100
#: Identity of this process, which no other has.
_PROCESS = uuid.uuid4().hex
#: By token, connections with a batch that waits for its commit in this process.
_OPEN: dict[str, Any] = {}
#: Rows of older transactions cannot be told by PostgreSQL's 32 bits of their numbers.
MAX_AGE = 2**31
#: Longest name of a table or column; PostgreSQL cuts longer ones, by which two streams would share a table.
MAX_NAME_BYTES = 63
#: Classes of SQLSTATE after which another attempt can succeed: connection, resources, operator intervention, and
#: serialization failures and deadlocks.
TRANSIENT_CLASSES = ("08", "53", "57", "40")
#: By the beginning of a SQLSTATE, what helps.
REMEDIES: Mapping[str, str] = {
    "28": "check url= and credential=",
    "3D": "check the database in url=",
    "3F": "create the schema, or grant its use, or check table_name=",
    "42501": "grant the user of url= the right: to create tables in the schema, or to write to this one",
    "42P01": "check table_name=",
    "42804": "cast the field in a task, or alter the column",
    "22": "cast the field in a task, or alter the column",
    "23": "filter or mend such records in a task, or alter the table",
    "25006": "give the server that may be written to as url=",
}


@dataclass(frozen=True, kw_only=True)
class PostgresSink(Sink):
    """Writes the records of streams to tables of PostgreSQL, each exactly once.

    An epoch or micro-batch is one transaction, which also notes the batch in the table ``riot_ops_batches``: readers
    see a batch whole or not at all, and a batch that is committed again is passed over. In process records are copied
    within that transaction; on Spark each writer copies its own to a staging table (unlogged), from which the commit
    moves them. What a restart writes again, it removes first: appended rows are found by the transaction that wrote
    them, as long as no other program has updated them. A new run adds to what the tables hold; ``overwrite=True``
    empties them, whoever has written the rows.

    A missing table is created with the columns of its stream. Columns that an existing table has beside them keep their
    defaults. PostgreSQL's times have microseconds: a stream with nanoseconds is refused.

    Parameters
    ----------
    url : str
        ``postgresql://user@host:port/database``, without a password.
    credential : Secret or None
        The password. Without it libpq's own ways apply, such as ``~/.pgpass``.
    table_name : str, default "{stream}"
        Template of the name of the table, ``schema.table`` or ``table``; ``{stream}`` is the name of the stream.
        Without that field, rejected records go to the table with ``_errors`` after its name.
    mode : "append" or "upsert", default "append"
        Whether each record becomes a row, or replaces the row with the same key (``INSERT … ON CONFLICT DO UPDATE``).
        Rejected records are always appended.
    by : tuple of str
        For ``upsert``: the fields of the key. The table needs a primary key or unique index over them; one that the
        sink creates has it.
    create : bool, default True
        Whether to create missing tables.
    batch_size : int, >= 1, default 50000
        Number of records per COPY; so many per stream wait in a writer.
    timeout : timedelta or text such as "10s", default 30 seconds
        How long to wait for a connection.
    retry : timedelta or text such as "1min", default 1 minute
        How long a connection or a commit is tried again after transient errors, such as a restart of the server.

    Examples
    --------
    >>> sink = PostgresSink(url="postgresql://riot@localhost/plant", credential=Secret.env("PLANT_PASSWORD"),
    ...                     table_name="readings_{stream}", mode="upsert", by=("device",))
    >>> sink.target("latest")
    'readings_latest'
    """

    url: str
    credential: Secret | None = None
    table_name: str = "{stream}"
    mode: Literal["append", "upsert"] = "append"
    by: Names = ()
    create: bool = True
    batch_size: Count = 50_000
    timeout: Duration = timedelta(seconds=30)
    retry: Duration = timedelta(minutes=1)

    #: Identity of the run, and the schemas of the streams that end here.
    run = ""
    _schemas: ClassVar[Mapping[str, pa.Schema]] = {}
    #: The process that started the run, and in process also writes and commits.
    _home = ""

    def __post_init__(self) -> None:
        check_parameters(self)
        check_sql_url("url", self.url, credential=self.credential)
        if self.url.partition("://")[0] not in ("postgresql", "postgres"):
            raise ConfigError("url must be postgresql://user@host:port/database")
        fields = template(self.table_name).fields
        if unknown := sorted({*fields} - {"stream"}):
            raise ConfigError(f"table_name may have the field {{stream}} only, got {{{unknown[0]}}}")
        if (self.mode == "upsert") != bool(self.by):
            what = "needs by=, the fields of the key" if self.mode == "upsert" else "takes no by="
            raise ConfigError(f"mode={self.mode!r} {what}, got by={tuple(self.by)!r}")

    @property
    def label(self) -> str:
        """The address for messages: without parameters."""
        return self.url.partition("?")[0]

    def target(self, stream: str) -> str:
        """Return the name of the table of a stream."""
        if stream == ERRORS_STREAM and "stream" not in template(self.table_name).fields:
            return f"{self.table_name}_errors"
        return self.table_name.format(stream=stream)

    def upserts(self, stream: str) -> bool:
        """Whether records of a stream replace rows with the same key."""
        return self.mode == "upsert" and stream != ERRORS_STREAM

    # -- the run ---------------------------------------------------------------------------------------

    def bind(self, schemas: Mapping[str, pa.Schema]) -> PostgresSink:
        for stream, schema in schemas.items():
            for name in (*self.target(stream).split("."), *schema.names):
                if not name or len(name.encode()) > MAX_NAME_BYTES or "\0" in name:
                    raise ConfigError(
                        f"the stream {stream!r} cannot have a table or column {value_text(name)} in PostgreSQL, whose "
                        f"names have 1 to {MAX_NAME_BYTES} bytes: give another table_name=, or rename the field in a "
                        "task"
                    )
            for field in schema:
                if column_type(field.type) is None:
                    if getattr(field.type, "unit", "") == "ns":
                        raise ConfigError(
                            f"column {field.name!r} of stream {stream!r} has type {field.type}, and PostgreSQL has "
                            "microseconds: cast it to these, or make an integer of it, in a task before the sink"
                        )
                    raise ConfigError(
                        f"column {field.name!r} of stream {stream!r} has type {field.type}, for which PostgreSQL has "
                        "none: drop it, or make text of it"
                    )
            for name in self.by if self.upserts(stream) else ():
                if name not in schema.names:
                    raise ConfigError(f"PostgresSink has the key {name!r}, which the stream {stream!r} lacks")
        sink = copy.copy(self)
        object.__setattr__(sink, "_schemas", dict(schemas))
        object.__setattr__(sink, "_home", _this_process())
        return sink

    def identify(self, run: str) -> None:
        object.__setattr__(self, "run", run)

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _PostgresWriter(self, batch_id, partition)

    def begin(self, overwrite: bool) -> None:
        def start(cursor: Any) -> None:
            self._prepare(cursor)
            for stream in self._schemas if overwrite else ():
                cursor.execute(_sql("TRUNCATE {}", _name(self.target(stream))))
                cursor.execute(f"DELETE FROM {BATCHES} WHERE target = %s", [self.target(stream)])  # noqa: S608

        self.transaction("the tables", start)

    def recover(self, batch_id: int) -> None:
        def remove(cursor: Any) -> None:
            self._prepare(cursor)
            self._drop_stages(cursor)
            cursor.execute(
                f"DELETE FROM {BATCHES} WHERE run = %s AND batch >= %s "  # noqa: S608
                "RETURNING stream, target, batch, xid, row_count, pg_current_xact_id()::text::bigint - xid",
                [self.run, batch_id],
            )
            for stream, target, batch, xid, rows, age in cursor.fetchall():
                if self.upserts(stream):
                    continue  # the records replace what they have written
                if age < MAX_AGE:
                    cursor.execute(_sql("DELETE FROM {} WHERE xmin = %s::text::xid", _name(target)), [xid % 2**32])
                removed = cursor.rowcount if age < MAX_AGE else 0
                if removed != rows:
                    _log.warning(
                        "batch %d is written again, and of its %s rows in %s only %s are as they were written: "
                        "those that another program has changed stay beside the new ones",
                        batch,
                        f"{rows:,}",
                        target,
                        f"{removed:,}",
                    )

        self.transaction(f"the output from batch {batch_id} on", remove)

    def resume(self, batch_id: int) -> None:
        def go_on(cursor: Any) -> None:
            self._prepare(cursor)
            self._drop_stages(cursor)

        self.transaction("the tables", go_on)

    def abort(self, batch_id: int) -> None:
        with suppress(ConnectorError):  # the next start removes them
            self.transaction("staging tables", lambda cursor: self._drop_stages(cursor, batch_id))

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        for message in messages:
            if token := message["open"]:
                self._commit_open(batch_id, token, message["stages"])
                return
        by_stream: dict[str, list[tuple[str, int]]] = {}
        for message in sorted(messages, key=lambda m: int(m["partition"])):
            for stream, stage, rows in message["stages"]:
                by_stream.setdefault(stream, []).append((stage, rows))
        if not by_stream:
            return

        def move(cursor: Any) -> None:
            for stream, stages in sorted(by_stream.items()):
                if not self._noted(cursor, batch_id, stream):
                    self._move(cursor, batch_id, stream, stages)
                for stage, _ in stages:
                    cursor.execute(_sql("DROP TABLE IF EXISTS {}", _name(stage)))
            self._drop_stages(cursor, batch_id)  # those of attempts that failed

        self.transaction(f"batch {batch_id}", move)

    def _commit_open(self, batch_id: int, token: str, stages: Sequence[tuple[str, str, int]]) -> None:
        """Commit the transaction of a writer in this process; again: check that it was."""
        connection = _OPEN.pop(token, None)
        if connection is None:
            found = self.transaction(f"batch {batch_id}", lambda cursor: self._noted(cursor, batch_id, stages[0][0]))
            if not found:
                raise ConnectorError(
                    f"batch {batch_id} was not committed at {self.label}: continue from the checkpoint"
                )
            return
        try:
            with connection.cursor() as cursor:
                if any(self._noted(cursor, batch_id, stream) for stream, _, _ in stages):
                    return  # closing rolls back what was written again
                for stream, stage, rows in stages:
                    if stage:
                        self._move(cursor, batch_id, stream, [(stage, rows)])
                    else:
                        self._note(cursor, batch_id, stream, rows)
            connection.commit()
        except Exception as error:
            if (failure := explain(error)) is None:
                raise
            raise ConnectorError(
                f"batch {batch_id} cannot be committed at {self.label}: {failure.message}", retryable=failure.transient
            ) from None
        finally:
            connection.close()

    def _noted(self, cursor: Any, batch_id: int, stream: str) -> bool:
        """Whether the records of a stream in a batch are committed."""
        cursor.execute(
            f"SELECT 1 FROM {BATCHES} WHERE run = %s AND stream = %s AND batch = %s",  # noqa: S608
            [self.run, stream, batch_id],
        )
        return cursor.fetchone() is not None

    def _move(self, cursor: Any, batch_id: int, stream: str, stages: Sequence[tuple[str, int]]) -> None:
        """Put the rows of staging tables into the table of their stream, and note the batch."""
        target, rows = self.target(stream), sum(n for _, n in stages)
        _, *columns = self._columns(cursor, stages[0][0])
        found = 0
        if self.upserts(stream):
            for stage, _ in stages:
                cursor.execute(_sql("SELECT count(*) FROM {}", _name(stage)))
                found += cursor.fetchone()[0]
            cursor.execute(_upsert(target, columns, self.by, [stage for stage, _ in stages]))
        else:
            names = _names(columns)
            for stage, _ in stages:
                cursor.execute(_sql("INSERT INTO {} ({}) SELECT {} FROM {}", _name(target), names, names, _name(stage)))
                found += cursor.rowcount
        if found != rows:
            raise ConnectorError(
                f"batch {batch_id} is incomplete: staging tables of {target} have {found:,} rows instead of {rows:,}, "
                "as after a crash of the server; continue from the checkpoint",
                retryable=True,
            )
        self._note(cursor, batch_id, stream, rows)

    def _note(self, cursor: Any, batch_id: int, stream: str, rows: int) -> None:
        cursor.execute(
            f"INSERT INTO {BATCHES} (run, stream, target, batch, xid, row_count) "  # noqa: S608
            "VALUES (%s, %s, %s, %s, pg_current_xact_id()::text::bigint, %s)",
            [self.run, stream, self.target(stream), batch_id, rows],
        )
        cursor.execute(
            f"DELETE FROM {BATCHES} WHERE run = %s AND stream = %s AND batch < %s",  # noqa: S608
            [self.run, stream, batch_id - RETAINED],
        )

    # -- tables ----------------------------------------------------------------------------------------

    def _prepare(self, cursor: Any) -> None:
        """Create missing tables, and check those that exist."""
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {BATCHES} (run text, stream text, target text, batch bigint, xid bigint, "
            "row_count bigint, committed timestamp with time zone DEFAULT now(), PRIMARY KEY (run, stream, batch))"
        )
        for stream, schema in self._schemas.items():
            target = self.target(stream)
            cursor.execute("SELECT to_regclass(%s)", [_name(target).as_string(cursor)])
            if cursor.fetchone()[0] is None:
                if not self.create:
                    raise ConnectorError(
                        f"{self.label} has no table {target} for the stream {stream!r}: create it, or give create=True"
                    )
                cursor.execute(_create(target, schema, self.by if self.upserts(stream) else ()))
            self._check_table(cursor, stream, target, schema)

    def _check_table(self, cursor: Any, stream: str, target: str, schema: pa.Schema) -> None:
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", [_name(target).as_string(cursor)])
        if cursor.fetchone()[0] not in ("r", "p"):
            raise ConnectorError(f"{target} at {self.label} is not a table; give another table_name=")
        columns = self._columns(cursor, target)
        for name in schema.names:
            if name not in columns:
                raise ConnectorError(
                    f"the table {target} at {self.label} lacks the column {name!r} of the stream {stream!r}: "
                    "add it, or give another table_name="
                )
        if self.upserts(stream):
            import psycopg

            try:
                cursor.execute(b"EXPLAIN " + _upsert(target, schema.names, self.by, []).as_bytes(cursor))
            except psycopg.errors.InvalidColumnReference:
                raise ConnectorError(
                    f"the table {target} at {self.label} has no primary key and no unique index over "
                    f"{', '.join(self.by)}: create one, or give another by="
                ) from None

    def _columns(self, cursor: Any, table: str) -> list[str]:
        cursor.execute(_sql("SELECT * FROM {} LIMIT 0", _name(table)))
        return [column.name for column in cursor.description]

    def _stage(self, batch_id: int) -> str:
        return f"{STAGE}{self.run[:12]}_{batch_id}"

    def _drop_stages(self, cursor: Any, batch_id: int | None = None) -> None:
        """Remove the staging tables of a batch, or of all; a crash may have left some."""
        prefix = f"{STAGE}{self.run[:12]}_" if batch_id is None else f"{self._stage(batch_id)}_"
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s) "
            "AND pg_table_is_visible(oid)",
            [prefix],
        )
        for (name,) in cursor.fetchall():
            cursor.execute(_sql("DROP TABLE IF EXISTS {}", _name(name)))

    # -- connections -----------------------------------------------------------------------------------

    def connect(self) -> Any:
        """Open a connection."""
        psycopg = _psycopg()
        password = {} if self.credential is None else {"password": self.credential.reveal()}
        seconds = max(1, int(as_timedelta(self.timeout).total_seconds()))
        return psycopg.connect(self.url, connect_timeout=seconds, application_name="riot_ops", **password)

    def transaction(self, what: str, work: Callable[[Any], T]) -> T:
        """Run ``work(cursor)`` in a transaction of its own, again after transient errors."""

        def attempt() -> T:
            with self.connect() as connection, connection.cursor() as cursor:
                return work(cursor)

        return retry(f"{what} cannot be written to {self.label}", attempt, explain, self.retry_seconds)

    @property
    def retry_seconds(self) -> float:
        """How long to try, in seconds."""
        return as_timedelta(self.retry).total_seconds()


class _PostgresWriter(Writer):
    """Copies records in one transaction: into staging tables, or in the process of the commit into their own."""

    def __init__(self, sink: PostgresSink, batch_id: int, partition: int) -> None:
        self._sink = sink
        self._batch_id = batch_id
        self._partition = partition
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._stages: dict[str, tuple[str, int]] = {}
        self._connection: Any = None
        self._token = ""
        self._commits_here = sink._home == _this_process()  # noqa: SLF001

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._held.setdefault(stream, []).append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= self._sink.batch_size:
            self._copy(stream)

    def _copy(self, stream: str) -> None:
        table = pa.Table.from_batches(align_schemas(self._held.pop(stream)))
        self._rows[stream] = 0
        if not table.num_rows:
            return
        sink = self._sink
        for name in sink.by if sink.upserts(stream) else ():
            if table.column(name).null_count:
                raise ConnectorError(
                    f"{table.column(name).null_count:,} records of the stream {stream!r} have a null in the key "
                    f"{name!r}: drop them before the sink"
                )
        if self._connection is None:
            self._connection = retry(
                f"a batch cannot be written to {sink.label}", sink.connect, explain, sink.retry_seconds
            )
        try:
            with self._connection.cursor() as cursor:
                self._copy_into(cursor, stream, table)
        except Exception as error:
            if (failure := explain(error)) is None:
                raise
            raise ConnectorError(
                f"records of the stream {stream!r} cannot be written to {sink.label}: {failure.message}",
                retryable=failure.transient,
            ) from None

    def _copy_into(self, cursor: Any, stream: str, table: pa.Table) -> None:
        sink, names = self._sink, table.schema.names
        stage, rows = self._stages.get(stream, ("", 0))
        staged = sink.upserts(stream) or not self._commits_here
        if staged and not stage:
            stage = f"{sink._stage(self._batch_id)}_{self._partition}_{uuid.uuid4().hex[:8]}"  # noqa: SLF001
            kind, end = ("TEMPORARY", "ON COMMIT DROP") if self._commits_here else ("UNLOGGED", "")
            cursor.execute(
                _sql(
                    f"CREATE {kind} TABLE {{}} {end} AS SELECT 0::bigint AS {{}}, {{}} FROM {{}} WITH NO DATA",  # noqa: S608
                    _name(stage),
                    _names([row_number(names)]),
                    _names(names),
                    _name(sink.target(stream)),
                )
            )
        into, columns = (stage, [row_number(names), *names]) if staged else (sink.target(stream), names)
        with cursor.copy(_sql("COPY {} ({}) FROM STDIN (FORMAT csv)", _name(into), _names(columns))) as copying:
            copying.write(copy_text(table, rows if staged else None))
        self._stages[stream] = stage, rows + table.num_rows

    def finish(self) -> Message:
        for stream in list(self._held):
            self._copy(stream)
        token = ""
        if self._connection is not None and self._commits_here:
            token = uuid.uuid4().hex
            _OPEN[token], self._connection = self._connection, None
        elif self._connection is not None:
            try:
                self._connection.commit()
            except Exception as error:
                if (failure := explain(error)) is None:
                    raise
                raise ConnectorError(
                    f"a batch cannot be written to {self._sink.label}: {failure.message}", retryable=failure.transient
                ) from None
            finally:
                self._close()
        self._token = token
        stages = [(stream, stage, rows) for stream, (stage, rows) in sorted(self._stages.items())]
        return {"partition": self._partition, "stages": stages, "open": token}

    def abort(self) -> None:
        self._held.clear()
        self._connection = _OPEN.pop(self._token, self._connection)
        self._close()  # which rolls the transaction back

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _this_process() -> str:
    return f"{_PROCESS}-{os.getpid()}"  # the number, since a forked process has the same identity


def explain(error: Exception) -> Failure | None:
    """Say why a call of PostgreSQL failed, without the address."""
    psycopg = _psycopg()
    if not isinstance(error, psycopg.Error):
        return None
    state = getattr(error, "sqlstate", None)
    text = excerpt(" ".join(str(error).split()), 300)
    if state is not None:
        remedy = next((helps for start, helps in REMEDIES.items() if state.startswith(start)), "")
        return Failure(f"{text} ({remedy})" if remedy else text, state[:2] in TRANSIENT_CLASSES)
    refused = "FATAL" in text and not any(
        word in text for word in ("starting up", "shutting down", "too many", "recovery")
    )
    if "no password supplied" in text:
        return Failure(f"{text} (give credential=Secret.env('NAME'))", transient=False)
    missing = isinstance(error, psycopg.OperationalError) and not refused
    if "SSL" in text and missing:
        return Failure(f"{text} (check sslmode and sslrootcert in url=)", transient=True)
    return Failure(f"{text} (check url={' and credential=' if refused else ', and that the server runs'})", missing)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("PostgreSQL", "postgres") from None
    return psycopg


# -- statements ----------------------------------------------------------------------------------------


def _name(name: str) -> Any:
    from psycopg import sql

    return sql.Identifier(*name.split("."))


def _names(names: Sequence[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))


def _sql(text: str, *parts: Any) -> Any:
    from psycopg import sql

    return sql.SQL(text).format(*parts)


def _create(target: str, schema: pa.Schema, by: Sequence[str]) -> Any:
    from psycopg import sql

    columns = [_sql("{} {}", sql.Identifier(f.name), sql.SQL(column_type(f.type) or "")) for f in schema]
    if by:
        columns.append(_sql("PRIMARY KEY ({})", _names(by)))
    return _sql("CREATE TABLE {} ({})", _name(target), sql.SQL(", ").join(columns))


def _upsert(target: str, columns: Sequence[str], by: Sequence[str], stages: Sequence[str]) -> Any:
    """Return the statement that puts the last row of each key into a table."""
    from psycopg import sql

    names, key = _names(columns), _names(by)
    row, part = sql.Identifier(row_number(columns)), sql.Identifier(free_name("riot_ops_part", columns))
    rows = [
        _sql("SELECT {}, {} AS {}, {} FROM {}", row, sql.Literal(place), part, names, _name(stage))
        for place, stage in enumerate(stages)
    ]
    given = (
        sql.SQL(" UNION ALL ").join(rows)
        if rows
        else _sql("SELECT 0 AS {}, 0 AS {}, {} FROM {} WHERE false", part, row, names, _name(target))
    )
    newest = _sql("{} DESC, ", _name("seq")) if "seq" in columns else sql.SQL("")
    changed = [c for c in columns if c not in by]
    action = (
        _sql("DO UPDATE SET {}", sql.SQL(", ").join([_sql("{0} = EXCLUDED.{0}", sql.Identifier(c)) for c in changed]))
        if changed
        else sql.SQL("DO NOTHING")
    )
    return _sql(
        "INSERT INTO {} ({}) SELECT DISTINCT ON ({}) {} FROM ({}) AS given ORDER BY {}, {}{} DESC, {} DESC "
        "ON CONFLICT ({}) {}",
        _name(target), names, key, names, given, key, newest, part, row, key, action,
    )  # fmt: skip
