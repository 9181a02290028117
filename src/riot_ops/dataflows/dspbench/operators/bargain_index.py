"""How good a bargain an offer is, against what its goods are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.parameters import NonNegative
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["BargainIndex"]

#: The greatest exponent: of what is beyond it, exp would be no number any more.
MOST = 700.0


@register
@dataclass(frozen=True, kw_only=True)
class BargainIndex(StatelessTask):
    """Score offers that are below what they are worth, by how much and for how many, and pass the good ones.

    ``index = exp(reference - price) size`` where the price is below the reference, else 0; a record passes where its
    index is above the threshold.

    Parameters
    ----------
    threshold : float, >= 0, default 0.001
        Index that a record must be above.
    price : str, default "price"
        Field with the price asked.
    size : str, default "volume"
        Field with how much is offered.
    reference : str, default "vwap"
        Field with what one is worth.
    output : str, default "bargain_index"
        Field for the index.

    Shapes and rates
    ----------------
    float64[n] x 3 -> float64[m], 1:0/1; no state. The exponent is 700 at most, and the index the greatest number.

    Missing values
    --------------
    A record in which a number is null or NaN has no index and does not pass.

    Errors
    ------
    None; an infinite number counts as missing.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: bargain index.
    .. [2] H. Andrade et al., *Scale-up strategies for processing high-rate data streams in System S*, ICDE 2009.

    Examples
    --------
    >>> bargain = BargainIndex().session()
    >>> offers = [(11.5, 100), (10.0, 100)]
    >>> rows = [row for p, n in offers for row in bargain.push({"price": p, "volume": n, "vwap": 11.0})]
    >>> [(row["price"], round(row["bargain_index"], 1)) for row in rows]
    [(10.0, 271.8)]
    """

    code: ClassVar[str] = "BGN"
    category: ClassVar[str] = "Math"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    threshold: NonNegative = 0.001
    price: str = "price"
    size: str = "volume"
    reference: str = "vwap"
    output: str = "bargain_index"

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((self.price, self.size, self.reference), "number")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        price, size, worth = (float_column(batch.column(name))[0] for name in (self.price, self.size, self.reference))
        with np.errstate(all="ignore"):
            index = np.exp(np.minimum(worth - price, MOST)) * size
            index = np.where(
                np.isfinite(price) & np.isfinite(size), np.minimum(index, np.finfo(np.float64).max), np.nan
            )
            good = (worth > price) & np.isfinite(worth) & (index > self.threshold)
        kept = batch if good.all() else batch.filter(pa.array(good))
        return replace_column(kept, self.output, index[good])

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(8), pa.int64()),
                "price": [10.0, 11.0, 12.0, None, 1.0, 1.0, 1.0, -1e308],
                "volume": [100.0, 1.0, 3.0, 4.0, 1e-9, float("inf"), 5.0, 1e306],
                "vwap": [10.5, 11.0, 11.0, 4.0, 1.5, 2.0, float("nan"), 1e308],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(threshold=1.0, output="price"), batch, "threshold")
