"""Count, least, greatest, sum and mean of all readings so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import is_ordinal
from riot_ops.kernels.arrays.arrow import float_column, int_column
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.exact_sum import DIGITS, add_exactly, rounded
from riot_ops.kernels.stats.latest import latest_rows
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, finite, register, replace_column, with_field

__all__ = ["RunningSummary"]

FIGURES = ("count", "min", "max", "sum", "mean")

#: For which readings a record stands, where there are any: how many, the least, the greatest, their sum in two parts.
READINGS = "readings@condensed"
PARTS = tuple(f"{name}@condensed" for name in ("least", "most", "high", "low"))


@kernel
def _condense(values: Any, slots: Any, last: Any, alone: Any, stands: Any, counts: Any, parts: Any) -> None:
    """Let each row stand for those of its key before it, as long as their sum is exact in two parts.

    ``last`` is the row before, of each key. What is in ``counts`` and ``parts`` where a row is ``alone`` says nothing;
    one that stands for several as it comes has there what it says of them.
    """
    for i in range(values.size):
        x = values[i]
        stands[i] = True
        alone[i] = counts[i] == 0
        if alone[i]:
            some = not np.isnan(x)
            counts[i] = 1 if some else 0
            parts[0, i] = x if some else np.inf
            parts[1, i] = x if some else -np.inf
            parts[2, i] = x if some else 0.0
            parts[3, i] = 0.0
        if np.isinf(x):  # which is rejected
            continue
        j = last[slots[i]]
        last[slots[i]] = i
        if j < 0:
            continue
        high, rest = _two_sum(parts[2, j], parts[2, i])
        low, lost = _two_sum(parts[3, j], rest)
        low, lost_too = _two_sum(low, parts[3, i])
        if lost != 0.0 or lost_too != 0.0:  # NaN, too, where the sum is no double any more
            continue
        stands[j] = False
        alone[i] = False
        counts[i] += counts[j]
        parts[0, i] = min(parts[0, i], parts[0, j])
        parts[1, i] = max(parts[1, i], parts[1, j])
        parts[2, i] = high
        parts[3, i] = low


@kernel
def _two_sum(a: Any, b: Any) -> Any:
    """The sum, rounded, and what was lost by that."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


@kernel
def _summarise(
    values: Any,
    slots: Any,
    wanted: Any,
    readings: Any,
    parts: Any,
    count: Any,
    least: Any,
    most: Any,
    digits: Any,
    room: Any,
    counts: Any,
    figures: Any,
) -> None:
    """Take in each value that is none, or for which readings a row stands, and give the figures after those wanted."""
    for i in range(values.size):
        s = slots[i]
        x = values[i]
        if readings[i] > 0:
            count[s] += readings[i]
            least[s] = min(least[s], parts[0, i])
            most[s] = max(most[s], parts[1, i])
            add_exactly(digits[s], parts[2, i])
            add_exactly(digits[s], parts[3, i])
        elif not np.isnan(x):
            count[s] += 1
            least[s] = min(least[s], x)
            most[s] = max(most[s], x)
            add_exactly(digits[s], x)
        if wanted[i]:
            some = count[s] > 0
            total = rounded(digits[s], room)
            counts[i] = count[s]
            figures[0, i] = least[s] if some else np.nan
            figures[1, i] = most[s] if some else np.nan
            figures[2, i] = total
            figures[3, i] = total / count[s] if some else np.nan


def _told(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For how many readings each row stands, and what it says of them; 0 where it stands for itself."""
    if READINGS not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64), np.zeros((4, batch.num_rows))
    return int_column(batch.column(READINGS)).copy(), np.stack([np.asarray(batch.column(name)) for name in PARTS])


@register
@dataclass(frozen=True, kw_only=True)
class RunningSummary(KeyedTask):
    """Count the readings of each key and give the least, the greatest, their sum and mean, over all that has come.

    The sum is exact and rounded once, so that it does not depend on the order of the readings; the mean is that sum
    divided by the count.

    Parameters
    ----------
    value : str, default "value"
        Numeric field that is summed up.
    prefix : str, default ""
        What the names of the fields ``count``, ``min``, ``max``, ``sum`` and ``mean`` begin with.
    emit : "each" or "update", default "each"
        The figures after every record, or only with the last of each key in a batch (a micro-batch), as
        :class:`RunningCount` does.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> int64[n] and four times float64[n], 1:1 (``update``: N:1); O(1) time; 568 bytes of state per key.

    Missing values
    --------------
    A null or NaN is not counted; its record carries the figures so far. Before the first reading the count and the sum
    are 0, the others null. A sum beyond what a double holds is null, and so is its mean; it may come back.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] U. Kulisch, *Computer arithmetic and validity*, 2008, chapter 8: sums in a register for all exponents.
    .. [2] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench*, UCC 2014: the program Statistics.

    Examples
    --------
    >>> summary = RunningSummary().session()
    >>> [summary.push({"value": v})[0]["sum"] for v in (1e100, 1.0, -1e100)]
    [1e+100, 1e+100, 1.0]
    """

    code: ClassVar[str] = "RSM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"

    value: str = "value"
    prefix: str = ""
    emit: Literal["each", "update"] = "each"

    def validate(self) -> None:
        for name in self._names():
            if name in ("seq", "event_time", *self.by) or is_ordinal(name):
                raise ConfigError(f"prefix = {self.prefix!r} gives a field the name {name!r}, which is taken")

    def _names(self) -> list[str]:
        return [self.prefix + name for name in FIGURES]

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.value: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for i, name in enumerate(self._names()):
            schema = with_field(schema, pa.field(name, pa.float64() if i else pa.int64()))
        return schema

    def writes(self) -> frozenset[str] | None:
        return frozenset(self._names())

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "count": StateField("int64"),
            "least": StateField("float64", initial=np.inf),
            "most": StateField("float64", initial=-np.inf),
            "digits": StateField("int64", shape=DIGITS),
        }

    @property
    def needs_full_batch(self) -> bool:
        return self.emit == "update"

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        if READINGS not in batch.schema.names:
            return finite(batch, self.value, dead)
        finite(batch.drop_columns([READINGS, *PARTS]), self.value, dead)  # as the record came
        values, _ = float_column(batch.column(self.value))
        return batch.filter(pa.array(~np.isinf(values)))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        readings, parts = _told(batch)
        if READINGS in batch.schema.names:
            batch = batch.drop_columns([READINGS, *PARTS])
        taken = np.arange(slots.size) if self.emit == "each" else latest_rows(slots, state["count"].size)
        wanted = np.zeros(slots.size, np.bool_)
        wanted[taken] = True
        counts, figures = np.empty(slots.size, np.int64), np.empty((4, slots.size))
        kept: list[Any] = [state[name] for name in ("count", "least", "most", "digits")]
        kept += [np.empty(DIGITS, np.int64), counts, figures]
        # 0 added: -0 and 0 are one reading, whichever comes first
        _summarise(values + 0.0, slots, wanted, readings, parts, *kept)
        if taken.size < slots.size:
            batch, counts, figures = batch.take(pa.array(taken)), counts[taken], figures[:, taken]
        for name, column in zip(self._names(), (pa.array(counts), *figures), strict=True):
            batch = replace_column(batch, name, column)
        return batch

    def condensed(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if not self.needs_full_batch or self.ttl is not None:  # which counts from each record on
            return None
        values, _ = float_column(batch.column(self.value))
        alone, stands = np.empty(slots.size, np.bool_), np.empty(slots.size, np.bool_)
        counts, parts = _told(batch)
        with np.errstate(all="ignore"):  # beyond doubles
            _condense(values + 0.0, slots, np.full(keys, -1), alone, stands, counts, parts)
        counts[alone] = 0
        parts[:, alone] = 0.0  # which takes little room
        batch = replace_column(batch.filter(pa.array(stands)), READINGS, pa.array(counts[stands]))
        for name, part in zip(PARTS, parts, strict=True):
            batch = replace_column(batch, name, pa.array(part[stands]))
        return batch

    def merge(self, state: State, other: State) -> State | None:
        digits = state["digits"] + other["digits"]
        for k in range(DIGITS - 1):
            digits[:, k + 1] += digits[:, k] >> 32
            digits[:, k] &= 0xFFFFFFFF
        return {
            "count": state["count"] + other["count"],
            "least": np.minimum(state["least"], other["least"]),
            "most": np.maximum(state["most"], other["most"]),
            "digits": digits,
        }

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(11), pa.int64()),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a", "a"],
                "value": [1e16, -3.5, 1.0, None, float("nan"), 1e300, -0.0, -1e16, float("inf"), 1.7e308, 1.7e308],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(prefix="value_"), batch, "of the stream")
