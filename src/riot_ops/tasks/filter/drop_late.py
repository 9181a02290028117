"""Rejection of records whose event time is before that of an earlier record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register

__all__ = ["DropLate"]


@kernel
def _mark_late(slots: Any, times: Any, newest: Any, late: Any) -> Any:
    """Mark the rows with a time before that of an earlier row of the key; returns how many there are."""
    found = 0
    for i in range(slots.size):
        s = np.uint64(slots[i])
        late[i] = times[i] < newest[s]
        if late[i]:
            found += 1
        else:
            newest[s] = times[i]
    return found


@register
@dataclass(frozen=True, kw_only=True)
class DropLate(KeyedTask):
    """Pass records in order of event time and reject those that come late.

    Steps after this one that need records in order of time, such as a window that slides with each record, can rely on
    it.

    Parameters
    ----------
    by, ttl
        Key within which records are in order, and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:1 for records in order; O(1) time, 8 bytes of state per key.

    Missing values
    --------------
    A record without event time is an error.

    Errors
    ------
    ``no_event_time``; ``late``: an earlier record of the key has a later time.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> readings = DropLate().session()
    >>> [len(readings.push({"event_time": datetime(2024, 5, 1, h, tzinfo=UTC)})) for h in (3, 5, 4, 5)]
    [1, 1, 0, 1]
    """

    code: ClassVar[str] = "ORD"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:1"

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        return schema

    def state_fields(self) -> Mapping[str, StateField]:
        return {"newest": StateField("int64", initial=NEVER)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        column = batch.column("event_time")
        if not column.null_count:
            return batch
        errors.reject(batch, np.asarray(column.is_null()), "no_event_time", "the record has no event time")
        return batch.filter(column.is_valid())

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        times, _ = microseconds(batch.column("event_time"))
        late = np.empty(slots.size, np.bool_)
        if not _mark_late(slots, times, state["newest"], late):
            return batch
        errors.reject(batch, late, "late", "an earlier record has a later event time")
        return batch.filter(pa.array(~late))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = pa.array([0, 3, 2, None, 3, 1, 4], pa.timestamp("s", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        keys = ["a", "a", "b", "a", None, "a", "b"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(7), pa.int64()), "event_time": times, "key": keys})
        yield Case(cls(), batch)
        yield Case(cls(by=("key",)), batch)
