"""Inserts into a key-value table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa

from riot_ops.connectors.stores.table import MAX_BATCH_ROWS, Row, check_table
from riot_ops.core.order import result_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.task import Case, Requirement, register
from riot_ops.tasks.io.store_task import Failures, TableTask, plain_columns, reject

__all__ = ["InsertTable"]


@register
@dataclass(frozen=True, kw_only=True)
class InsertTable(TableTask):
    """Insert each record into a table under its partition and row key, and pass it on.

    At least once, and effectively once in the table: a record processed again after a crash has the
    same keys and replaces its row. All records of a batch are in the table before they are passed on.
    Of records with the same keys, the last one stays.

    Parameters
    ----------
    store, table, partition, credential, retry, max_concurrency
        Address, partition key and clients, see :class:`TableTask` and :class:`StoreTask`.
    row : str
        Template of the row key, such as ``"{event_time:ms}|{sensor_id}"``; it must identify a record
        within its partition.
    fields : tuple of str or None, default None
        Fields to store; None: all but ordinals, see :mod:`riot_ops.core.order`. Nested fields are stored as JSON text.
    batch_size : int, 1 to 100, default 100
        Most rows of one partition per transaction.

    Shapes and rates
    ----------------
    any[n] -> any[n], 1:1; one call of the store per ``batch`` rows or fewer of a partition.

    Missing values
    --------------
    null and NaN are omitted from the row. A null in a key: ``missing_key``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in a key); ``bad_key`` (a key of more than 512 characters); ``not_finite`` (an
    infinite value); ``too_large`` (text or bytes above 64 KiB, or a row above 1 MiB or 252 values);
    ``refused`` (the store refuses the record).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ATI.

    Examples
    --------
    >>> insert = InsertTable(store="memory", table="doc", partition="{sensor}", row="{n}").session()
    >>> insert.push({"sensor": "s/1", "n": 7, "value": 1.5})
    [{'sensor': 's/1', 'n': 7, 'value': 1.5}]
    >>> insert.task.rows.get([("s=2F1", "00000000000000000007")])
    [{'sensor': 's/1', 'n': 7, 'value': 1.5}]
    """

    code: ClassVar[str] = "ATI"
    templates: ClassVar[tuple[str, ...]] = ("partition", "row")

    row: str
    fields: Names | None = None
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH_ROWS)] = MAX_BATCH_ROWS

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.fields or (), "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_table(self.table, self._stored(schema))
        return schema

    def _stored(self, schema: pa.Schema) -> Sequence[str]:
        return result_fields(schema.names, frozenset()) if self.fields is None else self.fields

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        failures: Failures = {}
        keys = self.rendered(batch, self.templates, failures)
        values = plain_columns(batch, self._stored(batch.schema))
        places = [i for i in range(batch.num_rows) if i not in failures]
        if places:
            refused = self.rows.insert([Row(keys[i][0], keys[i][1], values[i]) for i in places], self.batch_size)
            failures.update({places[i]: error for i, error in refused.items()})
        return batch.filter(pa.array(reject(batch, failures, errors))) if failures else batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "event_time": pa.array([0, 1_000, None, -1, 10**15, 10**15], TIMESTAMP),
                "sensor_id": ["a", "ü/#?", "b", None, "", "x" * 600],
                "value": [1.0, None, 2.0, float("nan"), float("inf"), 3.0],
                "list": pa.array([[1.0], None, [], [None], [2.0], [3.0]], pa.list_(pa.float64())),
            }
        )
        keys: dict[str, Any] = {"partition": "cases", "row": "{event_time:ms}|{sensor_id}"}
        yield Case(cls(store="memory", table="cases", **keys), batch)
        yield Case(cls(store="sqlite://", table="cases2", fields=("value",), batch_size=2, **keys), batch, "fields")
