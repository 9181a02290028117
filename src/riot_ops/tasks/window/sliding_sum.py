"""Sum of the latest readings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.core.parameters import Length
from riot_ops.task import Case, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask
from riot_ops.windows import Sliding

__all__ = ["SlidingSum"]


@register
@dataclass(frozen=True, kw_only=True)
class SlidingSum(WindowTask, ValueTask):
    """Sum the latest readings of each key at every reading.

    ``sum_i = x_(i-W+1) + … + x_i``, over fewer readings until there are W.

    Parameters
    ----------
    window : int, 1 to 1,048,576, default 10
        Readings in a sum.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time (amortised); 24 bytes of state per key and 8 per reading of the window. The
    error is a few units in the last place of the sum of ``|x|``, however long the stream: nothing is ever subtracted.
    For means see :class:`MovingAverage`.

    Missing values
    --------------
    A null or NaN reading is skipped.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``. A sum beyond float64 is null.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: machine outlier.

    Examples
    --------
    >>> score = SlidingSum(window=3).session()
    >>> [score.push({"value": v})[0]["value"] for v in (1.0, 2.0, 3.0, 4.0, 5.0)]
    [1.0, 3.0, 6.0, 9.0, 12.0]
    """

    code: ClassVar[str] = "SSM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "1:0/1"

    window: Length = 10

    @property
    def reading(self) -> str:  # type: ignore[override]
        return self.value

    @property
    def frame(self) -> Sliding:
        return Sliding(self.window)

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.target: (self.value, "sum")}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = [10.0, -3.5, 12.0, None, float("nan"), 1e308, 1e308, 11.0, 1e308, 0.5]
        keys = ["a", "b", "a", "ü", "a", None, None, "a", None, ""]
        batch = pa.RecordBatch.from_pydict({"key": keys, "value": values})
        yield Case(cls(window=2, by=("key",)), batch)
        yield Case(cls(window=3, output="sum"), batch)
