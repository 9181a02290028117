"""Python functions that decide which records pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, RecordError, value_text
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, FilterTask, register
from riot_ops.tasks.functions.function_task import FunctionTask
from riot_ops.tasks.functions.result_collector import ResultCollector, Row

__all__ = ["FilterFunction", "filter"]


@register
@dataclass(frozen=True, kw_only=True)
class FilterFunction(FunctionTask, FilterTask):
    """Pass records for which a Python function returns True.

    Parameters
    ----------
    function : callable
        Takes a record as a dict and returns True or False.
    schema
        Not used: the fields do not change.
    label, revision
        As for :class:`MapFunction`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1, at the speed of Python.

    Missing values
    --------------
    Up to the function.

    Errors
    ------
    ``function_error`` as for :class:`MapFunction`; ``wrong_type``: the result is not a bool.

    References
    ----------
    None.

    Examples
    --------
    >>> warm = filter(lambda row: row["value"] > 20).session()
    >>> warm.push({"value": 25}), warm.push({"value": 15})
    ([{'value': 25}], [])
    """

    code: ClassVar[str] = "FLT"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    def validate(self) -> None:
        super().validate()
        if self.schema is not None:
            raise ConfigError("filter_function takes no schema: the fields of records do not change")

    def writes(self) -> frozenset[str] | None:
        return frozenset()

    def passes(self, batch: pa.RecordBatch, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
        collect = ResultCollector(batch.schema)
        keep = np.zeros(batch.num_rows, np.bool_)
        for i, row in enumerate(batch.to_pylist()):
            with collect.record(i):
                passed = self.function(row)
                if not isinstance(passed, bool | np.bool_):
                    raise RecordError(
                        f"the function returned {value_text(passed)}, not True or False", reason="wrong_type"
                    )
                keep[i] = passed
        collect.reject(batch, errors)
        return keep

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"value": [1.0, None, float("nan"), -4.0]})
        yield Case(cls(function=_positive), batch)


def filter(
    function: Callable[[Row], bool], label: str | None = None, *, revision: int | str | None = None
) -> FilterFunction:
    """Make a task that passes the records for which ``function(record)`` is True, see :class:`FilterFunction`.

    >>> filter(lambda row: row["value"] > 0, label="positive").label
    'positive'
    """
    return FilterFunction(function=function, label=label, revision=revision)


def _positive(row: Row) -> bool:
    return bool(row["value"] > 0)
