"""Ratio of two fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["Ratio"]


@register
@dataclass(frozen=True, kw_only=True)
class Ratio(StatelessTask):
    """Divide one field by another, such as clicks by impressions.

    ``output = numerator / denominator``; 0 where the numerator is 0, and ``undefined`` where only the denominator is 0.

    Parameters
    ----------
    numerator, denominator : str
        Numeric fields.
    output : str
        Field for the ratio.
    undefined : float or None, default None
        Result of a division by 0; None: the record is an error.

    Shapes and rates
    ----------------
    float64[n], float64[n] -> float64[n], 1:1; O(1) time, no state.

    Missing values
    --------------
    The ratio is null where either field is null or NaN.

    Errors
    ------
    ``zero_denominator``: a nonzero numerator is divided by 0 without ``undefined``. ``not_finite``: the ratio is
    infinite or NaN.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the click-through rate of ads analytics.

    Examples
    --------
    >>> rate = Ratio(numerator="clicks", denominator="views", output="rate").session()
    >>> [row["rate"] for row in rate.push_many([{"clicks": 1, "views": 4}, {"clicks": 0, "views": 0}])]
    [0.25, 0.0]
    >>> rate.push({"clicks": 1, "views": 0}), rate.errors[0]["reason"]
    ([], 'zero_denominator')
    """

    code: ClassVar[str] = "RTO"
    category: ClassVar[str] = "Math"

    numerator: str
    denominator: str
    output: str
    undefined: float | None = None

    def validate(self) -> None:
        if self.output in ("seq", "event_time"):
            raise ConfigError(f"output must not be {self.output!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {self.numerator: "number", self.denominator: "number"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        above, _ = float_column(batch.column(self.numerator))
        below, _ = float_column(batch.column(self.denominator))
        missing = np.isnan(above) | np.isnan(below)
        with np.errstate(all="ignore"):
            ratio = np.where(missing, np.nan, np.where(above == 0, 0.0, above / below))
        zero = (below == 0) & (above != 0) & ~missing
        if self.undefined is not None:
            ratio[zero] = self.undefined
            zero[:] = False
        wild = ~missing & ~zero & ~np.isfinite(ratio)
        dead.reject(batch, zero, "zero_denominator", f"{self.denominator} is 0 and {self.numerator} is not")
        dead.reject(batch, wild, "not_finite", f"{self.numerator} / {self.denominator} is not finite")
        bad = zero | wild
        if bad.any():
            batch, ratio = batch.filter(pa.array(~bad)), ratio[~bad]
        return replace_column(batch, self.output, ratio)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        infinite, nan = float("inf"), float("nan")
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "a": [1.0, 0.0, 2.0, None, nan, infinite, infinite, 1e300, -0.0],
                "b": pa.array([4.0, 0.0, 0.0, 1.0, 1.0, 1.0, infinite, 1e-300, 5.0]),
            }
        )
        yield Case(cls(numerator="a", denominator="b", output="ratio"), batch)
        yield Case(cls(numerator="a", denominator="b", output="a"), batch, "in place")
        yield Case(cls(numerator="a", denominator="b", output="ratio", undefined=-1.0), batch, "undefined")
