"""CPU load: π by Viète's product."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.parameters import Count
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, StatelessTask, register, replace_column, with_field

__all__ = ["PiViete"]


@kernel
def viete_nested(factors: Any) -> Any:
    """Compute π with the roots of every factor taken again: n² / 2 square roots for n factors."""
    product = 1.0
    for k in range(1, factors + 1):
        root = 0.0
        for _ in range(k):
            root = np.sqrt(2.0 + root)
        product *= root / 2.0
    return 2.0 / product


@kernel
def viete_carried(factors: Any) -> Any:
    """Compute π with each factor's root carried over from the previous one: n square roots."""
    product = 1.0
    root = 0.0
    for _ in range(factors):
        root = np.sqrt(2.0 + root)
        product *= root / 2.0
    return 2.0 / product


@kernel
def repeat_viete(factors: Any, nested: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = viete_nested(factors) if nested else viete_carried(factors)


@register
@dataclass(frozen=True, kw_only=True)
class PiViete(StatelessTask):
    """Compute π for every record: CPU load that does not depend on the input.

    ``2 / π = (√2 / 2) (√(2 + √2) / 2) (√(2 + √(2 + √2)) / 2) …``

    Parameters
    ----------
    iterations : int, >= 1, default 1600
        Number of factors. The error after n factors is about 1.3 / 4^n, so that 27 suffice for float64.
    method : "nested" or "carried", default "nested"
        Take all roots of a factor again, n² / 2 roots in total, which is the benchmark's load; or carry the root from
        factor to factor, n roots.
    output : str, default "pi"
        Field (float64) for the result.

    Shapes and rates
    ----------------
    any[n] -> any[n] with one more field, 1:1; O(iterations²) time per record, or O(iterations)
    with ``carried``; no state.

    Missing values
    --------------
    The task reads no field.

    Errors
    ------
    None.

    References
    ----------
    .. [1] F. Viète, *Variorum de rebus mathematicis responsorum liber VIII*, 1593.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task PI.

    Examples
    --------
    >>> [round(PiViete(iterations=n).session().push({"value": 1.0})[0]["pi"], 6) for n in (1, 2, 40)]
    [2.828427, 3.061467, 3.141593]
    """

    code: ClassVar[str] = "PI"
    category: ClassVar[str] = "Math"

    iterations: Count = 1600
    method: Literal["nested", "carried"] = "nested"
    output: str = "pi"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        out = np.empty(batch.num_rows)
        repeat_viete(self.iterations, self.method == "nested", out)
        return replace_column(batch, self.output, out)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"key": ["ü", None], "value": [None, float("nan")]})
        yield Case(cls(iterations=30), batch)
        yield Case(cls(method="carried", output="value"), batch, "carried")
