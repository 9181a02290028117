"""Mean of the latest values without outliers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import MAX_LENGTH, Positive
from riot_ops.task import Case, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["ClippedAverage"]


@register
@dataclass(frozen=True, kw_only=True)
class ClippedAverage(WindowTask, ValueTask):
    """Average the latest values of each key, excluding outliers (sigma clipping).

    With the queue q of the latest values and the previous average a: ``now = (sum(q) + v) / (|q| + 1)`` and
    ``sd = sqrt((sum((x - a)^2 for x in q) + (v - a)^2) / |q|)``. If ``|v - now| <= sigma sd``, v joins the queue, a
    full queue drops its oldest value, and ``a = now``; else v is an outlier and nothing changes. The first two values
    always join.

    Parameters
    ----------
    window : int, 2 to 1,048,576, default 30
        Maximum number of values in the queue.
    sigma : float > 0, default 2.0
        Number of standard deviations that a value may lie away from the average.
    count : str, default "count"
        Field for the number of values in the queue.
    integer : bool, default False
        Whether values and averages are truncated to integers.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n] and int64[n], 1:1: average and number of values after each record, outlier or not. O(1)
    amortised time for any window; 24 W + 64 bytes of state per key. Mean and squares of the queue are merged from two
    stacks, so that no error accumulates.

    Missing values
    --------------
    Null and NaN leave the state unchanged; their record carries the average so far, or null before the first value.

    Errors
    ------
    An infinite value goes to the errors stream as ``not_finite``. Squares of values must be finite.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: traffic monitoring, speed calculator.
    .. [2] T. Chan, G. Golub, R. LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*,
       1979.

    Examples
    --------
    >>> speed = ClippedAverage(value="speed", output="average").session()
    >>> for v in (40.0, 44.0, 42.0, 41.0, 43.0, 42.0, 90.0):
    ...     out = speed.push({"speed": v})[0]
    >>> out
    {'speed': 90.0, 'average': 42.0, 'count': 6}
    """

    code: ClassVar[str] = "CLA"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    window: Annotated[int, msgspec.Meta(ge=2, le=MAX_LENGTH)] = 30
    sigma: Positive = 2.0
    count: str = "count"
    integer: bool = False

    def validate(self) -> None:
        if self.count == self.target:
            raise ConfigError(f"count must differ from {self.target!r}, the field for the average")

    @property
    def aggregates(self) -> dict[str, Any]:
        options = self.window, self.sigma, self.integer
        return {
            self.target: (self.value, "clipped_mean", *options),
            self.count: (self.value, "clipped_count", *options),
        }

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "a", "ü", "a", None, "a", "", "a", "a", "a", "b", "b"],
                "value": [1.5, -3.0, 2.5, None, 7.0, 2.0, float("nan"), 9e9, 0.0, 2.25, 1e150, 2.0, -3.0, 1e300],
            }
        )
        yield Case(cls(by=("key",), window=3), batch)
        yield Case(cls(window=2, sigma=0.5, output="average", count="n", integer=True), batch)
