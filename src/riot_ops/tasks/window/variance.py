"""Running variance of readings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.task import Case, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["Variance"]


@register
@dataclass(frozen=True, kw_only=True)
class Variance(WindowTask, ValueTask):
    """Compute the running variance of each key's readings.

    ``variance = Σ (x - mean)² / (n - ddof)``, updated by Welford's method:
    ``mean' = mean + (x - mean) / n;  Q' = Q + (x - mean) (x - mean')``.

    Parameters
    ----------
    ddof : 0 or 1, default 0
        0: population variance; 1: sample variance.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time, 24 bytes of state per key.

    Missing values
    --------------
    A null or NaN is skipped; its record carries the variance so far, which is null until there are more than ddof
    readings.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``, a reading whose squared distance overflows float64
    as ``overflow``; neither changes the state.

    References
    ----------
    .. [1] B. P. Welford, *Note on a Method for Calculating Corrected Sums of Squares and Products*,
       Technometrics 4(3), 1962.

    Examples
    --------
    >>> variance = Variance(ddof=1).session()
    >>> [variance.push({"value": v})[0]["value"] for v in (2.0, 4.0, 6.0)]
    [None, 2.0, 4.0]
    """

    code: ClassVar[str] = "VAR"
    category: ClassVar[str] = "Statistical"
    version: ClassVar[int] = 2

    ddof: Literal[0, 1] = 0

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.target: (self.value, "var", self.ddof)}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", ""],
                "value": [10.0, -3.5, 12.0, None, float("nan"), 1e300, 4.0, 1e200, 5.0],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(ddof=1, output="variance"), batch)
