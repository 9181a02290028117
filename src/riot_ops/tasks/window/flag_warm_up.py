"""Warm-up flag: whether a record lies after the warm-up of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import StatelessOperator
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["FlagWarmUp"]


@kernel
def _flag_warm(
    slots: Any, times: Any, timed: Any, numbers: Any, span: Any, most: Any, started: Any, seen: Any, last: Any, out: Any
) -> None:
    """Flag the rows after the warm-up; ``seen`` counts messages and stops at one more than the warm-up has."""
    for i in range(slots.size):
        s = slots[i]
        if span > 0:
            if not timed[i]:
                continue
            if started[s] == NEVER:
                started[s] = times[i]
            if times[i] - span < started[s]:
                continue
        if seen[s] == 0 or numbers[i] != last[s]:
            last[s] = numbers[i]
            seen[s] = min(seen[s] + 1, most + 1)
        out[i] = seen[s] > most


@register
@dataclass(frozen=True, kw_only=True)
class FlagWarmUp(KeyedTask):
    """Flag each record that lies after the warm-up of its key.

    The warm-up is over for records at least ``duration`` later than the first of their key, once ``records`` further
    messages have passed. Several records derived from one message count once.

    Parameters
    ----------
    records : int >= 0, default 0
        Messages of a key, after the duration, that belong to the warm-up.
    duration : timedelta or text such as "1h", >= 0, default 0
        Event time, from a key's first record on, that belongs to the warm-up.
    output : str, default "warm"
        Field for the flag, which the input must not have.
    label : str, default ""
        Distinguishes the step from an equal one that started at another time, so that dataflows do not share it.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1, with a boolean field. O(1) time; 24 bytes of state per key. Without records
    and duration it needs no state.

    Missing values
    --------------
    With a duration, a record without event time is not warm and does not count.

    Errors
    ------
    None.

    References
    ----------
    .. [1] S. Chaturvedi, S. Tyagi, Y. Simmhan, *Collaborative Reuse of Streaming Dataflows in IoT Applications*, IEEE
       eScience 2017: a dataflow submitted later shares steps that already have state.

    Examples
    --------
    >>> warm = FlagWarmUp(by="device", records=2).session()
    >>> [warm.push({"device": d})[0]["warm"] for d in ("a", "a", "b", "a", "a")]
    [False, False, False, True, True]
    """

    code: ClassVar[str] = "WUP"
    category: ClassVar[str] = "Statistical"
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"output"})

    records: Annotated[int, msgspec.Meta(ge=0)] = 0
    duration: timedelta = timedelta(0)
    output: str = "warm"
    label: str = ""

    def validate(self) -> None:
        if self.duration < timedelta(0):
            raise ConfigError(f"duration must not be negative, got {self.duration!r}")
        if not self.output:
            raise ConfigError("output must name a field, got ''")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **({"event_time": "any"} if self.duration else {})}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.duration:
            check_time_field(self.name(), schema)
        if self.output in schema.names:
            raise ConfigError(f"{self.name()} adds the field {self.output!r}, which its input already has")
        return with_field(schema, pa.field(self.output, pa.bool_()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "started": StateField("int64", initial=NEVER),
            "seen": StateField("int64"),
            "last": StateField("int64"),
        }

    def stateless_equivalent(self) -> StatelessOperator | None:
        return AlwaysWarm(output=self.output) if not self.records and not self.duration and self.ttl is None else None

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n = batch.num_rows
        times, timed = readonly(np.zeros(0, np.int64)), readonly(np.zeros(0, np.bool_))
        if self.duration:
            times, timed = microseconds(batch.column("event_time"))
        numbered = "seq" in batch.schema.names
        numbers = int_column(batch.column("seq")) if numbered else readonly(np.arange(n))
        if not numbered:  # every record is a message of its own
            state["last"][slots] = -1
        out = np.zeros(n, np.bool_)
        fields = state["started"], state["seen"], state["last"]
        _flag_warm(slots, times, timed, numbers, to_microseconds(self.duration), self.records, *fields, out)
        return replace_column(batch, self.output, pa.array(out))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([0, 1, 1, 2, 3, 4, 5, 6], pa.int64()),
                "ordinal": pa.array([0, 0, 1, 0, 0, 0, 0, 0], pa.int64()),
                "event_time": pa.array([5, 7, 7, None, 1, 15, 9, 30], pa.timestamp("s", tz="UTC")),
                "key": ["a", "a", "a", "ü", None, "a", "ü", "a"],
            }
        )
        yield Case(cls(by=("key",), records=2), batch, "by count")
        yield Case(cls(duration=timedelta(seconds=3), output="ok"), batch, "by time")
        yield Case(cls(by=("key",), records=1, duration=timedelta(seconds=2), label="x"), batch, "both")
        yield Case(cls(), batch, "neither")


@dataclass(frozen=True, kw_only=True)
class AlwaysWarm(StatelessOperator):
    """Stateless form of a warm-up without a length: it flags every record."""

    output: str

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return with_field(schema, pa.field(self.output, pa.bool_()))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return replace_column(batch, self.output, pa.array(np.ones(batch.num_rows, np.bool_)))
