"""Running counts per value, for a bounded number of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.kernels.jit import kernel
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

__all__ = ["BoundedCount"]

_ONE = np.uint64(1)


@kernel
def _find(table: Any, k1: Any, k2: Any, a: Any, b: Any) -> Any:
    """Find a value's position in the table, or its free position; entries count from 1, 0 means free."""
    mask = np.uint64(table.size - 1)
    p = a & mask
    while table[p] != 0 and not (k1[table[p] - 1] == a and k2[table[p] - 1] == b):
        p = (p + _ONE) & mask
    return p


@kernel
def _remove(table: Any, k1: Any, hole: Any) -> None:
    """Remove an entry, and shift later ones back whose probe distance spans the hole (backward-shift deletion)."""
    mask = np.uint64(table.size - 1)
    p = hole
    while True:
        p = (p + _ONE) & mask
        if table[p] == 0:
            break
        if ((p - (k1[table[p] - 1] & mask)) & mask) >= ((p - hole) & mask):
            table[hole] = table[p]
            hole = p
    table[hole] = 0


@kernel
def _count(
    h1: Any, h2: Any, slots: Any, capacity: Any, table: Any, k1: Any, k2: Any, counts: Any, held: Any, oldest: Any,
    out: Any,
) -> None:  # fmt: skip
    """Count each value; when the table is full, a new value replaces the oldest one."""
    for i in range(h1.size):
        s = slots[i]
        p = _find(table[s], k1[s], k2[s], h1[i], h2[i])
        if table[s, p] == 0:
            if held[s] < capacity:
                place = held[s]
                held[s] += 1
            else:
                place = oldest[s]
                oldest[s] = (place + 1) % capacity
                _remove(table[s], k1[s], _find(table[s], k1[s], k2[s], k1[s, place], k2[s, place]))
                p = _find(table[s], k1[s], k2[s], h1[i], h2[i])
            table[s, p] = place + 1
            k1[s, place] = h1[i]
            k2[s, place] = h2[i]
            counts[s, place] = 0
        place = table[s, p] - 1
        counts[s, place] += 1
        out[i] = counts[s, place]


@register
@dataclass(frozen=True, kw_only=True)
class BoundedCount(SketchTask, KeyedTask):
    """Count the records of each value of a field in bounded memory, such as the log lines of each minute.

    A known value's count rises by one; a new value starts at 1. When ``capacity`` values are held, a new one evicts the
    value that was added longest ago, which would start at 1 again.

    Parameters
    ----------
    field : str, default "value"
        Field whose values are counted.
    capacity : int from 1 to 2^24, default 60
        Number of values held for each key of ``by``.
    output : str, default "count"
        Field for the count.
    emit : "each" or "update", default "each"
        Emit the count after every record; or only with the last record of each value in a (micro-)batch, as
        :class:`RunningCount` does.
    secret : Secret or None, default None
        Keys the hash by which values are held, so that no sender can choose values that count as others or make
        batches slow. State continues only with the same secret. None: the hash is fixed, the same in every system.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> int64[n], 1:1 (``update``: N:1); O(1) time; 32 to 40 bytes of state per value of the capacity.

    Missing values
    --------------
    A null is a value of its own.

    Errors
    ------
    None.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the volume counter of log processing.

    Examples
    --------
    >>> volume = BoundedCount(field="minute", capacity=2).session()
    >>> [volume.push({"minute": m})[0]["count"] for m in (1, 1, 2, 1, 3, 1)]
    [1, 2, 1, 3, 1, 1]
    """

    code: ClassVar[str] = "BCT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"

    field: str = "value"
    capacity: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 60
    output: str = "count"
    emit: Literal["each", "update"] = "each"

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.field: "key"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        room = 2 << (self.capacity - 1).bit_length()  # at most half full
        return {
            "table": StateField("int32", room),
            "hash": StateField("uint64", self.capacity),
            "hash_2": StateField("uint64", self.capacity),
            "count": StateField("int64", self.capacity),
            "held": StateField("int64"),
            "oldest": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        column = batch.column(self.field)
        counts = np.empty(slots.size, np.int64)
        h1, h2 = hash_columns([column], slots.size, self.hash_key.words)
        _count(
            h1, h2, slots, self.capacity, state["table"], state["hash"], state["hash_2"], state["count"],
            state["held"], state["oldest"], counts,
        )  # fmt: skip
        if self.emit == "update":
            values = key_numbers([pa.array(slots), column], slots.size)
            taken = latest_rows(values, slots.size)
            batch, counts = batch.take(pa.array(taken)), counts[taken]
        return replace_column(batch, self.output, pa.array(counts))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = ["a", "b", "a", "ü", None, "", "a", None, "c", "b"]
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(10), pa.int64()), "key": [1, 1, 1, 2, 1, 2, 2, 1, 1, 1], "value": values}
        )
        yield Case(cls(capacity=2), batch)
        yield Case(cls(capacity=1, by=("key",), output="n"), batch)
