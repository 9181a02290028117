"""Exponentially weighted mean of readings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa

from riot_ops.task import Case, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["ExponentialAverage"]


@register
@dataclass(frozen=True, kw_only=True)
class ExponentialAverage(WindowTask, ValueTask):
    """Compute the exponentially weighted mean of each key's readings.

    ``mean = mean + α (x - mean)`` with ``α = 2 / (span + 1)``, after a warm-up in which it is the plain mean.

    Parameters
    ----------
    span : float, >= 1
        Number of readings that the mean spans: its weights have the centre of mass of that many equal weights.
    warmup : int, >= 0, default 10
        Number of first readings of a key that are averaged with equal weights; 0: the mean starts at the first reading.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time; 16 bytes of state per key.

    Missing values
    --------------
    Null and NaN give null and leave the mean unchanged.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the average call duration of VoIP stream.
    .. [2] pandas, ``Series.ewm(span=…, adjust=False)``: the same without a warm-up.

    Examples
    --------
    >>> mean = ExponentialAverage(span=3, warmup=2).session()
    >>> [mean.push({"value": v})[0]["value"] for v in (10.0, 20.0, 25.0, 30.0)]
    [10.0, 15.0, 20.0, 25.0]
    """

    code: ClassVar[str] = "EWM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    span: Annotated[float, msgspec.Meta(ge=1)]
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 10

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.target: (self.value, "ewm", self.span, self.warmup)}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None],
                "value": [10.0, -1e308, 12.0, None, float("nan"), 7.0, 1.7e308, 11.0, 4.5],
            }
        )
        yield Case(cls(span=4, by=("key",), warmup=2), batch)
        yield Case(cls(span=1.5, warmup=0, output="mean"), batch, "no warm-up")
