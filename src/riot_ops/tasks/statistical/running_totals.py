"""Running totals of fields, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.latest import latest_rows
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field
from riot_ops.tasks.statistical.totals import LEAST, MOST, addends, check_summable, checked_totals

__all__ = ["RunningTotals"]


@kernel
def _add(values: Any, slots: Any, place: Any, totals: Any, out: Any) -> None:
    """The total after each row; one that has left the range stays at its end."""
    for i in range(values.size):
        s = slots[i]
        v = values[i]
        total = totals[s, place]
        if v > 0 and total > MOST - v:
            total = MOST
        elif v < 0 and total < LEAST - v:
            total = LEAST
        else:
            total += v
        totals[s, place] = total
        out[i] = total


@register
@dataclass(frozen=True, kw_only=True)
class RunningTotals(KeyedTask):
    """Sum up whole numbers, truth values and records, per key and over all that has come.

    Parameters
    ----------
    totals : dict of str to (str or None)
        By output field the field that is summed: of whole numbers, or of truth values of which the true ones count.
        None: records.
    emit : "each" or "update", default "each"
        The totals after every record, or only with the last of each key in a batch (a micro-batch), as
        :class:`RunningCount` does.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    int64[n] or bool[n] -> int64[n] in each output field, 1:1 (``update``: N:1); O(1) time; 8 bytes of state per key
    and total. A total beyond what 64 bits hold stays at the last that they do.

    Missing values
    --------------
    A null adds nothing.

    Errors
    ------
    None; a field that is not of whole numbers or truth values is refused.

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

    totals: Any
    emit: Literal["each", "update"] = "each"

    def validate(self) -> None:
        object.__setattr__(self, "totals", checked_totals(self.totals, self.by))

    def __hash__(self) -> int:
        return hash(repr(self))

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **{of: "any" for of in self.totals.values() if of is not None}}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_summable(self.name(), self.totals, schema)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.totals:
            schema = with_field(schema, pa.field(name, pa.int64()))
        return schema

    def writes(self) -> frozenset[str] | None:
        return frozenset(self.totals)

    def state_fields(self) -> Mapping[str, StateField]:
        return {"totals": StateField("int64", len(self.totals))}

    @property
    def at_once(self) -> bool:
        return self.emit == "update"

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        made = {}
        for place, (name, of) in enumerate(self.totals.items()):
            out = np.empty(slots.size, np.int64)
            _add(addends(batch, of), slots, place, state["totals"], out)
            made[name] = out
        if self.emit == "update":
            taken = latest_rows(slots, len(state["totals"]))
            batch, made = batch.take(pa.array(taken)), {name: out[taken] for name, out in made.items()}
        for name, out in made.items():
            batch = replace_column(batch, name, pa.array(out))
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(7), pa.int64()),
                "key": ["a", "b", "a", "ü", None, "", "a"],
                "n": pa.array([1, -2, None, MOST, 7, 0, MOST], pa.int64()),
                "yes": [True, False, None, True, True, False, True],
            }
        )
        yield Case(cls(by=("key",), totals={"n": "n", "true": "yes", "rows": None}), batch)
        yield Case(cls(totals={"rows": None}), batch, "records")
