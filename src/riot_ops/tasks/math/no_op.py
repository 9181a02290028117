"""No operation: the identity task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, StatelessTask, register

__all__ = ["NoOp"]


@register
@dataclass(frozen=True, kw_only=True)
class NoOp(StatelessTask):
    """Pass records through unchanged, to measure the overhead around a task.

    Parameters
    ----------
    None.

    Shapes and rates
    ----------------
    any[n] -> any[n], 1:1; O(1) time per batch, no state.

    Missing values
    --------------
    Passed through unchanged.


    Errors
    ------
    None.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task NOP.

    Examples
    --------
    >>> NoOp().session().push({"value": 1.0})
    [{'value': 1.0}]
    """

    code: ClassVar[str] = "NOP"
    category: ClassVar[str] = "Math"

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        yield Case(cls(), pa.RecordBatch.from_pydict({"key": ["ü", None], "value": [None, float("nan")]}))
