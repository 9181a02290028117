"""Weighted sum of the numbers of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["WeightedSum"]


@register
@dataclass(frozen=True, kw_only=True)
class WeightedSum(StatelessTask):
    """Compute the weighted sum of several fields of a record.

    ``sum = w1 x1 + … + wn xn``

    Parameters
    ----------
    weights : dict of str to float
        The weight of each field.
    output : str, default "score"
        Field for the sum.

    Shapes and rates
    ----------------
    float64[n] x k -> float64[n], 1:1; no state. The terms are added in the order of the weights.

    Missing values
    --------------
    The sum is null where a number is null, NaN or infinite, or where the sum overflows.

    Errors
    ------
    None.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the scorer of VoIP stream.

    Examples
    --------
    >>> WeightedSum(weights={"a": 2, "b": 0.5}).session().push({"a": 1.5, "b": 4.0})[0]["score"]
    5.0
    """

    code: ClassVar[str] = "WSM"
    category: ClassVar[str] = "Math"

    weights: Any
    output: str = "score"

    def validate(self) -> None:
        weights = self.weights
        if isinstance(weights, Mapping) and weights:
            numbers = [w for w in weights.values() if isinstance(w, int | float) and not isinstance(w, bool)]
            if len(numbers) == len(weights) and np.isfinite(numbers).all() and all(isinstance(n, str) for n in weights):
                object.__setattr__(self, "weights", {name: float(weight) for name, weight in weights.items()})
                return
        raise ConfigError(f"weights must map at least one field to a finite number, got {value_text(weights)}")

    def __hash__(self) -> int:
        return hash((self.output, *self.weights.items()))

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys(self.weights, "number")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        total = np.zeros(batch.num_rows)
        with np.errstate(all="ignore"):
            for name, weight in self.weights.items():
                total += weight * float_column(batch.column(name))[0]
        total[~np.isfinite(total)] = np.nan
        return replace_column(batch, self.output, total)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(6), pa.int64()),
                "x": [1.0, 3.0, None, float("nan"), float("inf"), 1e308],
                "y": [2.0, None, 0.5, 1.0, 0.0, 1e308],
            }
        )
        yield Case(cls(weights={"x": 2.0, "y": -0.5}), batch)
        yield Case(cls(weights={"y": 3}, output="y"), batch, "one")
