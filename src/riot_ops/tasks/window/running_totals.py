"""Running totals of fields, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.latest import latest_rows
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field
from riot_ops.tasks.window.totals import LEAST, MOST, addends, check_summable, checked_totals

__all__ = ["RunningTotals"]


#: What a record that stands for several does to a total: it adds a sum, and what comes out is from a least to a most.
DONE = ("sum", "least", "most")


@kernel
def _added(total: Any, v: Any) -> Any:
    """A total and one more; one that has left the range stays at its end."""
    if v > 0 and total > MOST - v:
        return MOST
    if v < 0 and total < LEAST - v:
        return LEAST
    return total + v


@kernel
def _add(values: Any, slots: Any, place: Any, totals: Any, out: Any) -> None:
    """The total after each row."""
    for i in range(slots.size):
        s = np.uint64(slots[i])
        total = _added(totals[s, place], values[i])
        totals[s, place] = total
        out[i] = total


@kernel
def _add_condensed(done: Any, slots: Any, place: Any, totals: Any, out: Any) -> None:
    """The same of rows that stand for several."""
    for i in range(slots.size):
        s = slots[i]
        total = min(max(_added(totals[s, place], done[0, i]), done[1, i]), done[2, i])
        totals[s, place] = total
        out[i] = total


@kernel
def _condense(slots: Any, last: Any, stands: Any, done: Any) -> None:
    """Let each row stand for those of its key before it, as long as no sum leaves the range.

    ``done[p]`` is the sum, the least and the most of total *p*; ``last`` the row before, of each key.
    """
    for i in range(slots.size):
        stands[i] = True
        j = last[slots[i]]
        last[slots[i]] = i
        if j < 0:
            continue
        fits = True
        for p in range(done.shape[0]):
            v = done[p, 0, i]
            u = done[p, 0, j]
            if (v > 0 and u > MOST - v) or (v < 0 and u < LEAST - v):
                fits = False
        if not fits:
            continue
        stands[j] = False
        for p in range(done.shape[0]):
            v = done[p, 0, i]
            done[p, 0, i] = done[p, 0, j] + v
            done[p, 1, i] = _added(done[p, 1, j], v)
            done[p, 2, i] = _added(done[p, 2, j], v)


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
    def needs_full_batch(self) -> bool:
        return self.emit == "update"

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        made = {}
        condensed = set(self._columns()).intersection(batch.schema.names)
        done = self._done(batch) if condensed else {}
        for place, (name, of) in enumerate(self.totals.items()):
            made[name] = out = np.empty(slots.size, np.int64)
            if condensed:
                _add_condensed(done[name], slots, place, state["totals"], out)
            else:
                _add(readonly(addends(batch, of)), slots, place, state["totals"], out)
        batch = batch.drop_columns(sorted(condensed))
        if self.emit == "update":
            taken = latest_rows(slots, len(state["totals"]))
            batch, made = batch.take(pa.array(taken)), {name: out[taken] for name, out in made.items()}
        for name, out in made.items():
            batch = replace_column(batch, name, pa.array(out))
        return batch

    def condensed(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if not self.needs_full_batch or self.ttl is not None:  # which counts from each record on
            return None
        done, stands = np.stack([*self._done(batch).values()]), np.empty(slots.size, np.bool_)
        _condense(slots, np.full(keys, -1), stands, done)
        batch = batch.filter(pa.array(stands))
        for name, column in zip(self._columns(), done.reshape(-1, slots.size), strict=True):
            batch = replace_column(batch, name, pa.array(column[stands]))
        return batch

    def _columns(self) -> list[str]:
        """Where a record that stands for several says what it does."""
        return [f"{name} {what}@condensed" for name in self.totals for what in DONE]

    def _done(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[np.int64]]:
        """What each row does to each total, by the name of that."""
        found = {}
        for name, of in self.totals.items():
            told = [f"{name} {what}@condensed" for what in DONE]
            if told[0] in batch.schema.names:
                found[name] = np.stack([int_column(batch.column(column)) for column in told])
            else:
                ends = (np.full(batch.num_rows, end) for end in (LEAST, MOST))
                found[name] = np.stack([addends(batch, of), *ends])
        return found

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
