"""Second frequency moment: how unevenly values repeat."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Length, Positive
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.hashing import fmix64
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register, replace_column

__all__ = ["SecondOrderMoment"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_PRIME = np.uint64(2**61 - 1)


@kernel
def splitmix(x: Any) -> Any:
    """Return the output of splitmix64 for state x."""
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


@kernel
def median(a: Any) -> Any:
    """Return the median; sorts its argument in place."""
    for i in range(1, a.size):
        x = a[i]
        j = i - 1
        while j >= 0 and a[j] > x:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = x
    half = a.size // 2
    return a[half] if a.size % 2 == 1 else 0.5 * (a[half - 1] + a[half])


@kernel
def sample_moment(
    words: Any, missing: Any, slots: Any, items: Any, counts: Any, n: Any, draws: Any, seed: Any, means: Any, out: Any
) -> None:
    """Estimate moments from a reservoir per key of elements, each with its occurrences since it was sampled."""
    size = items.shape[1]
    share = size // means.size
    for i in range(words.size):
        s = slots[i]
        if not missing[i]:
            x = words[i]
            for j in range(min(n[s], size)):
                if items[s, j] == x:
                    counts[s, j] += 1
            place = n[s]
            n[s] += 1
            if place >= size:
                draws[s] += 1
                uniform = np.float64(splitmix(seed + np.uint64(draws[s]) * _GOLDEN) >> np.uint64(11)) * 2.0**-53
                place = np.int64(uniform * n[s])
            if place < size:
                items[s, place] = x
                counts[s, place] = 1
        if n[s] <= size:
            total = 0
            for j in range(n[s]):
                total += 2 * counts[s, j] - 1
            out[i] = total
        else:
            for g in range(means.size):
                total = 0
                for j in range(g * share, (g + 1) * share):
                    total += 2 * counts[s, j] - 1
                means[g] = total / share
            out[i] = n[s] * median(means)


@kernel
def exact_moment(
    words: Any,
    missing: Any,
    slots: Any,
    items: Any,
    counts: Any,
    distinct: Any,
    moment: Any,
    limit: Any,
    full: Any,
    out: Any,
) -> None:
    """Compute moments from a hash table per key; an entry with count 0 is free."""
    mask = np.uint64(items.shape[1] - 1)
    for i in range(words.size):
        s = slots[i]
        if not missing[i]:
            p = fmix64(words[i]) & mask
            while counts[s, p] > 0 and items[s, p] != words[i]:
                p = (p + np.uint64(1)) & mask
            if counts[s, p] == 0:
                if distinct[s] == limit:
                    full[i] = True
                    continue
                distinct[s] += 1
                items[s, p] = words[i]
            moment[s] += 2 * counts[s, p] + 1
            counts[s, p] += 1
        out[i] = moment[s]


@kernel
def times_mod(a: Any, b: Any) -> Any:
    """Multiply modulo 2^61 - 1, for a and b below it, in 64 bits."""
    low = np.uint64(2**31 - 1)
    au = a >> np.uint64(31)
    ad = a & low
    bu = b >> np.uint64(31)
    bd = b & low
    mid = ad * bu + au * bd
    upper = mid >> np.uint64(30)
    lower = mid & np.uint64(2**30 - 1)
    x = np.uint64(2) * au * bu + upper + (lower << np.uint64(31)) + ad * bd
    x = (x >> np.uint64(61)) + (x & _PRIME)
    return x - _PRIME if x >= _PRIME else x


@kernel
def sketch_moment(
    words: Any, missing: Any, slots: Any, counters: Any, squares: Any, factors: Any, width: Any, rows: Any, out: Any
) -> None:
    """Estimate moments from rows of signed counters; ``squares`` holds each row's sum of squares."""
    depth = factors.shape[0]
    for i in range(words.size):
        s = slots[i]
        if not missing[i]:
            x = fmix64(words[i]) % _PRIME
            for d in range(depth):
                h = factors[d, 0]
                for k in range(1, 4):
                    h = times_mod(h, x) + factors[d, k]
                    h = h - _PRIME if h >= _PRIME else h
                sign = 1 if h & np.uint64(1) else -1
                j = d * width + np.int64((h >> np.uint64(1)) & np.uint64(width - 1))
                squares[s, d] += 2 * sign * counters[s, j] + 1
                counters[s, j] += sign
        for d in range(depth):
            rows[d] = squares[s, d]
        out[i] = median(rows)


@register
@dataclass(frozen=True, kw_only=True)
class SecondOrderMoment(ValueTask):
    """Estimate the running second frequency moment of each key's values.

    ``F2 = Σ m_v²`` over the distinct values v, which occurred m_v times: n for values that never
    repeat, n² for a constant value. Integers are compared exactly; decimals only with ``round_to``, in float64.

    ``reservoir``: s variables (x, c), a uniform sample of the positions of the stream; c counts the
    occurrences of x from its position on. ``F2 ≈ n · mean(2 c - 1)``, the median of that over groups.
    ``tug_of_war``: in each row of counters, a value adds ±1 to one counter, chosen by a 4-wise
    independent hash; ``F2 ≈ median over rows of Σ counter²``. ``exact``: a table of counts.

    Parameters
    ----------
    method : "reservoir", "tug_of_war" or "exact", default "reservoir"
        How to estimate.
    size : int, 1 to 1,048,576, default 10
        Number s of variables in the reservoir.
    median_of : int >= 1, default 1
        Number of groups of variables whose median is the result, a divisor of ``size``.
    depth, counters : int, 1 to 1,048,576, default 5 and 256
        Rows of the sketch and counters per row, the latter a power of two.
    max_distinct : int, 1 to 1,048,576, default 1024
        Maximum number of distinct values in the exact table.
    round_to : float > 0 or None, default None
        Width of the bins to which values are rounded before they are compared: continuous readings hardly repeat, and
        F2 is about n.
    seed : int, 0 to 2^63 - 1, default 0
        Seed of the random numbers, the same for every key.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1.

    =========== ===================== ============================= ==========================
    method      time per reading      bytes of state per key        error
    =========== ===================== ============================= ==========================
    reservoir   O(size)               16 size + 16                  none up to size readings,
                                                                    unbiased after
    tug_of_war  O(depth)              8 depth (counters + 1)        ``√(2 / counters)`` per row
                                                                    (standard, relative)
    exact       O(1)                  up to 43 max_distinct + 16    none
    =========== ===================== ============================= ==========================

    The counters of two sketches with equal parameters add up to the sketch of both streams, see :meth:`Session.merge`.

    Missing values
    --------------
    A null or NaN is not counted; its record carries the estimate so far (0 at first).

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``; with ``exact`` a new value
    beyond ``max_distinct`` as ``too_many_values``. Neither changes the state.

    References
    ----------
    .. [1] N. Alon, Y. Matias, M. Szegedy, *The Space Complexity of Approximating the Frequency
       Moments*, STOC 1996, sections 2.1 (sampling) and 2.2 (signs).
    .. [2] G. Cormode, M. Garofalakis, *Sketching Streams Through the Net*, VLDB 2005, section 3
       (one counter per row).
    .. [3] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task SOM.

    Examples
    --------
    >>> moment = SecondOrderMoment().session()
    >>> [moment.push({"value": v})[0]["value"] for v in (1.0, 1.0, 2.0)]
    [1.0, 4.0, 5.0]
    """

    code: ClassVar[str] = "SOM"
    version: ClassVar[int] = 2
    category: ClassVar[str] = "Statistical"

    method: Literal["reservoir", "tug_of_war", "exact"] = "reservoir"
    size: Length = 10
    median_of: Count = 1
    depth: Length = 5
    counters: Length = 256
    max_distinct: Length = 1024
    round_to: Positive | None = None
    seed: int = 0

    def validate(self) -> None:
        if self.size % self.median_of:
            raise ConfigError(f"median_of must divide size = {self.size}, got {self.median_of}")
        if self.counters & (self.counters - 1):
            raise ConfigError(f"counters must be a power of two, got {self.counters}")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")

    def requires(self) -> Mapping[str, Requirement]:
        needed: Requirement = "exact number" if self.round_to is None else "number"
        return {**super().requires(), self.value: needed}

    def state_fields(self) -> Mapping[str, StateField]:
        if self.method == "tug_of_war":
            return {
                "counters": StateField("int64", self.depth * self.counters),
                "squares": StateField("int64", self.depth),
            }
        if self.method == "exact":
            room = 1 << (self.max_distinct * 4 // 3).bit_length()  # never more than 3/4 full
            return {
                "items": StateField("uint64", room),
                "counts": StateField("int64", room),
                "distinct": StateField("int64"),
                "moment": StateField("int64"),
            }
        return {
            "items": StateField("uint64", self.size),
            "counts": StateField("int64", self.size),
            "n": StateField("int64"),
            "draws": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        column = batch.column(self.value)
        values, _ = float_column(column)
        missing = np.isnan(values)
        if self.round_to is None and pa.types.is_integer(column.type):  # float64 would make some of them equal
            numbers = np.asarray(column.fill_null(0))
            words = numbers.astype(np.uint64 if numbers.dtype.kind == "u" else np.int64).view(np.uint64)
        else:
            words = (self._binned(values) + 0.0).view(np.uint64)
        out = np.empty(values.size)
        if self.method == "tug_of_war":
            sketch_moment(
                words,
                missing,
                slots,
                state["counters"],
                state["squares"],
                _factors(self.depth, self.seed),
                self.counters,
                np.empty(self.depth),
                out,
            )
        elif self.method == "reservoir":
            sample_moment(
                words,
                missing,
                slots,
                state["items"],
                state["counts"],
                state["n"],
                state["draws"],
                np.uint64(self.seed),
                np.empty(self.median_of),
                out,
            )
        else:
            full = np.zeros(values.size, np.bool_)
            exact_moment(
                words,
                missing,
                slots,
                state["items"],
                state["counts"],
                state["distinct"],
                state["moment"],
                self.max_distinct,
                full,
                out,
            )
            if full.any():
                errors.reject(
                    batch,
                    full,
                    "too_many_values",
                    f"{self.value} has more than max_distinct = {self.max_distinct} different values",
                )
                batch, out = batch.filter(pa.array(~full)), out[~full]
        return replace_column(batch, self.target, out)

    def merge_states(self, state: State, other: State) -> State | None:
        if self.method != "tug_of_war":  # a reservoir depends on order, and two tables together may exceed max_distinct
            return None
        counters = state["counters"] + other["counters"]
        squares = (counters.reshape(-1, self.depth, self.counters) ** 2).sum(axis=2)
        return {"counters": counters, "squares": squares}

    def _binned(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self.round_to is None:
            return values
        with np.errstate(over="ignore"):
            bins = np.rint(values / self.round_to)
        return np.where(np.isinf(bins), values, bins)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a"],
                "value": [10.0, -3.5, 10.0, None, float("nan"), 1e300, -3.5, -0.0, 0.0, 0.0],
            }
        )
        yield Case(cls(by=("key",), size=2, median_of=2, seed=3), batch)
        yield Case(cls(size=3, round_to=1e-300), batch)
        yield Case(cls(by=("key",), method="tug_of_war", depth=4, counters=4, output="f2"), batch)
        yield Case(cls(by=("key",), method="exact", max_distinct=2), batch)


@functools.lru_cache(64)
def _factors(depth: int, seed: int) -> npt.NDArray[np.uint64]:
    """Draw the coefficients of the hash polynomials: splitmix64 numbers below the prime."""
    found: list[int] = []
    x = seed
    while len(found) < 4 * depth:
        x = (x + int(_GOLDEN)) % 2**64
        z = ((x ^ (x >> 30)) * int(_MIX1)) % 2**64
        z = ((z ^ (z >> 27)) * int(_MIX2)) % 2**64
        number = (z ^ (z >> 31)) >> 3
        if number < int(_PRIME):
            found.append(number)
    return np.array(found, np.uint64).reshape(depth, 4)
