"""Approximate count of distinct values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import NO_MASK, nullable_column
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.hyperloglog import (
    alpha,
    estimate,
    hash_values,
    hashable_values,
    insert,
    linear_counts,
)
from riot_ops.task import (
    Case,
    KeyedTask,
    Requirement,
    SketchTask,
    State,
    StateField,
    register,
    replace_column,
    with_field,
)

__all__ = ["DistinctCount"]

#: Twice the constant of LogLog, 0.39701: the paper's ranks count from 1, the benchmark's from 0.
LOGLOG = 0.79402


@kernel
def count_distinct(
    hashes: Any,
    present: Any,
    slots: Any,
    registers: Any,
    filled: Any,
    weight: Any,
    latest: Any,
    precision: Any,
    constant: Any,
    linear: Any,
    out: Any,
) -> None:
    """Estimate the count after each value; ``filled`` and ``weight`` are integers kept beside the registers."""
    m = 1 << precision
    for i in range(hashes.size):
        s = slots[i]
        if present[i]:
            old, new = insert(registers[s], hashes[i], precision)
            if new > old:
                if old == 0:
                    filled[s] += 1
                else:
                    weight[s] -= np.uint64(1) << np.uint64(65 - precision - old)
                weight[s] += np.uint64(1) << np.uint64(65 - precision - new)
                latest[s] = np.floor(estimate(m - filled[s], weight[s], precision, constant, linear) + 0.5)
        out[i] = latest[s]


@kernel
def count_loglog(
    hashes: Any, present: Any, slots: Any, registers: Any, total: Any, latest: Any, precision: Any, out: Any
) -> None:
    """Estimate the count after each value like :func:`count_distinct`, with LogLog over signed 32-bit hashes."""
    m = 1 << precision
    for i in range(hashes.size):
        s = slots[i]
        if present[i]:
            j = hashes[i] & (m - 1)
            w = hashes[i] >> precision
            r = 0
            if w == 0:
                r = 31
            else:
                while w & 1 == 0:
                    w >>= 1
                    r += 1
            if r > registers[s, j]:
                total[s] += r - registers[s, j]
                registers[s, j] = r
            latest[s] = np.floor(LOGLOG * m * 2.0 ** (total[s] / m))
        out[i] = latest[s]


@kernel
def recount(registers: Any, filled: Any, weight: Any, latest: Any, precision: Any, constant: Any, linear: Any) -> None:
    """Recompute from the registers what :func:`count_distinct` keeps beside them."""
    for s in range(registers.shape[0]):
        for j in range(registers.shape[1]):
            r = np.int64(registers[s, j])
            if r > 0:
                filled[s] += 1
                weight[s] += np.uint64(1) << np.uint64(65 - precision - r)
        latest[s] = np.floor(estimate(registers.shape[1] - filled[s], weight[s], precision, constant, linear) + 0.5)


@register
@dataclass(frozen=True, kw_only=True)
class DistinctCount(SketchTask, KeyedTask):
    """Estimate the running number of distinct values of a field.

    HyperLogLog: a 64-bit MurmurHash3 h of the value selects one of ``m = 2^precision`` registers by
    its low bits and ``M[j] = max(M[j], 1 + leading zeros of the rest)``; ``n ≈ α m² / Σ 2^-M[j]``,
    or ``m ln(m / V)`` while that is at most ``2.5 m`` and V > 0 registers are empty.

    Parameters
    ----------
    field : str, default "value"
        Field whose distinct values are counted: text, numbers or times.
    method : "hyperloglog" or "loglog", default "hyperloglog"
        ``loglog`` reproduces the numbers of the benchmark's Java code, for comparisons: it is useless
        below about 2.5 m distinct values and slow (SHA-1 in Python).
    precision : int, 4 to 16, default 10
        Number of bits that select the register.
    secret : Secret or None, default None
        With HyperLogLog: keys the hash, so that no sender can choose values that raise the estimate or do not count.
        State continues only with the same secret. None: the hash is fixed, the same in every system.
    output : str, default "value"
        Field for the estimate; ``value`` is overwritten.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> float64[n] (whole numbers), 1:1; O(1) time; m + 24 bytes of state per key. Standard
    error 1.04/√m: 3.25 % by default (``loglog``: 1.30/√m for large counts).

    Text is hashed by its UTF-8 bytes, numbers by the 8 bytes of the float64, so that 1 and 1.0 are one
    value, and times by the 8 bytes of the int64. An integer that is no float64 is hashed as an integer, a decimal
    by its digits. For the same sketch as a data structure see :class:`riot_ops.sketches.HyperLogLog`.

    Missing values
    --------------
    A null or NaN is not counted; its record carries the estimate so far (0 at first).

    Errors
    ------
    None; an infinite number is a value of its own.

    References
    ----------
    .. [1] P. Flajolet, É. Fusy, O. Gandouet, F. Meunier, *HyperLogLog*, AofA 2007, fig. 3.
    .. [2] M. Durand, P. Flajolet, *Loglog Counting of Large Cardinalities*, ESA 2003, section 2.
    .. [3] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task DAC.

    Examples
    --------
    >>> count = DistinctCount(field="sensor_id").session()
    >>> [count.push({"sensor_id": s})[0]["value"] for s in ("a", "b", "a", None, "c")]
    [1.0, 2.0, 2.0, 2.0, 3.0]
    """

    code: ClassVar[str] = "DAC"
    replaces: ClassVar[frozenset[str]] = frozenset({"value"})
    version: ClassVar[int] = 2
    category: ClassVar[str] = "Statistical"
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"output"})

    field: str = "value"
    output: str = "value"
    method: Literal["hyperloglog", "loglog"] = "hyperloglog"
    precision: Annotated[int, msgspec.Meta(ge=4, le=16)] = 10

    def validate(self) -> None:
        if self.method == "loglog" and self.secret is not None:
            raise ConfigError("distinct_count: secret needs method='hyperloglog'; 'loglog' has the benchmark's hash")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.field: "key"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {"registers": StateField("uint8", 1 << self.precision), "latest": StateField("float64")}
        if self.method == "loglog":
            return {**fields, "total": StateField("int64")}
        return {**fields, "filled": StateField("int64"), "weight": StateField("uint64")}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        column = batch.column(self.field)
        out = np.empty(batch.num_rows)
        if self.method == "loglog":
            codes, present = _sha1(column)
            count_loglog(
                codes, present, slots, state["registers"], state["total"], state["latest"], self.precision, out
            )
        else:
            hashes, present = hash_values(column, self.hash_key.words)
            count_distinct(
                hashes,
                present,
                slots,
                state["registers"],
                state["filled"],
                state["weight"],
                state["latest"],
                self.precision,
                alpha(self.precision),
                linear_counts(self.precision),
                out,
            )
        return replace_column(batch, self.output, nullable_column(out, NO_MASK))  # no estimate is NaN

    def merge_states(self, state: State, other: State) -> State | None:
        registers = np.maximum(state["registers"], other["registers"])
        n, m = registers.shape
        if self.method == "loglog":
            total = registers.sum(axis=1, dtype=np.int64)
            counted = (state["latest"] > 0) | (other["latest"] > 0)
            latest = np.where(counted, np.floor(LOGLOG * m * 2.0 ** (total / m)), 0.0)
            return {"registers": registers, "total": total, "latest": latest}
        filled, weight, latest = np.zeros(n, np.int64), np.zeros(n, np.uint64), np.zeros(n)
        linear = linear_counts(self.precision)
        recount(registers, filled, weight, latest, self.precision, alpha(self.precision), linear)
        return {"registers": registers, "filled": filled, "weight": weight, "latest": latest}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a"],
                "name": ["x", "", "y", "Zürich", "\x00", None, "x", "x"],
                "value": [10.0, -0.0, 0.0, None, float("nan"), float("inf"), 10.0, 1e300],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), field="name", precision=4, output="names"), batch)
        yield Case(cls(field="name", method="loglog"), batch)


def _sha1(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the first four bytes of SHA-1 of each value's text, as signed little-endian integers."""
    values, present = hashable_values(column)
    unique = values.dictionary_encode()
    # a number by the text of its float64, unless that is another number
    number = pa.types.is_integer(column.type)
    texts = [
        v if isinstance(v, bytes) else str(float(v) if number and float(v) == v else v).encode()
        for v in unique.dictionary.to_pylist()
    ]
    codes = np.array(
        [int.from_bytes(hashlib.sha1(t, usedforsecurity=False).digest()[:4], "little", signed=True) for t in texts]
        or [0],
        np.int64,
    )
    return codes[np.asarray(unique.indices.fill_null(0))], present
