"""Which records come behind a warm-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import StatelessOperator
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.kernels.text.timestamps import check_time_field, microseconds
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["FlagWarmUp"]


@kernel
def _tell(
    slots: Any, times: Any, timed: Any, numbers: Any, span: Any, most: Any, begun: Any, seen: Any, last: Any, out: Any
) -> None:
    """``seen`` counts messages, and stops at one more than belong to the warm-up."""
    for i in range(slots.size):
        s = slots[i]
        if span > 0:
            if not timed[i]:
                continue
            if begun[s] == NEVER:
                begun[s] = times[i]
            if times[i] - span < begun[s]:
                continue
        if seen[s] == 0 or numbers[i] != last[s]:
            last[s] = numbers[i]
            seen[s] = min(seen[s] + 1, most + 1)
        out[i] = seen[s] > most


@register
@dataclass(frozen=True, kw_only=True)
class FlagWarmUp(KeyedTask):
    """Tell of each record whether the warm-up of its key is over.

    It is over for records that are ``span`` or more later than the first of their key, and behind so many others of
    these. Several records that were made of one message count once.

    Parameters
    ----------
    records : int >= 0, default 0
        Messages of a key that belong to the warm-up, behind the span.
    span : timedelta or text such as "1h", >= 0, default 0
        Event time that belongs to it.
    output : str, default "warm"
        Field for the answer, which the input must not have.
    label : str, default ""
        Tells it from an equal one that began at another time, so that dataflows do not share it.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1, with a boolean field. O(1) time; 24 bytes of state per key. With neither records nor
    span it needs no state.

    Missing values
    --------------
    With a span, a record without event time is not warm, and does not count.

    Errors
    ------
    None.

    References
    ----------
    .. [1] S. Chaturvedi, S. Tyagi, Y. Simmhan, *Collaborative Reuse of Streaming Dataflows in IoT Applications*, IEEE
       eScience 2017: who comes late shares steps that have a history.

    Examples
    --------
    >>> told = FlagWarmUp(by="device", records=2).session()
    >>> [told.push({"device": d})[0]["warm"] for d in ("a", "a", "b", "a", "a")]
    [False, False, False, True, True]
    """

    code: ClassVar[str] = "WUP"
    category: ClassVar[str] = "Statistical"

    records: Annotated[int, msgspec.Meta(ge=0)] = 0
    span: timedelta = timedelta(0)
    output: str = "warm"
    label: str = ""

    def validate(self) -> None:
        if self.span < timedelta(0):
            raise ConfigError(f"span must not be negative, got {self.span!r}")
        if not self.output:
            raise ConfigError("output must name a field, got ''")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **({"event_time": "any"} if self.span else {})}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.span:
            check_time_field(self.name(), schema)
        if self.output in schema.names:
            raise ConfigError(f"{self.name()} adds the field {self.output!r}, which its input has already")
        return with_field(schema, pa.field(self.output, pa.bool_()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "begun": StateField("int64", initial=NEVER),
            "seen": StateField("int64"),
            "last": StateField("int64"),
        }

    def without_state(self) -> StatelessOperator | None:
        return Told(output=self.output) if not self.records and not self.span and self.ttl is None else None

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        n = batch.num_rows
        times, timed = readonly(np.zeros(0, np.int64)), readonly(np.zeros(0, np.bool_))
        if self.span:
            times, timed = microseconds(batch.column("event_time"))
        numbered = "seq" in batch.schema.names
        numbers = int_column(batch.column("seq")) if numbered else readonly(np.arange(n))
        if not numbered:  # each is a message of its own
            state["last"][slots] = -1
        out = np.zeros(n, np.bool_)
        fields = state["begun"], state["seen"], state["last"]
        _tell(slots, times, timed, numbers, in_us(self.span), self.records, *fields, out)
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
        yield Case(cls(span=timedelta(seconds=3), output="ok"), batch, "by time")
        yield Case(cls(by=("key",), records=1, span=timedelta(seconds=2), label="x"), batch, "both")
        yield Case(cls(), batch, "neither")


@dataclass(frozen=True, kw_only=True)
class Told(StatelessOperator):
    """What is left of a warm-up without a length: all records are behind it."""

    output: str

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return with_field(schema, pa.field(self.output, pa.bool_()))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return replace_column(batch, self.output, pa.array(np.ones(batch.num_rows, np.bool_)))
