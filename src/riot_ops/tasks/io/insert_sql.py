"""Inserts into a database table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.connectors.retry import shared_client
from riot_ops.connectors.stores.sql import SqlTable
from riot_ops.connectors.stores.sql_url import check_sql_url
from riot_ops.connectors.stores.table import write_chunks
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.order import result_fields
from riot_ops.core.parameters import Count, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.task import Case, Requirement, register
from riot_ops.tasks.io.store_task import Failures, StoreTask, plain_columns, reject

__all__ = ["InsertSQL"]


@register
@dataclass(frozen=True, kw_only=True)
class InsertSQL(StoreTask):
    """Insert each record as a row of a database table, a column per field, and pass it on.

    At least once, and effectively once in the table: a record processed again after a crash has the
    same key and replaces its row. All records of a batch are committed before they are passed on.
    Of records with the same key, the last one stays.

    Parameters
    ----------
    store : str
        Address of the database in SQLAlchemy's form, without a password, such as ``sqlite:///file.db`` or
        ``postgresql+psycopg://user@host/db``.
    table : str
        Name of the table: ASCII letters, digits and ``_``. A missing table is created at the first use,
        with the types of the fields. Times are stored as UTC without a zone.
    primary_key : tuple of str
        Fields of the primary key, which identify a record, such as ``("seq", "ordinal")``.
    fields : tuple of str or None, default None
        Fields to store, including the key; None: all but ordinals outside the key, see :mod:`riot_ops.core.order`.
        Nested fields are stored as JSON text.
    batch_size : int, >= 1, default 100
        Most rows per transaction. (The benchmark uses 10.)
    credential, retry
        The password, and how long to retry, see :class:`StoreTask`.

    Shapes and rates
    ----------------
    any[n] -> any[n], 1:1; one transaction per ``batch`` rows or fewer.

    Missing values
    --------------
    null and NaN are stored as NULL. A null in the key: ``missing_key``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in the key); ``refused`` (the database refuses the record, for example because a
    number is too large for its column).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017: the ETL dataflow with a database.

    Examples
    --------
    >>> insert = InsertSQL(store="sqlite://", table="readings", primary_key=("seq",)).session()
    >>> insert.push({"seq": 7, "sensor": "ü", "value": 1.5})
    [{'seq': 7, 'sensor': 'ü', 'value': 1.5}]
    """

    code: ClassVar[str] = "SQI"

    table: str
    primary_key: Names
    fields: Names | None = None
    batch_size: Count = 100

    def validate(self) -> None:
        super().validate()
        check_sql_url("store", self.store, credential=self.credential)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", self.table):
            raise ConfigError(
                f"{self.name()}: table must be at most 63 ASCII letters, digits and _, got {self.table!r}"
            )
        if not self.primary_key or len(set(self.primary_key)) < len(self.primary_key):
            raise ConfigError(
                f"{self.name()}: primary_key must name at least one field, none twice, got {self.primary_key!r}"
            )
        if self.fields is not None and (
            set(self.primary_key) - set(self.fields) or len(set(self.fields)) < len(self.fields)
        ):
            raise ConfigError(f"{self.name()}: fields must include the key, and no field twice, got {self.fields!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((*self.primary_key, *(self.fields or ())), "any")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.primary_key:
            dtype = schema.field(name).type
            if pa.types.is_nested(dtype) or pa.types.is_floating(dtype):
                raise ConfigError(f"{self.name()} needs an integer, text or time as key, {name!r} is {dtype}")
        return schema

    def rows(self, schema: pa.Schema) -> SqlTable:
        """Return the table, opened once per process."""
        stored = result_fields(schema.names, {*self.primary_key}) if self.fields is None else self.fields
        columns = pa.schema([pa.field(f.name, f.type) for f in schema if f.name in stored])
        return shared_client(
            SqlTable, self.store, self.table, columns, self.primary_key, self.credential, retry=self.retry
        )

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        table = self.rows(batch.schema)
        failures: Failures = {}
        places: dict[tuple[Any, ...], list[int]] = {}
        values = plain_columns(batch, table.names)
        for i, value in enumerate(values):
            key = tuple(value[name] for name in self.primary_key)
            if None in key:
                failures[i] = RecordError(
                    f"{self.primary_key[key.index(None)]} of the key is null", reason="missing_key"
                )
            else:
                places.setdefault(key, []).append(i)
        last = [rows[-1] for rows in places.values()]
        chunks = [last[i : i + self.batch_size] for i in range(0, len(last), self.batch_size)]

        reasons: dict[int, str] = {}  # by the first row of a chunk; in the end that of the row alone

        def write(chunks: Sequence[Sequence[int]]) -> list[Sequence[int]]:
            refused = []
            for rows in chunks:
                if (reason := table.refusal([values[i] for i in rows])) is not None:
                    reasons[rows[0]] = reason
                    refused.append(rows)
            return refused

        for i in write_chunks(chunks, write):
            same = places[tuple(values[i][name] for name in self.primary_key)]
            error = RecordError(f"{table.label} refuses the row: {reasons[i]}", reason="refused")
            failures.update(dict.fromkeys(same, error))
        return batch.filter(pa.array(reject(batch, failures, errors))) if failures else batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "n": pa.array([1, 2, None, 1], pa.int64()),
                "sensor id": ["a", "ü'\"", "b", None],
                "event_time": pa.array([0, None, 1, 10**15], TIMESTAMP),
                "value": [1.0, float("nan"), 2.0, None],
                "list": pa.array([[1.0], None, [], [None]], pa.list_(pa.float64())),
            }
        )
        yield Case(cls(store="sqlite://", table="cases", primary_key=("n",)), batch)
        yield Case(
            cls(
                store="sqlite://",
                table="cases2",
                primary_key=("n", "sensor id"),
                fields=("sensor id", "n"),
                batch_size=1,
            ),
            batch,
        )
