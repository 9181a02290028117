"""Window operators under the names of the benchmarks: presets of a frame, aggregates and an emission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import MAX_LENGTH, Length, Positive
from riot_ops.task import Case, KeyedTask, ValueTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask
from riot_ops.windows import Count, Sliding

__all__ = ["ClippedAverage", "ExponentialAverage", "MovingAverage", "RunningCount", "SlidingSum", "Variance"]


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


@register
@dataclass(frozen=True, kw_only=True)
class RunningCount(WindowTask, KeyedTask):
    """Count the records of each key.

    Parameters
    ----------
    output : str, default "count"
        Field for the count.
    emit : "each" or "update", default "each"
        Emit the count after every record; or, like Spark's update mode, once per key and batch (on Spark: micro-batch),
        with the key's last record: fewer records, which depend on how the stream is cut into batches, and the same
        final count of each key.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> int64[n], 1:1 (``update``: N:1); O(1) time; 8 bytes of state per key.

    Missing values
    --------------
    A null in a key field is a key of its own.

    Errors
    ------
    None.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: word count, log processing.

    Examples
    --------
    >>> count = RunningCount(by="word").session()
    >>> [count.push({"word": w})[0]["count"] for w in ("so", "it", "so")]
    [1, 1, 2]
    """

    code: ClassVar[str] = "CNT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    output: str = "count"
    emit: Literal["each", "update"] = "each"

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.output: "count"}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        words = ["a", "b", "a", "ü", None, "", "a", None]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(8), pa.int64()), "word": words})
        yield Case(cls(by=("word",)), batch)
        yield Case(cls(by=("word",), output="word_count"), batch)


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
