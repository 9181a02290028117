"""Spike filter: readings far from their expected value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.parameters import NonNegative
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, StatelessTask, register

__all__ = ["SpikeFilter"]


@kernel
def _spikes(values: Any, expected: Any, threshold: Any, relative: Any, rows: Any) -> Any:
    """Write the rows that deviate by more than the threshold; return their number. NaN never deviates."""
    found = 0
    for i in range(values.size):
        limit = threshold * abs(expected[i]) if relative else threshold
        if abs(values[i] - expected[i]) > limit:
            rows[found] = i
            found += 1
    return found


@register
@dataclass(frozen=True, kw_only=True)
class SpikeFilter(StatelessTask):
    """Pass readings that deviate strongly from an expected value, such as a moving average.

    A record passes iff ``|value - expected| > threshold |expected|`` (``relative``) or ``> threshold`` (``absolute``).

    Parameters
    ----------
    value : str, default "value"
        Numeric field to check.
    expected : str, default "expected"
        Numeric field with the expected value.
    threshold : float >= 0, default 0.03
        Maximum deviation that is no spike: a share of the expected value, or an absolute number.
    deviation : "relative" or "absolute", default "relative"
        Whether the threshold is relative or absolute.

    Shapes and rates
    ----------------
    float64[n], float64[n] -> float64[m], 1:0/1; O(1) time, no state.

    Missing values
    --------------
    A record with a null or NaN in either field does not pass.

    Errors
    ------
    A number that float64 cannot hold goes to the errors stream as ``out_of_range``. An infinite value is a spike where
    a finite one was expected.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: spike detection.

    Examples
    --------
    >>> spikes = SpikeFilter(expected="mean", threshold=0.1).session()
    >>> [len(spikes.push({"value": v, "mean": -20.0})) for v in (-18.0, -17.9, -22.1)]
    [0, 1, 1]
    """

    code: ClassVar[str] = "SPK"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    value: str = "value"
    expected: str = "expected"
    threshold: NonNegative = 0.03
    deviation: Literal["relative", "absolute"] = "relative"

    def requires(self) -> Mapping[str, Requirement]:
        return {self.value: "number", self.expected: "number"}

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        expected, _ = float_column(batch.column(self.expected))
        rows = np.empty(values.size, np.int64)
        found = _spikes(values, expected, self.threshold, self.deviation == "relative", rows)
        return batch if found == values.size else batch.take(pa.array(rows[:found]))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = [10.0, 10.3, 10.31, None, float("nan"), float("inf"), -5.0, 0.0, 1e-9]
        expected = [10.0, 10.0, 10.0, 1.0, 1.0, 3.0, None, 0.0, 0.0]
        batch = pa.RecordBatch.from_pydict({"value": values, "expected": expected})
        yield Case(cls(), batch)
        yield Case(cls(deviation="absolute", threshold=0.3), batch)
