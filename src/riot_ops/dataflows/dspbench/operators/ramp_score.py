"""Ramp score: map a number or a ratio to a score from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["RampScore"]


@register
@dataclass(frozen=True, kw_only=True)
class RampScore(StatelessTask):
    """Score a number, or its ratio to others, on a linear ramp from 0 to 1.

    ``score = (r - low) / (high - low)``, clipped to [0, 1], with ``r = value / over1 / over2 …``.

    Parameters
    ----------
    value : str, default "value"
        Field with the number.
    over : tuple of str, default ()
        Fields by which the number is divided.
    low, high : float, low < high, default 0.0 and 1.0
        Start and end of the ramp; their difference must be finite.
    falling : bool, default False
        Whether the score falls from 1 to 0 along the ramp.
    undefined : float, in [0, 1], default 0.0
        Score where a divisor is 0.
    output : str, default "score"
        Field for the score.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; no state.

    Missing values
    --------------
    Where the number or a divisor is null, NaN or infinite, the score is null.

    Errors
    ------
    None.

    References
    ----------
    .. [1] G. Bianchi, N. d'Heureuse, S. Niccolini, *On-demand time-decaying Bloom filters for telemarketer detection*,
       ACM SIGCOMM Computer Communication Review 41(5), 2011.

    Examples
    --------
    >>> score = RampScore(value="out", over="in", low=2, high=10, undefined=1.0).session()
    >>> pairs = [(6, 1), (6, 4), (60, 4), (1, 0)]
    >>> [score.push({"out": float(a), "in": float(b)})[0]["score"] for a, b in pairs]
    [0.5, 0.0, 1.0, 1.0]
    """

    code: ClassVar[str] = "RMP"
    category: ClassVar[str] = "Math"

    value: str = "value"
    over: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    falling: bool = False
    undefined: float = 0.0
    output: str = "score"

    def validate(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise ConfigError(f"low must be below high, and their difference finite, got {self.low} and {self.high}")
        if not 0 <= self.undefined <= 1:
            raise ConfigError(f"undefined must be from 0 to 1, got {self.undefined}")

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((self.value, *self.over), "number")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        ratio, _ = float_column(batch.column(self.value))
        missing, none = ~np.isfinite(ratio), np.zeros(batch.num_rows, np.bool_)
        with np.errstate(all="ignore"):
            for name in self.over:
                divisor, _ = float_column(batch.column(name))
                missing |= ~np.isfinite(divisor)
                none |= divisor == 0.0
                ratio = ratio / divisor
            score = np.clip((ratio - self.low) / (self.high - self.low), 0.0, 1.0)
        if self.falling:
            score = 1.0 - score
        score[none | np.isnan(score)] = self.undefined
        score[missing] = np.nan
        return replace_column(batch, self.output, score)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(8), pa.int64()),
                "x": [1.0, 3.0, -5.0, None, float("nan"), float("inf"), 0.0, 1e308],
                "y": [2.0, 1.0, 0.5, 1.0, 0.0, 2.0, 0.0, 1e-308],
            }
        )
        yield Case(cls(value="x"), batch)
        yield Case(
            cls(value="x", over=("y",), low=-1.0, high=4.0, undefined=0.5, falling=True, output="x"), batch, "ratio"
        )
