"""Bargain index: score an offer by its price below a reference."""

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

#: Maximum exponent: exp overflows soon above it.
MAX_EXPONENT = 700.0


@register
@dataclass(frozen=True, kw_only=True)
class BargainIndex(StatelessTask):
    """Score offers below their reference price by discount and volume, and pass those above a threshold.

    ``index = exp(reference - price) volume`` where the price is below the reference, else 0; a record passes if its
    index exceeds the threshold.

    Parameters
    ----------
    threshold : float, >= 0, default 0.001
        Index that a record must exceed.
    price : str, default "price"
        Field with the asked price.
    volume : str, default "volume"
        Field with the offered volume.
    reference : str, default "vwap"
        Field with the reference price.
    output : str, default "bargain_index"
        Field for the index.

    Shapes and rates
    ----------------
    float64[n] x 3 -> float64[m], 1:0/1; no state. The exponent is capped at 700, and the index at the largest float64.

    Missing values
    --------------
    A record with a null or NaN number has no index and does not pass.

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
    volume: str = "volume"
    reference: str = "vwap"
    output: str = "bargain_index"

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((self.price, self.volume, self.reference), "number")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        price, size, worth = (float_column(batch.column(name))[0] for name in (self.price, self.volume, self.reference))
        with np.errstate(all="ignore"):
            index = np.exp(np.minimum(worth - price, MAX_EXPONENT)) * size
            index = np.where(
                np.isfinite(price) & np.isfinite(size), np.minimum(index, np.finfo(np.float64).max), np.nan
            )
            good = (worth > price) & np.isfinite(worth) & (index > self.threshold)
        passed = batch if good.all() else batch.filter(pa.array(good))
        return replace_column(passed, self.output, index[good])

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
