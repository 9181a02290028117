"""Moving average of the latest readings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Length
from riot_ops.task import Case, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask
from riot_ops.windows import Count, Sliding

__all__ = ["MovingAverage"]


@register
@dataclass(frozen=True, kw_only=True)
class MovingAverage(WindowTask, ValueTask):
    """Average the readings of each key over windows of a fixed number of readings.

    ``mean = (x1 + … + xn) / n`` with a compensated sum.

    Parameters
    ----------
    window : int, 1 to 1,048,576, default 10
        Readings per window.
    mode : "tumbling", "sliding" or "growing", default "tumbling"
        Consecutive windows; a window that ends at every reading once it is full; or a window that ends at every
        reading, shorter at first.
    partial : bool, default False
        Whether the end of a bounded stream emits windows that are not full; in sliding mode, those of keys that never
        had a full one. Growing windows have already been emitted.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n / window], N:1 (sliding: 1:1 once full, growing: 1:1); O(1) time per reading
    (amortised unless tumbling). State per key: 24 bytes, and unless tumbling 8 more per reading of the window. The
    error of a mean is a few units in the last place of the mean of ``|x|``.

    A result is the record that completed the window, with the mean in the output field and the number of readings in
    ``count``. A partial window at the end has the ``seq`` and ``ordinal`` of its last record. For means over time
    windows see :class:`Window`.

    Missing values
    --------------
    A null or NaN reading is skipped.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task AVG.
    .. [2] A. Neumaier, *Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen*,
       ZAMM 54, 1974, method IV.

    Examples
    --------
    >>> average = MovingAverage(window=3).session()
    >>> [out["value"] for v in range(1, 8) for out in average.push({"value": v})]
    [2.0, 5.0]
    >>> sliding = MovingAverage(window=3, mode="sliding").session()
    >>> [out["value"] for v in range(1, 8) for out in sliding.push({"value": v})]
    [2.0, 3.0, 4.0, 5.0, 6.0]
    >>> moving = MovingAverage(window=3, mode="growing").session()
    >>> [out["value"] for v in range(1, 8) for out in moving.push({"value": v})]
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0]
    """

    code: ClassVar[str] = "AVG"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"
    accepts_lazy_rows: ClassVar[bool] = True

    window: Length = 10
    mode: Literal["tumbling", "sliding", "growing"] = "tumbling"
    partial: bool = False

    def validate(self) -> None:
        if self.partial and self.mode == "growing":
            raise ConfigError("partial must be False with mode='growing', which never holds a window back")
        if self.target == "count":
            raise ConfigError("output must differ from 'count', the field for the number of readings")

    @property
    def reading(self) -> str:  # type: ignore[override]
        return self.value

    @property
    def frame(self) -> Count | Sliding:
        tumbling = self.mode == "tumbling"
        return Count(self.window, self.partial) if tumbling else Sliding(self.window, full=self.mode == "sliding")

    @property
    def emit(self) -> str:
        return "final" if self.mode == "tumbling" else "each"

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.target: (self.value, "mean"), "count": (self.value, "count")}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = [10.0, -3.5, 12.0, None, float("nan"), 1e308, 4.0, 11.0, 1e308, 0.5]
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": pa.array([0, 1, 2, 3, 4, 5, None, 12, 1, 30], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, ""],
                "value": values,
            }
        )
        yield Case(cls(window=2, by=("key",)), batch)
        yield Case(cls(window=3, mode="sliding", output="mean", partial=True), batch)
        yield Case(cls(window=3, mode="growing", by=("key",)), batch)
