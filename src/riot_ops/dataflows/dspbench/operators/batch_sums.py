"""Batch sums: sums over all records of one event time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.dataflows.dspbench.operators.center_distance import example_batches
from riot_ops.dataflows.dspbench.operators.time_batch_task import Numbers, TimeBatchTask
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import neumaier_add
from riot_ops.task import Case, Requirement, State, register

__all__ = ["BatchSums"]


@kernel
def _sums(values: Any, groups: Any, total: Any, rest: Any, first: Any, last: Any) -> None:
    """Compute the sum of each group, and its first and last row."""
    for i in range(values.size):
        g = groups[i]
        if last[g] < 0:
            first[g] = i
        last[g] = i
        total[g], rest[g] = neumaier_add(total[g], rest[g], values[i])


@register
@dataclass(frozen=True, kw_only=True)
class BatchSums(TimeBatchTask):
    """Sum a field over all records of a key with the same event time, grouped by other fields.

    The sums are emitted when a later record of the key arrives, or at the end: then the time is complete.

    Parameters
    ----------
    value : str, default "value"
        Numeric field to sum; it receives the sum.
    groups : tuple of str, default ()
        Fields to group by, besides the key.
    time, partial
        A field for the time, and whether the end closes the last batch, see :class:`TimeBatchTask`.
    by : tuple of str, default ()
        Key.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    float64[n] -> float64[groups], N:1, delayed; O(1) time per record. The state is the records of the latest time.

    A sum has ``seq``, ordinals and time of its last record, key and groups; all other fields are null.

    Missing values
    --------------
    A record without event time, or with a null or NaN value, is an error.

    Errors
    ------
    ``no_event_time``, ``missing``, ``not_finite``; ``late``: a record of the key with a later time came earlier. A sum
    beyond float64 is null.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> house = BatchSums(by=("house",)).session()
    >>> _ = house.push_many({"event_time": noon, "house": "a", "plug": p, "value": v} for p, v in ((1, 5.0), (2, 7.0)))
    >>> [(row["house"], row["plug"], row["value"]) for row in house.flush()]
    [('a', None, 12.0)]
    """

    code: ClassVar[str] = "BSM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    value: str = "value"
    groups: Names = ()

    def validate(self) -> None:
        super().validate()
        if self.value in (*self.groups, *self.by, self.time) or self.time in (*self.groups, *self.by):
            raise ConfigError(f"value and time must differ from groups and key, got {self.value!r}, {self.time!r}")

    def numeric_fields(self) -> tuple[str, ...]:
        return (self.value,)

    def requires(self) -> Any:
        needed: dict[str, Requirement] = dict.fromkeys(self.groups, "key")
        return {**needed, **super().requires()}

    def writes(self) -> None:
        return None  # each field of the input that it does not sum or group by becomes null

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        carried = {*carried_fields(schema.names), *self.by, *self.groups}
        fields = [f if f.name in carried else f.with_nullable(True) for f in self.with_time_field(schema)]
        return pa.schema([pa.field(f.name, pa.float64()) if f.name == self.value else f for f in fields])

    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        numbers = pa.array(np.repeat(np.arange(edges.size - 1), np.diff(edges)))
        groups = key_numbers([numbers, *(batch.column(name) for name in self.groups)], batch.num_rows)
        n = int(groups.max()) + 1 if groups.size else 0
        total, rest = np.zeros(n), np.zeros(n)
        first, last = np.full(n, -1), np.full(n, -1)
        _sums(float_column(batch.column(self.value))[0], groups, total, rest, first, last)
        with np.errstate(invalid="ignore"):  # inf - inf, where a sum overflowed
            sums = total + rest
        carried = dict.fromkeys([*carried_fields(batch.schema.names), *self.by, *self.groups])
        taken = batch.select(list(carried)).take(pa.array(last))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns[self.value] = pa.array(sums, mask=~np.isfinite(sums))
        if self.time is not None:
            columns[self.time] = taken.column("event_time")
        return pa.RecordBatch.from_arrays(
            [columns[f.name] if f.name in columns else pa.nulls(n, f.type) for f in schema], schema=schema
        )

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = example_batches()
        yield Case(cls(value="cpu"), batch)
        yield Case(cls(value="memory", by=("rack",), time="at"), batch)
        yield Case(cls(value="cpu", groups=("rack",), partial=False), batch)
