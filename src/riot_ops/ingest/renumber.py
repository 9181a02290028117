"""Comparable message numbers for streams of several sources that merge.

Each source numbers its own messages. Where streams of *k* sources merge, message *n* of the *i*-th source gets the
number ``k n + i``; so all numbers differ, and streams that merge later keep the order of those that merged earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column

__all__ = ["Renumber"]

#: The largest number of a message.
MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True)
class Renumber:
    """The step that numbers the records of a stream as those of the streams that it merges with.

    Message ``n`` of the ``j``-th of the stream's own k sources has the number ``k n + j``, and gets the number
    ``n * sources + places[j]``.

    Parameters
    ----------
    places : tuple of int
        The place of each of the stream's own sources among all sources.
    sources : int
        Number of sources of the merged streams.
    rejects : bool, default True
        Whether records whose number would be beyond int64 become error records; watermarks of such records are dropped.

    Examples
    --------
    >>> import pyarrow as pa
    >>> Renumber((2,), 3).numbers(pa.array([0, 1, 2])).to_pylist()
    [2, 5, 8]
    >>> Renumber((0, 2), 3).numbers(pa.array([0, 1, 2, 3])).to_pylist()
    [0, 2, 3, 5]
    """

    places: tuple[int, ...]
    sources: int
    rejects: bool = True

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Return the records with their new numbers; reject those whose number would be beyond int64."""
        column = batch.schema.get_field_index("seq")
        if column < 0:
            return batch
        rows, texts = self.beyond(batch.column(column))
        if rows.size:
            if self.rejects:
                errors.reject(batch, rows, "out_of_range", [f"seq {text}" for text in texts])
            keep = np.ones(batch.num_rows, np.bool_)
            keep[rows] = False
            batch = batch.filter(pa.array(keep))
        return batch.set_column(column, batch.schema.field(column), self.numbers(batch.column(column)))

    def numbers(self, seq: pa.Array) -> pa.Array:
        """Return the new number of each message; one beyond int64 wraps."""
        if len(self.places) == 1:
            values = int_column(seq) * self.sources
            values += self.places[0]
        else:
            number, place = np.divmod(int_column(seq), len(self.places))
            values = number * self.sources + np.array(self.places)[place]
        return pa.array(values, mask=np.asarray(seq.is_null()) if seq.null_count else None)

    def beyond(self, seq: pa.Array) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Return the rows whose new number would be beyond int64, each with a text that says so."""
        values = int_column(seq)
        limit = (MAX_NUMBER - max(self.places)) // self.sources * len(self.places)
        if not values.size or (values.max() <= limit and values.min() >= -limit):
            return np.empty(0, np.int64), []
        rows = np.flatnonzero((values > limit) | (values < -limit))
        text = f"is not between -{limit} and {limit}, as message numbers of {self.sources} sources must be"
        return rows, [f"= {values[row]} {text}" for row in rows.tolist()]
