"""Synthetic event time: derive the time of records from their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Duration, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.timestamps import from_microseconds
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["SyntheticEventTime"]


@register
@dataclass(frozen=True, kw_only=True)
class SyntheticEventTime(StatelessTask):
    """Assign event times to messages without time, by their number: ``messages`` messages per ``every``.

    ``event_time = 1970 + floor(n every / messages)``, where n counts the messages of a source from 0 on. Tasks with
    ticks of ``every`` in stream time then have a tick just before every ``messages`` messages.

    Parameters
    ----------
    every : timedelta >= 0 or text such as "2s"
        Stream time that passes during ``messages`` messages; 0: all messages have the same time.
    messages : int >= 1, default 1
        Number of messages per ``every``.
    stride : int >= 1, default 1
        Number of sources that share one numbering, since their streams are merged, see :mod:`riot_ops.core.order`.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1; O(1) time, no state.

    Missing values
    --------------
    None: every message has a number.

    Errors
    ------
    ``out_of_range``: a time beyond the year 9999.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: ads analytics, whose records carry no time.

    Examples
    --------
    >>> import pyarrow as pa
    >>> timed = SyntheticEventTime(every="2s", messages=4).session().push_batch(pa.record_batch({"seq": [0, 3, 4, 9]}))
    >>> [f"{time:%S.%f}"[:4] for time in timed["event_time"].to_pylist()]
    ['00.0', '01.5', '02.0', '04.5']
    """

    code: ClassVar[str] = "NUT"
    category: ClassVar[str] = "Parse"

    every: Duration
    messages: Count = 1
    stride: Count = 1

    def validate(self) -> None:
        if as_timedelta(self.every) < timedelta(0):
            raise ConfigError(f"every must not be negative, got {self.every!r}")
        if to_microseconds(self.every) * self.messages >= 1 << 62:
            raise ConfigError(
                f"every times messages must be below 146,000 years, got {self.every!r} and {self.messages}"
            )

    def requires(self) -> Mapping[str, Requirement]:
        return {"seq": "exact number"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field("event_time", TIMESTAMP))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        spans, every = int_column(batch.column("seq")), to_microseconds(self.every)
        if self.stride > 1:  # skip the division if possible: it dominates the cost
            spans = spans // self.stride
        rest: Any = 0
        if self.messages > 1:
            number, spans = spans, spans // self.messages
            rest = (number - spans * self.messages) * every // self.messages if every else 0
        beyond = spans > LATEST // max(1, every)
        times = np.where(beyond, 0, spans) * every + rest if every else np.zeros(spans.size, np.int64)
        if beyond.any():
            errors.reject(batch, beyond, "out_of_range", "its time lies after the year 9999")
            batch, times = batch.filter(pa.array(~beyond)), times[~beyond]
        return replace_column(batch, "event_time", from_microseconds(times))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"seq": pa.array([0, 1, 5, 6, 7, 2**40], pa.int64()), "x": [1] * 6})
        yield Case(cls(every=timedelta(seconds=2), messages=3), batch)
        yield Case(cls(every=timedelta(0), stride=2), batch, "one time")
        yield Case(cls(every=timedelta(days=10)), batch, "beyond")
