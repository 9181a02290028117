"""What holds for every aggregate of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from riot_ops.kernels.jit import compile_uncached

if TYPE_CHECKING:
    from riot_ops.tasks import Aggregate

__all__ = ["check_aggregate"]

#: Values with which an aggregate is checked.
VALUES = (3.0, -1.5, 0.0, 2.25, 2.25, -1e6, 7.0)


def check_aggregate(aggregate: Aggregate, values: Iterable[float] = VALUES) -> None:
    """Raise an AssertionError unless windows may cut the records of an aggregate anywhere.

    The functions must compile. A part without records changes nothing that it is merged with. Parts merged in order
    have the result of all values, to 12 digits, and neither ``merge`` nor ``result`` changes what it only reads.

    >>> from riot_ops import tasks as t
    >>> def add(cell, x): cell[0] += x
    >>> def merge(cell, other): cell[0] -= other[0]
    >>> check_aggregate(t.Aggregate("total", (0.0,), add, merge, lambda cell: cell[0]))
    Traceback (most recent call last):
    AssertionError: total: 0 values merged with 7 have the result 999987.0, all 7 added one by one -999987.0
    """
    add, merge, result = (compile_uncached(one) for one in (aggregate.add, aggregate.merge, aggregate.result))
    given = [float(value) for value in values]

    def cell_of(part: list[float]) -> Any:
        cell = np.array(aggregate.initial)
        for value in part:
            add(cell, value)
        return cell

    whole = cell_of(given)
    before = whole.copy()
    wanted = float(result(whole))
    if not np.array_equal(whole, before, equal_nan=True):
        raise AssertionError(f"{aggregate.name}: result changes the cell")
    for cut in range(len(given) + 1):
        one, other = cell_of(given[:cut]), cell_of(given[cut:])
        before = other.copy()
        merge(one, other)
        if not np.array_equal(other, before, equal_nan=True):
            raise AssertionError(f"{aggregate.name}: merge changes its second argument")
        found = float(result(one))
        if not ((isnan(found) and isnan(wanted)) or isclose(found, wanted, rel_tol=1e-12, abs_tol=1e-12)):
            raise AssertionError(
                f"{aggregate.name}: {cut} values merged with {len(given) - cut} have the result {found}, "
                f"all {len(given)} added one by one {wanted}"
            )
