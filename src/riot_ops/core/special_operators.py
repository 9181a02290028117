"""Kinds of keyed operators that few tasks need: what only they implement, apart from the contract that all share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import Clock
from riot_ops.core.operator import KeyedOperator, State, TimerOutput
from riot_ops.core.rejected_records import RejectedRecords

__all__ = ["AligningOperator", "PeriodicOperator", "PooledOperator", "ReadableState"]


@dataclass(frozen=True, kw_only=True)
class PeriodicOperator(KeyedOperator):
    """A keyed task that is called for all of its keys whenever stream time passes a multiple of its clock's period.

    The engine calls :meth:`tick` between two calls of :meth:`update`, in place of
    :meth:`~riot_ops.core.operator.KeyedOperator.advance`.
    """

    @abstractmethod
    def clock(self) -> Clock:
        """When stream time calls :meth:`tick`."""

    @abstractmethod
    def tick(self, keys: pa.RecordBatch, state: State, time: int, periods: int) -> TimerOutput | None:
        """Emit rows because stream time, less the clock's allowed lateness, has passed multiples of its period.

        Parameters
        ----------
        keys : record batch
            The key fields: row i is the key of element i of the state arrays.
        time : int
            The last multiple that stream time has passed, in microseconds.
        periods : int
            How many multiples it has passed since the last call, or since the first event time.
        """


@dataclass(frozen=True, kw_only=True)
class PooledOperator(KeyedOperator):
    """A keyed task whose one state serves all keys: the rows that it holds back, in its field ``held``.

    It gets these rows (of dtype ``rows``) again before those of the next batch. The state arrays have one element, and
    the slots that :meth:`update` gets number the keys of the call.
    """

    def flush_held(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch | None:
        """Return the output at the end of a bounded stream, from the rows that the task holds."""
        return None


@dataclass(frozen=True, kw_only=True)
class AligningOperator(PooledOperator):
    """A pooled task that can merge several inputs without collecting and sorting their rows."""

    @abstractmethod
    def merge_aligned(self, batches: Sequence[pa.RecordBatch], state: State) -> pa.RecordBatch | None:
        """Merge one batch of each input row by row, in place of :meth:`update`, while the task holds no rows.

        Batches that come from the same records align row by row. The result is what :meth:`update` would return for all
        rows in order, with nothing held and nothing rejected; None if the batches do not align, or checking that is
        too costly.
        """


class ReadableState(ABC):
    """A keyed task whose state fields mean something to the user only once they are decoded.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> isinstance(t.Window(by="sensor", frame="1min", aggregates={"n": "count"}), ReadableState)
    True
    """

    @abstractmethod
    def decode_state(self, table: pa.Table) -> pa.Table:
        """Make a table of key and state fields readable."""
