"""As-of join: each record with the latest values of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.exact import exact_columns, exact_result, exact_type
from riot_ops.kernels.jit import kernel
from riot_ops.task import (
    Case,
    KeyedTask,
    Requirement,
    State,
    StateField,
    register,
    reject_infinite,
    replace_column,
    with_field,
)

__all__ = ["AsOfJoin"]


@kernel
def _fill(values: Any, rests: Any, slots: Any, known: Any, is_query: Any) -> None:
    """Store the values of records that have any, and fill in the others, which ``is_query`` marks.

    ``known`` has the values of all fields, then their rests.
    """
    width = values.shape[0]
    for i in range(slots.size):
        s = slots[i]
        has_value = False
        for j in range(width):
            has_value |= not np.isnan(values[j, i])
        is_query[i] = not has_value
        for j in range(width):
            if has_value:
                known[s, j] = values[j, i]
                known[s, width + j] = rests[j, i]
            else:
                values[j, i] = known[s, j]
                rests[j, i] = known[s, width + j]


@register
@dataclass(frozen=True, kw_only=True)
class AsOfJoin(KeyedTask):
    """Join each record with the latest values of its key, such as a quote with the price of the last trade.

    Both sides come in one merged stream. A record with a value in any of the fields sets all of them, nulls included,
    and is dropped; a record without any is passed on with the latest values.

    Parameters
    ----------
    fields : tuple of str
        Fields to join, numbers, booleans or times; null in the records that get them. They keep their type (float64 for
        floating types) and all digits; decimals are refused.
    how : "inner" or "left", default "inner"
        Whether a record that comes before any values is dropped, or passed on with nulls.
    by, ttl
        Key and time to live, see :class:`KeyedTask`. Records of both sides keep a key alive.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1; O(1) time; 16 bytes of state per key and field. "Latest" is by the order
    of the stream, not by event time.

    Missing values
    --------------
    NaN counts as null.

    Errors
    ------
    ``not_finite``: an infinite value in one of the fields.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: bargain index.
    .. [2] pandas, ``merge_asof``: the same join for tables.

    Examples
    --------
    >>> join = AsOfJoin(by="stock", fields="vwap").session()
    >>> join.push({"stock": "A", "size": None, "vwap": 11.5}), join.push({"stock": "B", "size": 10, "vwap": None})
    ([], [])
    >>> join.push({"stock": "A", "size": 20, "vwap": None})
    [{'stock': 'A', 'size': 20, 'vwap': 11.5}]
    """

    code: ClassVar[str] = "AOJ"
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "1:0/1"
    version: ClassVar[int] = 2
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"how"})

    fields: Names
    how: Literal["inner", "left"] = "inner"

    def validate(self) -> None:
        if not self.fields or len(set(self.fields)) < len(self.fields):
            raise ConfigError(f"fields must name at least one field, none twice; got {self.fields!r}")
        if both := set(self.fields) & set(self.by):
            raise ConfigError(f"fields must not name {sorted(both)[0]!r}, which is in the key")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.fields, "value")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.fields:
            schema = with_field(schema, pa.field(name, exact_type(schema.field(name).type)))
        return schema

    def writes(self) -> frozenset[str] | None:
        return frozenset(self.fields)

    def state_fields(self) -> Mapping[str, StateField]:
        return {"known": StateField("float64", 2 * len(self.fields), initial=np.nan)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        for name in self.fields:
            if pa.types.is_floating(batch.schema.field(name).type):
                batch = reject_infinite(batch, name, errors)
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        values, rests = (part.copy() for part in exact_columns([batch.column(name) for name in self.fields]))
        if rests.size < values.size:
            rests = np.zeros(values.shape)
        is_query = np.empty(slots.size, np.bool_)
        _fill(values, rests, slots, state["known"], is_query)
        if self.how == "inner":
            is_query &= ~np.isnan(values).all(axis=0)
        out = batch.filter(pa.array(is_query))
        for name, high, rest in zip(self.fields, values[:, is_query], rests[:, is_query], strict=True):
            found = exact_result(high, rest, np.isnan(high), batch.schema.field(name).type)
            out = replace_column(out, name, found)
        return out

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "stock": ["a", "a", "b", "ü", "a", None, "b", "a", None],
                "size": [1.0, 2.0, None, float("inf"), 5.0, 6.0, 7.0, 8.0, 9.0],
                "bid": [None, 10.0, None, None, None, -1.5, float("nan"), 12.0, None],
                "ask": [None, 11.0, None, 3.0, None, None, None, None, None],
            }
        )
        yield Case(cls(by=("stock",), fields=("bid",)), batch)
        yield Case(cls(by=("stock",), fields=("bid", "ask"), how="left"), batch, "two fields")
        yield Case(cls(fields=("ask", "bid")), batch, "no key")
