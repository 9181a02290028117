"""Running totals of integer and boolean fields, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.task import Case, KeyedTask, Requirement, register
from riot_ops.tasks.window.integer_totals import INT64_MAX, check_summable, validate_totals
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["RunningTotals"]


@register
@dataclass(frozen=True, kw_only=True)
class RunningTotals(WindowTask, KeyedTask):
    """Keep running totals of integers, booleans and records per key.

    Parameters
    ----------
    totals : dict of str to (str or None)
        The field to sum for each output field: integers, or booleans, whose sum is the number of true ones. None:
        count records.
    emit : "each" or "update", default "each"
        Emit the totals after every record, or only with the last record of each key in a (micro-)batch, as
        :class:`RunningCount` does.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    integer[n] or bool[n] -> int64[n] in each output field (uint64 for a field of uint64), 1:1 (``update``: N:1); O(1)
    time; 16 bytes of state per key and total, 8 for that of records.

    Missing values
    --------------
    A null adds nothing. A total beyond the range of its type is null, until later records return it into range.

    Errors
    ------
    None; a field that holds neither integers nor booleans is refused.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the visit statistics of click analytics.

    Examples
    --------
    >>> visits = RunningTotals(totals={"visits": None, "visitors": "new"}).session()
    >>> visits.push_many([{"new": True}, {"new": False}, {"new": True}])[-1]
    {'new': True, 'visits': 3, 'visitors': 2}
    """

    code: ClassVar[str] = "TOT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    totals: Any
    emit: Literal["each", "update"] = "each"

    def validate(self) -> None:
        object.__setattr__(self, "totals", validate_totals(self.totals, self.by))

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def aggregates(self) -> dict[str, Any]:
        return {name: "count" if of is None else (of, "sum", 0) for name, of in self.totals.items()}

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **{of: "any" for of in self.totals.values() if of is not None}}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_summable(self.name(), self.totals, schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(7), pa.int64()),
                "key": ["a", "b", "a", "ü", None, "", "a"],
                "n": pa.array([1, -2, None, INT64_MAX, 7, 0, INT64_MAX], pa.int64()),
                "yes": [True, False, None, True, True, False, True],
            }
        )
        yield Case(cls(by=("key",), totals={"n": "n", "true": "yes", "rows": None}), batch)
        yield Case(cls(totals={"rows": None}), batch, "records")
