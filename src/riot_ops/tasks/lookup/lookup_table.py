"""Look-up of table rows by key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.connectors.stores import open_table
from riot_ops.connectors.stores.table import Row
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import RecordError
from riot_ops.core.schema import arrow_type
from riot_ops.task import Case, register, replace_column, with_field
from riot_ops.tasks.functions.function_task import canonical_schema
from riot_ops.tasks.io.store_task import Failures, TableTask, reject, scratch

__all__ = ["LookupTable", "typed"]


@register
@dataclass(frozen=True, kw_only=True)
class LookupTable(TableTask):
    """Add values from the table row that each record names, such as data about its sensor.

    A key that occurs several times in a batch is looked up once.

    Parameters
    ----------
    store, table, partition, credential, retry, parallel
        Address, partition key and clients, see :class:`TableTask` and :class:`StoreTask`.
    row : str
        Template of the row key.
    schema : mapping of str to type, or pyarrow Schema
        Values to add and their Arrow types, such as ``{"age": "int64", "sex": "string"}``.
    missing : "reject" or "null", default "reject"
        What to do with a record whose row does not exist: send it to the errors stream, or add nulls.

    Shapes and rates
    ----------------
    key[n] -> values[n], 1:1; one look-up per distinct key of a batch, ``parallel`` at a time.

    Missing values
    --------------
    A value that the row lacks is null. A null in a key: ``missing_key``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in a key); ``not_found`` (no such row); ``wrong_type`` (a value that is not of the
    declared type).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ATQ.

    Examples
    --------
    >>> lookup = LookupTable(
    ...     store="memory", table="doc", partition="subjects", row="{id}", schema={"age": "int64"}
    ... ).session()
    >>> lookup.task.rows.insert([Row("subjects", "s1", {"age": 30})])
    {}
    >>> lookup.push({"id": "s1"})
    [{'id': 's1', 'age': 30}]
    """

    code: ClassVar[str] = "ATQ"
    templates: ClassVar[tuple[str, ...]] = ("partition", "row")

    row: str
    schema: Any
    missing: Literal["reject", "null"] = "reject"

    def validate(self) -> None:
        super().validate()
        object.__setattr__(self, "schema", canonical_schema(self.name(), self.schema or ()))

    def writes(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.schema)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name, text in self.schema:
            schema = with_field(schema, pa.field(name, arrow_type(text)))
        return schema

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        failures: Failures = {}
        keys = self.rendered(batch, self.templates, failures)
        places = [i for i in range(batch.num_rows) if i not in failures]
        found: list[dict[str, Any]] = [{} for _ in keys]
        for i, values in zip(places, self.rows.get([(keys[i][0], keys[i][1]) for i in places]), strict=True):
            if values is not None:
                found[i] = values
            elif self.missing == "reject":
                failures[i] = RecordError(f"{self.rows.label} has no row {'/'.join(keys[i])!r}", reason="not_found")
        out = batch
        for name, text in self.schema:
            column = typed(name, [values.get(name) for values in found], arrow_type(text), failures)
            out = replace_column(out, name, column)
        return out.filter(pa.array(reject(batch, failures, dead)))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        store = f"sqlite:///{scratch() / 'lookup.db'}"
        with open_table(store, "cases") as table:
            table.insert(
                [
                    Row("p", "a", {"x": 1.5, "text": "ü", "n": 7}),
                    Row("p", "=C3=BC=2F", {"text": ""}),
                    Row("p", "wrong", {"x": "warm"}),
                ]
            )
        batch = pa.RecordBatch.from_pydict({"key": ["a", "ü/", None, "gone", "wrong", "a", ""], "x": list("abcdefg")})
        schema = {"x": "double", "text": "string", "n": "int64"}
        given: dict[str, Any] = {"store": store, "table": "cases", "partition": "p", "row": "{key}", "schema": schema}
        yield Case(cls(**given), batch)
        yield Case(cls(**given, missing="null"), batch, "null")


def typed(name: str, values: list[Any], dtype: pa.DataType, failures: Failures) -> pa.Array:
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
