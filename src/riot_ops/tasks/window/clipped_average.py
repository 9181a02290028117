"""Clipped average: the mean of a key's latest values without outliers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import MAX_LENGTH, Positive
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, State, StateField, ValueTask, register, replace_column, with_field

__all__ = ["ClippedAverage"]


@kernel
def _rebuild_front(s: Any, ring: Any, head: Any, size: Any, means: Any, squares: Any) -> None:
    """Compute, for each value of a key's ring, mean and squared deviations of that value and all later ones."""
    mean = 0.0
    square = 0.0
    for n in range(1, size + 1):
        j = (head[s] + size - n) % ring.shape[1]
        delta = ring[s, j] - mean
        mean += delta / n
        square += delta * (ring[s, j] - mean)
        means[s, j] = mean
        squares[s, j] = square


@kernel
def _clip(
    values: Any, slots: Any, sigma: Any, whole: Any,
    ring: Any, head: Any, size: Any, front: Any, means: Any, squares: Any, mean: Any, square: Any, average: Any,
    averages: Any, counts: Any,
) -> None:  # fmt: skip
    """Compute the average after each value, and the number of values it covers.

    The ring is a queue of two stacks. For each of its ``front`` oldest values, ``means`` and ``squares`` cover that
    value and the later ones of the front; ``mean`` and ``square`` cover all newer values. Nothing is ever subtracted,
    so that no error accumulates.
    """
    room = ring.shape[1]
    for i in range(values.size):
        s = slots[i]
        v = values[i]
        averages[i] = np.nan
        counts[i] = size[s]
        if np.isnan(v):
            if size[s] > 0:
                averages[i] = average[s]
            continue
        if whole:
            v = np.trunc(v)
        n = size[s]
        f = front[s]
        back = n - f
        # mean and squares of the queue
        m = mean[s]
        q = square[s]
        if f > 0:
            delta = m - means[s, head[s]]
            if back == 0:
                m = means[s, head[s]]
                q = squares[s, head[s]]
            else:
                m = means[s, head[s]] + delta * back / n
                q += squares[s, head[s]] + delta * delta * f * back / n
        now = m + (v - m) / (n + 1) if n > 0 else v
        if whole:
            now = np.trunc((np.rint(m * n) + v) / (n + 1))
        taken = n < 2
        if not taken:
            a = average[s]
            spread = math.sqrt((q + n * (m - a) * (m - a) + (v - a) * (v - a)) / n)
            taken = abs(v - now) <= sigma * spread
        if taken:
            if n == room:
                if f == 0:
                    _rebuild_front(s, ring, head, size[s], means, squares)
                    f = n
                    back = 0
                    mean[s] = 0.0
                    square[s] = 0.0
                head[s] = head[s] + 1 if head[s] + 1 < room else 0
                f -= 1
                n -= 1
            ring[s, (head[s] + n) % room] = v
            back += 1
            delta = v - mean[s]
            mean[s] += delta / back
            square[s] += delta * (v - mean[s])
            size[s] = n + 1
            front[s] = f
            average[s] = now
        averages[i] = average[s]
        counts[i] = size[s]


@register
@dataclass(frozen=True, kw_only=True)
class ClippedAverage(ValueTask):
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
    whole : bool, default False
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

    window: Annotated[int, msgspec.Meta(ge=2, le=MAX_LENGTH)] = 30
    sigma: Positive = 2.0
    count: str = "count"
    whole: bool = False

    def validate(self) -> None:
        if self.count == self.target:
            raise ConfigError(f"count must differ from {self.target!r}, the field for the average")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return with_field(super().output_schema(schema), pa.field(self.count, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target, self.count})

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "ring": StateField("float64", self.window),
            "head": StateField("int64"),
            "size": StateField("int64"),
            "front": StateField("int64"),
            "means": StateField("float64", self.window),
            "squares": StateField("float64", self.window),
            "mean": StateField("float64"),
            "square": StateField("float64"),
            "average": StateField("float64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        averages, counts = np.empty(values.size), np.empty(values.size, np.int64)
        arrays = tuple(state[name] for name in self.state_fields())
        arguments: tuple[Any, ...] = (values, slots, self.sigma, self.whole, *arrays, averages, counts)
        _clip(*arguments)
        return replace_column(replace_column(batch, self.target, averages), self.count, pa.array(counts))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "a", "ü", "a", None, "a", "", "a", "a", "a", "b", "b"],
                "value": [1.5, -3.0, 2.5, None, 7.0, 2.0, float("nan"), 9e9, 0.0, 2.25, 1e150, 2.0, -3.0, 1e300],
            }
        )
        yield Case(cls(by=("key",), window=3), batch)
        yield Case(cls(window=2, sigma=0.5, output="average", count="n", whole=True), batch)
