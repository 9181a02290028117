"""What tasks have in common that sum up whole numbers: a table of which field goes into which total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, short
from riot_ops.core.order import ordinals

__all__ = ["LEAST", "MOST", "addends", "check_summable", "checked_totals"]

MOST = int(np.iinfo(np.int64).max)
LEAST = int(np.iinfo(np.int64).min)


def checked_totals(given: Any, taken: Iterable[str]) -> dict[str, str | None]:
    """The table, by output field; ``taken`` are names that none may have."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"totals must be a dict of field to field (or None: records), got {short(given)}")
    for name, of in given.items():
        if not isinstance(name, str) or name in ("seq", "event_time", *taken) or ordinals([name]):
            raise ConfigError(f"totals: {name!r} cannot be the name of a total")
        if not isinstance(of, str | None):
            raise ConfigError(f"totals: {name!r} must be of a field or None, got {short(of)}")
    return dict(given)


def check_summable(task: str, totals: Mapping[str, str | None], schema: pa.Schema) -> None:
    """Raise unless the fields are of whole numbers or truth values."""
    for of in totals.values():
        kind = pa.null() if of is None else schema.field(of).type
        if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise ConfigError(f"{task} sums whole numbers and truth values, the field {of!r} is {kind}")


def addends(batch: pa.RecordBatch, of: str | None) -> npt.NDArray[np.int64]:
    """What each row adds to a total: 1, or the value of the field, of a null nothing."""
    if of is None:
        return np.ones(batch.num_rows, np.int64)
    column = batch.column(of)
    if pa.types.is_uint64(column.type):  # a value beyond int64 is as good as its end
        most = pa.scalar(MOST, pa.uint64())
        column = pc.if_else(pc.greater(column, most), most, column)
    column = column.cast(pa.int64())
    values: npt.NDArray[np.int64] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return values
