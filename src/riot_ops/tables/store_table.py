"""Tables in a store, such as a database or Azure Tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.connectors.stores.factory import check_table_url, shared_table
from riot_ops.connectors.stores.table import TableStore, check_table
from riot_ops.connectors.template import Template, render_keys, template
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.operator import Requirement
from riot_ops.core.parameters import Count, Duration
from riot_ops.core.schema import SchemaLike, arrow_type, canonical_schema, schema_pairs
from riot_ops.core.secret import Secret
from riot_ops.tables.table import NO_ROW, Column, Found, Table

__all__ = ["StoreTable", "typed"]


@dataclass(frozen=True, kw_only=True)
class StoreTable(Table):
    """The rows of a table in a store. A key that occurs several times in a batch is looked up once.

    A call that fails for another reason than the key stops the dataflow with a :class:`ConnectorError`; a restart
    continues from its checkpoint.

    Parameters
    ----------
    store : str
        ``azure-table://``, the address of a database such as ``sqlite:///file.db``, or ``memory`` (within
        the process, for tests).
    table : str
        Name of the table: 3 to 63 ASCII letters and digits. In a database it is created at the first use.
    partition, row : str
        Templates of the partition key and the row key, see :class:`riot_ops.connectors.template.Template`; they take
        the place of the fields of the key.
    schema : mapping of str to type, or pyarrow Schema
        Values of a row and their Arrow types, such as ``{"age": "int64", "sex": "string"}``.
    credential : Secret or None
        For Azure the connection string, None: the one in the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry : timedelta >= 0 or text such as "10s", default 1 minute
        How long a call with a transient failure is retried.
    max_concurrency : int, >= 1, default 8
        Number of concurrent calls (Azure).

    Examples
    --------
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> from riot_ops.connectors.stores.table import Row
    >>> ages = tables.StoreTable(
    ...     store="memory", table="example", partition="people", row="{id}", schema={"age": "int64"}
    ... )
    >>> ages.rows.insert([Row("people", "p1", {"age": 30})])
    {}
    >>> t.Lookup(table=ages).session().push({"id": "p1"})
    [{'id': 'p1', 'age': 30}]
    """

    textual: ClassVar[bool] = False
    reentrant: ClassVar[bool] = False

    store: str
    table: str
    partition: str
    row: str
    schema: SchemaLike
    credential: Secret | None = None
    retry: Duration = timedelta(minutes=1)
    max_concurrency: Count = 8

    def validate(self) -> None:
        duration_seconds("retry", self.retry, zero=True)
        _ = self._templates
        check_table_url(self.store, self.credential)
        check_table(self.table)
        object.__setattr__(self, "schema", canonical_schema("store_table", self.schema or ()))

    @property
    def _templates(self) -> list[tuple[str, Template]]:
        try:
            return [(text, template(text, True)) for text in (self.partition, self.row)]
        except ConfigError as error:
            raise ConfigError(f"store_table: partition or row: {error}") from None

    @property
    def rows(self) -> TableStore:
        """The table, opened once per process."""
        return shared_table(
            self.store, self.table, self.credential, retry=self.retry, max_concurrency=self.max_concurrency
        )

    def check_keys(self, on: tuple[str, ...]) -> None:
        if on:
            raise ConfigError(f"lookup: the key of a store's row is its partition and row, got on = {on!r}")

    def requires(self, on: tuple[str, ...]) -> Mapping[str, Requirement]:
        return {field: "any" for _, one in self._templates for field in one.fields}

    def check_input(self, schema: pa.Schema) -> None:
        for _, one in self._templates:
            one.check(schema)

    def names(self, on: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name, _ in schema_pairs(self.schema))

    def types(self, wanted: tuple[str, ...] | None, on: tuple[str, ...]) -> Sequence[pa.DataType]:
        types = dict(schema_pairs(self.schema))
        return [arrow_type(types[name]) for name in (self.names(on) if wanted is None else wanted)]

    def look_up(
        self, batch: pa.RecordBatch, keys: Sequence[pa.Array], wanted: tuple[str, ...] | None, on: tuple[str, ...]
    ) -> Found:
        failures: dict[int, RecordError] = {}
        texts = render_keys(batch, self._templates, failures)
        good = [i for i in range(batch.num_rows) if i not in failures]
        values: list[Mapping[str, Any]] = [{} for _ in texts]
        rows = np.full(batch.num_rows, NO_ROW)
        for i, found in zip(good, self.rows.get([(texts[i][0], texts[i][1]) for i in good]), strict=True):
            if found is not None:
                values[i], rows[i] = found, i
        types = dict(schema_pairs(self.schema))
        columns = [
            Column(typed(name, [one.get(name) for one in values], arrow_type(types[name]), failures))
            for name in (self.names(on) if wanted is None else wanted)
        ]
        return Found(rows, columns, failures)


def typed(name: str, values: list[Any], dtype: pa.DataType, failures: dict[int, RecordError]) -> pa.Array:
    """Build a column of values; record a failure for each value of another type."""
    try:
        return pa.array(values, dtype)
    except (pa.ArrowException, TypeError, OverflowError):
        pass
    kept: list[Any] = []
    for i, value in enumerate(values):
        try:
            kept.append(pa.scalar(value, dtype).as_py())
        except (pa.ArrowException, TypeError, OverflowError):
            kept.append(None)
            failures.setdefault(i, RecordError(f"{name} = {value!r} is not of type {dtype}", reason="wrong_type"))
    return pa.array(kept, dtype)
