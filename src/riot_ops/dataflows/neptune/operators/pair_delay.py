"""Pair delay: the time between a cause and its effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Length
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.rows import filter_rows
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.hyperloglog import hash_values
from riot_ops.kernels.text.strings import name_codes
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["PairDelay"]

ROLES = ("cause", "effect")
#: In place of a delay: an effect without a cause, and a cause.
UNMATCHED, WAITING = np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1


@kernel
def _match(
    roles: Any, values: Any, times: Any, numbers: Any, slots: Any,
    queue: Any, waiting: Any, since: Any, size: Any,
    delays: Any, missed: Any, missed_time: Any, missed_number: Any,
) -> Any:  # fmt: skip
    """Compute the delay of each effect; write causes evicted from the queue to ``missed``, with the evicting row.

    A key's queue has value, time and message number of the pending causes, the oldest first. Returns the number of
    missed causes.
    """
    n = 0
    for i in range(slots.size):
        s = slots[i]
        if roles[i] == 0:
            delays[i] = WAITING
            if size[s] == queue.shape[1]:
                missed[n] = i
                missed_time[n] = waiting[s, 0]
                missed_number[n] = since[s, 0]
                n += 1
                first = 0
            else:
                first = -1
        else:
            delays[i] = UNMATCHED
            first = -1
            for k in range(size[s]):
                if queue[s, k] == values[i]:
                    delays[i] = times[i] - waiting[s, k]
                    first = k
                    break
        if first >= 0:
            for k in range(first + 1, size[s]):
                queue[s, k - 1] = queue[s, k]
                waiting[s, k - 1] = waiting[s, k]
                since[s, k - 1] = since[s, k]
            size[s] -= 1
        if roles[i] == 0:
            k = size[s]
            queue[s, k] = values[i]
            waiting[s, k] = times[i]
            since[s, k] = numbers[i]
            size[s] += 1
    return n


@register
@dataclass(frozen=True, kw_only=True)
class PairDelay(KeyedTask):
    """Measure the delay of each effect after its cause, such as a valve after its sensor.

    An effect belongs to the oldest pending cause with the same value.

    Parameters
    ----------
    max_pending : int, 1 to 1,048,576, default 16
        Pending causes of a key; a further cause evicts the oldest.
    role : str, default "role"
        Text field with the role of a record: "cause" or "effect".
    value : str, default "value"
        Field with the value to match: a number, a boolean or a time. Its 64-bit hash is compared.
    time : str, default "event_time"
        Field with the time: a timestamp, with delays in µs, or an integer but uint64, with delays in its unit.
    output : str, default "delay"
        Field for the delay.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> int64[m], 1:0/1: effects with a cause are emitted. O(max_pending) time; 24 max_pending + 8 bytes of
    state per key.

    Missing values
    --------------
    A record without value or time is an error.

    Errors
    ------
    ``unmatched_effect``; ``missed`` (an evicted cause); ``missing``; ``unknown_role``. Effects must not arrive before
    their causes: see :class:`SortByEventTime`.

    References
    ----------
    .. [1] T. Buddhika, *Real-time stream processing in sensing environments*, thesis, 2015: equipment monitoring.
    .. [2] Z. Jerzak et al., *The DEBS 2012 Grand Challenge*, DEBS 2012, query 1.

    Examples
    --------
    >>> delay = PairDelay(time="ts").session()
    >>> rows = [("cause", 1, 100), ("cause", 0, 200), ("effect", 0, 230), ("effect", 1, 260)]
    >>> for role, value, ts in rows:
    ...     print([out["delay"] for out in delay.push({"role": role, "value": value, "ts": ts})])
    []
    []
    [30]
    [160]
    """

    code: ClassVar[str] = "PDL"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "1:0/1"
    version: ClassVar[int] = 2

    max_pending: Length = 16
    role: str = "role"
    value: str = "value"
    time: str = "event_time"
    output: str = "delay"

    def validate(self) -> None:
        if self.output in (self.time, self.role, self.value, *self.by):
            raise ConfigError(f"output must differ from by, role, value and time, got {self.output!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.role: "text", self.value: "any", self.time: "any"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name, fits in ((self.time, _TIMES), (self.value, _VALUES)):
            dtype = schema.field(name).type
            if not any(is_type(dtype) for is_type in fits) or (name == self.time and dtype == pa.uint64()):
                raise ConfigError(f"{self.name()} cannot use the field {name!r}, its input has {dtype}")
        return with_field(schema, pa.field(self.output, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        room = self.max_pending
        return {
            "queue": StateField("int64", room),
            "waiting": StateField("int64", room),
            "since": StateField("int64", room),
            "size": StateField("int64"),
        }

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        strange = name_codes(batch.column(self.role), ROLES) < 0
        absent = ~strange & (np.asarray(batch.column(self.time).is_null()) | ~hash_values(batch.column(self.value))[1])
        errors.reject(batch, strange, "unknown_role", f"{self.role} must be cause or effect")
        errors.reject(batch, absent, "missing", f"{self.value} or {self.time} is missing")
        good = ~(strange | absent)
        return batch if good.all() else batch.filter(pa.array(good))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n = batch.num_rows
        roles = name_codes(batch.column(self.role), ROLES)
        column = batch.column(self.time)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        times = int_column(column.cast(pa.int64()))
        numbers = int_column(batch.column("seq")) if "seq" in batch.schema.names else readonly(np.zeros(n, np.int64))
        hashes = readonly(hash_values(batch.column(self.value))[0].view(np.int64))
        delays, missed, missed_time, missed_number = (np.empty(n, np.int64) for _ in range(4))
        queues = (state[name].reshape(-1, self.max_pending) for name in ("queue", "waiting", "since"))
        inputs: tuple[Any, ...] = (roles, hashes, times, numbers, slots, *queues, state["size"])
        count = int(_match(*(*inputs, delays, missed, missed_time, missed_number)))
        if count:
            self._reject_missed(batch, missed[:count], missed_time[:count], missed_number[:count], errors)
        errors.reject(batch, delays == UNMATCHED, "unmatched_effect", "no cause of this value waits for an effect")
        found = delays > WAITING
        out = filter_rows(batch, found)
        place = out.schema.get_field_index(self.output)
        field, values = pa.field(self.output, pa.int64()), pa.array(delays[found])
        return out.append_column(field, values) if place < 0 else out.set_column(place, field, values)

    def _reject_missed(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
        errors: RejectedRecords,
    ) -> None:
        """Reject evicted causes with their key, time and message number."""
        keys = batch.select(list(self.by)).take(pa.array(rows))
        dtype = batch.schema.field(self.time).type
        when = pa.array(times)
        if pa.types.is_timestamp(dtype):
            when = when.cast(pa.timestamp("us", dtype.tz)).cast(dtype, safe=False)
        columns = dict(zip(keys.schema.names, keys.columns, strict=True))
        order = {"seq": pa.array(numbers)} if "seq" in carried_fields(batch.schema.names) else {}
        lost = pa.RecordBatch.from_pydict({**order, **columns, self.time: when})
        errors.reject(lost, np.arange(rows.size), "missed", f"{self.max_pending} later causes wait for an effect")

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "pair": ["a", "a", "b", "a", "a", None, "a", "a", "ü", "a"],
                "role": ["cause", "cause", "effect", "cause", "effect", "cause", "effect", "other", "cause", None],
                "value": [1.0, 0.0, 1.0, 1.0, 0.0, None, 1.0, 1.0, float("nan"), 2.0],
                "ts": pa.array([1, 2, 3, 4, 5, 6, None, 8, 9, 10], pa.int64()),
                "event_time": pa.array([1, 2, 3, 4, 5, 6, 7, 8, None, 10], pa.timestamp("s", tz="UTC")),
            }
        )
        yield Case(cls(by=("pair",), time="ts", max_pending=2), batch)
        yield Case(cls(max_pending=1, output="wait"), batch, "of one key")


_TIMES = (pa.types.is_timestamp, pa.types.is_integer, pa.types.is_null)
_VALUES = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null),
    *(pa.types.is_decimal, pa.types.is_temporal),
)
