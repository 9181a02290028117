"""Running summary: count, minimum, maximum, exact sum and mean of all readings so far."""

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
from riot_ops.kernels.arrays.exact import compared, exact_numbers, exact_result, exact_type
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.exact_sum import DIGITS, add_exactly, round_sum
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

__all__ = ["RunningSummary"]

STATISTICS = ("count", "min", "max", "sum", "mean")

#: Columns of a condensed batch: number of the readings that a row represents, their extremes, their sum in two parts.
READINGS = "readings@condensed"
PARTS = tuple(f"{name}@condensed" for name in ("min", "max", "high", "low", "min_rest", "max_rest"))


@kernel
def _condense(
    values: Any, rests: Any, slots: Any, last: Any, alone: Any, representative: Any, counts: Any, parts: Any
) -> None:
    """Fold each row into the next one of its key, as long as their sum is exact in two parts.

    ``last`` is the previous row of each key. ``counts`` and ``parts`` describe the readings that a row represents;
    where a row is ``alone``, they have no meaning. A row of a condensed batch contains them.
    """
    for i in range(values.size):
        x = values[i]
        representative[i] = True
        alone[i] = counts[i] == 0
        if alone[i]:
            some = not np.isnan(x)
            counts[i] = 1 if some else 0
            parts[0, i] = x if some else np.inf
            parts[1, i] = x if some else -np.inf
            parts[2, i] = x if some else 0.0
            rest = rests[i] if some and rests.size > 0 else 0.0
            parts[3, i] = parts[4, i] = parts[5, i] = rest
        if np.isinf(x):  # it will be rejected
            continue
        j = last[slots[i]]
        last[slots[i]] = i
        if j < 0:
            continue
        high, rest = _two_sum(parts[2, j], parts[2, i])
        low, lost = _two_sum(parts[3, j], rest)
        low, lost_too = _two_sum(low, parts[3, i])
        if lost != 0.0 or lost_too != 0.0:  # also NaN, where the sum overflows
            continue
        representative[j] = False
        alone[i] = False
        counts[i] += counts[j]
        if _less(parts[0, j], parts[4, j], parts[0, i], parts[4, i]):
            parts[0, i] = parts[0, j]
            parts[4, i] = parts[4, j]
        if _less(parts[1, i], parts[5, i], parts[1, j], parts[5, j]):
            parts[1, i] = parts[1, j]
            parts[5, i] = parts[5, j]
        parts[2, i] = high
        parts[3, i] = low


@kernel
def _less(a: Any, a_rest: Any, b: Any, b_rest: Any) -> Any:
    """Whether a pair is less than another, see :mod:`riot_ops.kernels.arrays.exact`."""
    return a < b or (a == b and a_rest < b_rest)


@kernel
def _two_sum(a: Any, b: Any) -> Any:
    """Return the rounded sum and its rounding error."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


@kernel
def _summarise(
    values: Any,
    rests: Any,
    slots: Any,
    wanted: Any,
    readings: Any,
    parts: Any,
    count: Any,
    minimum: Any,
    maximum: Any,
    minimum_rest: Any,
    maximum_rest: Any,
    digits: Any,
    room: Any,
    counts: Any,
    statistics: Any,
) -> None:
    """Add each value, or the readings that a condensed row represents, and write the statistics after wanted rows."""
    for i in range(values.size):
        s = slots[i]
        x = values[i]
        if readings[i] > 0:
            count[s] += readings[i]
            low, high, low_rest, high_rest = parts[0, i], parts[1, i], parts[4, i], parts[5, i]
            add_exactly(digits[s], parts[2, i])
            add_exactly(digits[s], parts[3, i])
        else:
            low = high = x
            low_rest = high_rest = rests[i] if rests.size > 0 else 0.0
            if not np.isnan(x):
                count[s] += 1
                add_exactly(digits[s], x)
                if low_rest != 0.0:
                    add_exactly(digits[s], low_rest)
        # not by _less, which would load the rests every time
        if low < minimum[s] or (low == minimum[s] and low_rest < minimum_rest[s]):
            minimum[s] = low
            minimum_rest[s] = low_rest
        if high > maximum[s] or (high == maximum[s] and high_rest > maximum_rest[s]):
            maximum[s] = high
            maximum_rest[s] = high_rest
        if wanted[i]:
            some = count[s] > 0
            total = round_sum(digits[s], room)
            counts[i] = count[s]
            statistics[0, i] = minimum[s] if some else np.nan
            statistics[1, i] = maximum[s] if some else np.nan
            statistics[2, i] = total
            statistics[3, i] = total / count[s] if some else np.nan
            statistics[4, i] = minimum_rest[s]
            statistics[5, i] = maximum_rest[s]


def _condensed_columns(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the number of readings that each row represents, and their extremes and sum; 0: only its own value."""
    if READINGS not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64), np.zeros((len(PARTS), batch.num_rows))
    return int_column(batch.column(READINGS)).copy(), np.stack([np.asarray(batch.column(name)) for name in PARTS])


@register
@dataclass(frozen=True, kw_only=True)
class RunningSummary(KeyedTask):
    """Keep count, minimum, maximum, sum and mean of all readings of each key so far.

    The sum is exact and rounded once to float64, so that it does not depend on the order of the readings; the mean is
    that sum divided by the count. Minimum and maximum have the type of the field (float64 for floating types) and all
    digits; decimals are refused.

    Parameters
    ----------
    value : str, default "value"
        Numeric field to summarise.
    prefix : str, default ""
        Prefix of the output fields ``count``, ``min``, ``max``, ``sum`` and ``mean``.
    emit : "each" or "update", default "each"
        Emit the statistics after every record, or only with the last record of each key in a (micro-)batch, as
        :class:`RunningCount` does.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    number[n] -> int64[n], twice number[n] and twice float64[n], 1:1 (``update``: N:1); O(1) time; 584 bytes of state
    per key.

    Missing values
    --------------
    A null or NaN is not counted; its record carries the statistics so far. Before the first reading the count and the
    sum are 0, the others null. A sum beyond float64 is null, and so is its mean, until later readings return it
    into range.

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
    version: ClassVar[int] = 2

    value: str = "value"
    prefix: str = ""
    emit: Literal["each", "update"] = "each"

    def validate(self) -> None:
        for name in self._names():
            if name in ("seq", "event_time", *self.by) or is_ordinal(name):
                raise ConfigError(f"prefix = {self.prefix!r} names a field {name!r}, which is reserved")

    def _names(self) -> list[str]:
        return [self.prefix + name for name in STATISTICS]

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.value: "exact number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        extreme = exact_type(schema.field(self.value).type)
        types = (pa.int64(), extreme, extreme, pa.float64(), pa.float64())
        for name, dtype in zip(self._names(), types, strict=True):
            schema = with_field(schema, pa.field(name, dtype))
        return schema

    def writes(self) -> frozenset[str] | None:
        return frozenset(self._names())

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "count": StateField("int64"),
            "min": StateField("float64", initial=np.inf),
            "max": StateField("float64", initial=-np.inf),
            "min_rest": StateField("float64"),
            "max_rest": StateField("float64"),
            "digits": StateField("int64", shape=DIGITS),
        }

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        if READINGS not in batch.schema.names:
            return reject_infinite(batch, self.value, dead)
        reject_infinite(batch.drop_columns([READINGS, *PARTS]), self.value, dead)  # without the internal columns
        values, _ = float_column(batch.column(self.value))
        return batch.filter(pa.array(~np.isinf(values)))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        dtype = batch.schema.field(self.value).type
        values, rests = exact_numbers(batch.column(self.value))
        readings, parts = _condensed_columns(batch)
        if READINGS in batch.schema.names:
            batch = batch.drop_columns([READINGS, *PARTS])
        taken = np.arange(slots.size) if self.emit == "each" else latest_rows(slots, state["count"].size)
        wanted = np.zeros(slots.size, np.bool_)
        wanted[taken] = True
        counts, statistics = np.empty(slots.size, np.int64), np.empty((len(PARTS), slots.size))
        arrays: list[Any] = [state[name] for name in ("count", "min", "max", "min_rest", "max_rest", "digits")]
        arrays += [np.empty(DIGITS, np.int64), counts, statistics]
        # + 0.0 turns -0.0 into 0.0, so that the extremes do not depend on which comes first
        _summarise(values + 0.0, rests, slots, wanted, readings, parts, *arrays)
        if taken.size < slots.size:
            batch, counts, statistics = batch.take(pa.array(taken)), counts[taken], statistics[:, taken]
        low, high, total, mean, low_rest, high_rest = statistics
        extremes = (exact_result(v, r, np.isnan(v), dtype) for v, r in ((low, low_rest), (high, high_rest)))
        for name, column in zip(self._names(), (pa.array(counts), *extremes, total, mean), strict=True):
            batch = replace_column(batch, name, column)
        return batch

    def precombine(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if self.emit != "update" or self.ttl is not None:  # a ttl runs from each record
            return None
        values, rests = exact_numbers(batch.column(self.value))
        alone, representative = np.empty(slots.size, np.bool_), np.empty(slots.size, np.bool_)
        counts, parts = _condensed_columns(batch)
        with np.errstate(all="ignore"):  # sums may overflow
            _condense(values + 0.0, rests, slots, np.full(keys, -1), alone, representative, counts, parts)
        counts[alone] = 0
        parts[:, alone] = 0.0  # constant columns compress well
        batch = replace_column(batch.filter(pa.array(representative)), READINGS, pa.array(counts[representative]))
        for name, part in zip(PARTS, parts, strict=True):
            batch = replace_column(batch, name, pa.array(part[representative]))
        return batch

    def merge_states(self, state: State, other: State) -> State | None:
        digits = state["digits"] + other["digits"]
        for k in range(DIGITS - 1):
            digits[:, k + 1] += digits[:, k] >> 32
            digits[:, k] &= 0xFFFFFFFF
        merged = {"count": state["count"] + other["count"], "digits": digits}
        for name, sign in (("min", 1), ("max", -1)):
            rest = f"{name}_rest"
            order = compared(state[name], state[rest], other[name], other[rest])
            for part in (name, rest):
                merged[part] = np.where(sign * order <= 0, state[part], other[part])
        return merged

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
