"""The last row of each key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel

__all__ = ["latest_rows"]


@kernel
def _latest(slots: Any, seen: Any, rows: Any) -> Any:
    """Write the last row of each key to the end of ``rows``, in order; returns where they begin."""
    place = rows.size
    for k in range(slots.size):
        i = slots.size - 1 - k
        s = np.uint64(slots[i])
        if not seen[s]:
            seen[s] = True
            place -= 1
            rows[place] = i
    return place


def latest_rows(slots: npt.NDArray[np.int64], keys: int) -> npt.NDArray[np.int64]:
    """Return the last row of each slot that occurs, in order; slots are below ``keys``.

    >>> latest_rows(np.array([0, 2, 0, 1, 2]), 3).tolist()
    [2, 3, 4]
    """
    rows = np.empty(slots.size, np.int64)
    return rows[_latest(slots, np.zeros(keys, np.bool_), rows) :]
