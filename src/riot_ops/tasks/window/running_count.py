"""Running count of the records of each key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, State, StateField, register, replace_column, with_field

__all__ = ["RunningCount"]


#: Column of a condensed batch: the number of records that a row represents.
RECORDS = "records@condensed"


@kernel
def _count(slots: Any, counts: Any, out: Any) -> None:
    """Compute the count after each row."""
    for i in range(slots.size):
        s = np.uint64(slots[i])
        counts[s] += 1
        out[i] = counts[s]


@register
@dataclass(frozen=True, kw_only=True)
class RunningCount(KeyedTask):
    """Count the records of each key.

    Parameters
    ----------
    output : str, default "count"
        Field for the count.
    emit : "each" or "update", default "each"
        Emit the count after every record; or, like Spark's update mode, once per key and batch (on Spark: micro-batch),
        with the key's last record: fewer records, which depend on how the stream is cut into batches, and the same
        final count of each key.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> int64[n], 1:1 (``update``: N:1); O(1) time; 8 bytes of state per key.

    Missing values
    --------------
    A null in a key field is a key of its own.

    Errors
    ------
    None.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: word count, log processing.

    Examples
    --------
    >>> count = RunningCount(by="word").session()
    >>> [count.push({"word": w})[0]["count"] for w in ("so", "it", "so")]
    [1, 1, 2]
    """

    code: ClassVar[str] = "CNT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"

    output: str = "count"
    emit: Literal["each", "update"] = "each"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        return {"count": StateField("int64")}

    @property
    def needs_full_batch(self) -> bool:
        return self.emit == "update"

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        counts = np.empty(slots.size, np.int64)
        if RECORDS in batch.schema.names:
            np.add.at(state["count"], slots, np.asarray(batch.column(RECORDS)))
            batch, counts = batch.drop_columns([RECORDS]), state["count"][slots]
        else:
            _count(slots, state["count"], counts)
        if self.emit == "update":
            taken = latest_rows(slots, state["count"].size)
            batch, counts = batch.take(pa.array(taken)), counts[taken]
        place = batch.schema.get_field_index(self.output)
        field = pa.field(self.output, pa.int64())
        column = pa.array(counts)
        return batch.append_column(field, column) if place < 0 else batch.set_column(place, field, column)

    def precombine(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if not self.needs_full_batch or self.ttl is not None:  # a ttl runs from each record
            return None
        counts, last = np.bincount(slots, minlength=keys), latest_rows(slots, keys)
        if RECORDS in batch.schema.names:
            counts = np.zeros(keys, np.int64)
            np.add.at(counts, slots, np.asarray(batch.column(RECORDS)))
        return replace_column(batch.take(pa.array(last)), RECORDS, pa.array(counts[slots[last]]))

    def merge(self, state: State, other: State) -> State | None:
        return {"count": state["count"] + other["count"]}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        words = ["a", "b", "a", "ü", None, "", "a", None]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(8), pa.int64()), "word": words})
        yield Case(cls(by=("word",)), batch)
        yield Case(cls(by=("word",), output="word_count"), batch)
