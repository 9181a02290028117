"""Small CITY files and helpers to compare their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

MESSAGES, FILES, SENSORS = 1200, 3, 7


def by_record(table: pa.Table) -> Any:
    return table.to_pandas().sort_values(["seq", "ordinal"]).reset_index(drop=True)


def same(ours: Any, theirs: Any, keys: list[str]) -> None:
    """Equal but for rounding: sums are taken in another order, and ours are compensated."""
    assert len(ours) == len(theirs) > 0
    for key in keys:
        assert ours[key].tolist() == theirs[key].tolist()
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-9)
    if "predictions" in ours and "predictions" in theirs:
        np.testing.assert_allclose(np.stack(ours["predictions"]), np.stack(theirs["predictions"]), rtol=1e-9)
