"""Database tables with typed columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from riot_ops.connectors.retry import Failure, retry
from riot_ops.connectors.stores.sql_url import check_sql_url
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, MissingExtraError, RiotError, excerpt
from riot_ops.core.parameters import Duration
from riot_ops.core.secret import Secret

__all__ = ["SqlTable", "upsert"]

T = TypeVar("T")


class SqlTable:
    """A table of a database with typed columns and a primary key.

    Effectively once: a row replaces the row with the same key, and a batch is written in one transaction, which is
    retried after transient errors. The table is created at first use.

    Parameters
    ----------
    url : str
        URL in SQLAlchemy's format, without a password.
    name : str
        Name of the table.
    columns : pyarrow Schema
        Names and types of the columns.
    key : tuple of str
        Columns of the primary key; they are not nullable.
    credential : Secret, optional
        The password.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.

    Examples
    --------
    >>> columns = pa.schema([("sensor", pa.string()), ("value", pa.float64())])
    >>> with SqlTable("sqlite://", "latest", columns, ("sensor",)) as table:
    ...     table.write([{"sensor": "a", "value": 1.0}])
    ...     table.write([{"sensor": "a", "value": 2.0}])
    ...     table.read()
    True
    True
    [{'sensor': 'a', 'value': 2.0}]
    """

    def __init__(
        self,
        url: str,
        name: str,
        columns: pa.Schema,
        key: tuple[str, ...],
        credential: Secret | None = None,
        *,
        retry: Duration = "1min",
    ) -> None:
        try:
            import sqlalchemy as sa
        except ImportError:
            raise MissingExtraError("a database", "sql") from None
        check_sql_url("store", url, credential=credential)
        address = sa.make_url(url)
        self.label = f"the table {name} of {url}"
        self._retry_s = duration_seconds("retry", retry, zero=True)
        self._password = credential.reveal() if credential is not None else None
        if self._password is not None:
            address = address.set(password=self._password)
        options: dict[str, Any] = {}
        if address.get_backend_name() == "sqlite":
            options = {"connect_args": {"timeout": 30}}
            if not address.database or address.database == ":memory:":
                options = {"connect_args": {"check_same_thread": False}, "poolclass": sa.StaticPool}
        try:
            self.engine = sa.create_engine(address, hide_parameters=True, pool_pre_ping=True, **options)
        except (ImportError, sa.exc.ArgumentError) as error:
            raise ConfigError(f"the driver of {url.partition(':')[0]}:// is not installed: {error}") from None
        self.table = sa.Table(
            name,
            sa.MetaData(),
            *(
                sa.Column(f.name, _column_type(f, f.name in key), primary_key=f.name in key, autoincrement=False)
                for f in columns
            ),
        )
        self.names = columns.names
        self._key = key
        self._created = False

    def create(self) -> None:
        """Create the table unless it exists."""
        from sqlalchemy.schema import CreateTable

        def call() -> None:
            with self.engine.begin() as connection:
                if self.engine.dialect.name == "sqlite":  # so that readers do not wait for writers
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                connection.execute(CreateTable(self.table, if_not_exists=True))

        if not self._created:
            self.run("created", call)
            self._created = True

    def write(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Insert or replace rows with distinct keys, all or none; False if the database refuses their content."""
        return self.refusal(rows) is None

    def refusal(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """Write rows as :meth:`write`; return the database's reason if it refuses their content, else None."""
        import sqlalchemy as sa

        if not rows:
            return None
        self.create()
        keys = [{f"key_{name}": row[name] for name in self._key} for row in rows]

        def call() -> str | None:
            try:
                with self.engine.begin() as connection:
                    for statement in upsert(self.table, self.engine.dialect.name):
                        bound = keys if statement.is_delete else rows
                        connection.execute(statement, list(bound))
            except (sa.exc.DataError, sa.exc.IntegrityError, OverflowError) as error:
                return excerpt(str(getattr(error, "orig", error)) or type(error).__name__)
            return None

        return self.run("written", call)

    def read(self, *conditions: Any, columns: Sequence[str] = (), limit: int | None = None) -> list[dict[str, Any]]:
        """Read the rows that meet all conditions, in the order of the key."""
        import sqlalchemy as sa

        self.create()
        wanted = [self.table.c[name] for name in columns or self.names]
        query = sa.select(*wanted).where(*conditions).order_by(*(self.table.c[k] for k in self._key)).limit(limit)

        def call() -> list[dict[str, Any]]:
            with self.engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]

        return self.run("read", call)

    def run(self, done: str, call: Callable[[], T]) -> T:
        """Call a function with retries after transient errors, and return its result."""
        return retry(f"{self.label} cannot be {done}", call, self.explain_failure, self._retry_s)

    def begin(self) -> Any:
        """Begin a transaction, for a ``with`` block that binds the connection."""
        return self.engine.begin()

    def explain_failure(self, error: Exception) -> Failure | None:
        import sqlalchemy as sa

        if isinstance(error, RiotError) or not isinstance(error, sa.exc.SQLAlchemyError | OSError):
            return None
        text = str(getattr(error, "orig", None) or type(error).__name__).strip().partition("\n")[0]
        if self._password:
            text = text.replace(self._password, "***")
        transient = isinstance(error, OSError | sa.exc.TimeoutError | sa.exc.OperationalError)
        if self.engine.dialect.name == "sqlite":  # SQLite reports an unknown column as operational, too
            transient = "locked" in text or "busy" in text
        return Failure(excerpt(text), transient or bool(getattr(error, "connection_invalidated", False)))

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self.engine.dispose()

    def __enter__(self) -> SqlTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def upsert(table: Any, dialect: str) -> list[Any]:
    """Return the statements that insert a row or replace the one with its key; a delete binds the key as ``key_…``."""
    import sqlalchemy as sa

    keys = [column.name for column in table.primary_key]
    if dialect not in ("sqlite", "postgresql"):
        same = [table.c[name] == sa.bindparam(f"key_{name}") for name in keys]
        return [sa.delete(table).where(*same), sa.insert(table)]
    from sqlalchemy.dialects import postgresql, sqlite

    insert: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    rest = {c.name: insert.excluded[c.name] for c in table.columns if not c.primary_key}
    if not rest:
        return [insert.on_conflict_do_nothing(index_elements=keys)]
    return [insert.on_conflict_do_update(index_elements=keys, set_=rest)]


def _column_type(field: pa.Field, key: bool) -> Any:
    """Return the column type for an Arrow field."""
    import sqlalchemy as sa

    dtype = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_boolean(dtype):
        return sa.Boolean()
    if pa.types.is_integer(dtype):
        return sa.BigInteger()
    if pa.types.is_floating(dtype):
        return sa.Double()
    if pa.types.is_timestamp(dtype):
        return sa.DateTime(timezone=True)
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return sa.LargeBinary(512) if key else sa.LargeBinary((1 << 32) - 1)
    if not key:
        return sa.Text()
    # compare keys byte by byte, whatever the collation of the database
    binary = {"postgresql": "C", "mysql": "utf8mb4_bin", "mariadb": "utf8mb4_bin"}
    text = sa.String(512)
    for dialect, collation in binary.items():
        text = text.with_variant(sa.String(512, collation=collation), dialect)
    return text
