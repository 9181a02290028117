"""Running summary: count, minimum, maximum, exact sum and mean of all readings so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import is_ordinal
from riot_ops.task import Case, KeyedTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["RunningSummary"]


@register
@dataclass(frozen=True, kw_only=True)
class RunningSummary(WindowTask, KeyedTask):
    """Keep count, minimum, maximum, sum and mean of all readings of each key so far.

    The sum is exact and rounded once to float64, so that it does not depend on the order of the readings; the mean is
    that sum divided by the count. Minimum and maximum have the type of the field (float64 for floating types) and all
    digits; decimals are refused.

    Parameters
    ----------
    value : str, default "value"
        Numeric field to summarise.
    prefix : str, default ""
        Prefix of the output fields ``count``, ``min``, ``max``, ``sum`` and ``mean``.
    emit : "each" or "update", default "each"
        Emit the statistics after every record, or only with the last record of each key in a (micro-)batch, as
        :class:`RunningCount` does.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    number[n] -> int64[n], twice number[n] and twice float64[n], 1:1 (``update``: N:1); O(1) time; 584 bytes of state
    per key.

    Missing values
    --------------
    A null or NaN is not counted; its record carries the statistics so far. Before the first reading the count and the
    sum are 0, the others null. A sum beyond float64 is null, and so is its mean, until later readings return it
    into range.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] U. Kulisch, *Computer arithmetic and validity*, 2008, chapter 8: sums in a register for all exponents.
    .. [2] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench*, UCC 2014: the program Statistics.

    Examples
    --------
    >>> summary = RunningSummary().session()
    >>> [summary.push({"value": v})[0]["sum"] for v in (1e100, 1.0, -1e100)]
    [1e+100, 1e+100, 1.0]
    """

    code: ClassVar[str] = "RSM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 3

    value: str = "value"
    prefix: str = ""
    emit: Literal["each", "update"] = "each"

    def validate(self) -> None:
        for name in self.aggregates:
            if name in ("seq", "event_time", *self.by) or is_ordinal(name):
                raise ConfigError(f"prefix = {self.prefix!r} names a field {name!r}, which is reserved")

    @property
    def aggregates(self) -> dict[str, Any]:
        functions = {"count": ("count",), "min": ("min",), "max": ("max",), "sum": ("fsum", 0), "mean": ("fmean",)}
        return {self.prefix + name: (self.value, *function) for name, function in functions.items()}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(11), pa.int64()),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a", "a"],
                "value": [1e16, -3.5, 1.0, None, float("nan"), 1e300, -0.0, -1e16, float("inf"), 1.7e308, 1.7e308],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(prefix="value_"), batch, "of the stream")
