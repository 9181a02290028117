"""Rounding of times down to the start of a minute, hour or other interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration, as_timedelta
from riot_ops.core.schema import EARLIEST, TIMESTAMP
from riot_ops.kernels.arrays.timestamps import check_time_field, from_microseconds, microseconds
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["FloorTime"]


@register
@dataclass(frozen=True, kw_only=True)
class FloorTime(StatelessTask):
    """Round times down to the start of their minute, hour or other interval, to count or group by it.

    ``output = floor(time / every) every``, from 1970 on in UTC.

    Parameters
    ----------
    every : timedelta > 0 or text such as "1min"
        Length of the intervals.
    output : str
        Field for the start of the interval.
    time : str, default "event_time"
        Field with the time.

    Shapes and rates
    ----------------
    timestamp[n] -> timestamp[n], 1:1; O(1) time, no state.

    Missing values
    --------------
    Null for a null time.

    Errors
    ------
    ``out_of_range``: the interval begins before the year 1.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the minutes of log processing.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> minutes = FloorTime(every="1min", output="minute").session()
    >>> row = minutes.push({"event_time": datetime(1998, 6, 10, 12, 7, 59, tzinfo=UTC)})[0]
    >>> f"{row['minute']:%H:%M:%S}"
    '12:07:00'
    """

    code: ClassVar[str] = "FLO"
    category: ClassVar[str] = "Parse"

    every: Duration
    output: str
    time: str = "event_time"

    def validate(self) -> None:
        if as_timedelta(self.every) <= timedelta(0):
            raise ConfigError(f"every must be longer than 0, got {self.every!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {self.time: "any"}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_time_field(self.name(), schema, self.time)

    def writes(self) -> frozenset[str]:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, TIMESTAMP))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        times, present = microseconds(batch.column(self.time))
        every = to_microseconds(self.every)
        floors = times // every * every
        beyond = floors < EARLIEST
        if beyond.any():
            dead.reject(batch, beyond, "out_of_range", "its interval begins before the year 1")
            batch, floors, present = batch.filter(pa.array(~beyond)), floors[~beyond], present[~beyond]
        column = from_microseconds(floors)
        if not present.all():
            column = pa.array(column.to_numpy(zero_copy_only=False), TIMESTAMP, mask=~present)
        return replace_column(batch, self.output, column)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = [0, -1, 897_481_920_000_001, None, 253_402_300_799_999_999]
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(len(times)), pa.int64()), "event_time": pa.array(times, TIMESTAMP)}
        )
        yield Case(cls(every=timedelta(minutes=1), output="minute"), batch)
        yield Case(cls(every=timedelta(hours=1), output="event_time"), batch, "in place")
