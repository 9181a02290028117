"""Calendar fields from a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["TimeFields"]

HOUR, DAY = 3_600_000_000, 86_400_000_000
#: The epoch began on a Thursday.
THURSDAY = 3

Micros = npt.NDArray[np.int64]


def _hour(us: Micros) -> npt.NDArray[Any]:
    return us % DAY / HOUR


def _weekday(us: Micros) -> npt.NDArray[Any]:
    return (us // DAY + THURSDAY) % 7


FIELDS: dict[str, Callable[[Micros], npt.NDArray[Any]]] = {
    "hour": _hour,
    "hour_sin": lambda us: np.sin(_hour(us) * (np.pi / 12)),
    "hour_cos": lambda us: np.cos(_hour(us) * (np.pi / 12)),
    "weekday": _weekday,
    "weekend": lambda us: (_weekday(us) >= 5).astype(np.float64),
}


@register
@dataclass(frozen=True, kw_only=True)
class TimeFields(StatelessTask):
    """Add the hour of day and the day of week of each record, as numbers that a model can learn from.

    ``hour`` (0 up to 24, with its fraction), ``hour_sin`` and ``hour_cos`` (sine and cosine of
    ``2π hour / 24``, so that midnight has no edge), ``weekday`` (0 is Monday), ``weekend`` (1 on
    Saturday and Sunday).

    Parameters
    ----------
    fields : tuple of str
        Names of the fields to add, from those above.
    time : str, default "event_time"
        Field with the time.
    utc_offset : float, hours from -24 to 24, default 0
        Local time minus UTC.

    Shapes and rates
    ----------------
    timestamp[n] -> float64[n] per field, 1:1; O(n) time, no state.

    Missing values
    --------------
    Null for a null time.

    Errors
    ------
    None at run time.

    References
    ----------
    .. [1] G. E. P. Box, G. M. Jenkins, *Time Series Analysis*, on harmonic terms of a season.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> fields = TimeFields(fields=("hour", "weekday")).session()
    >>> row = fields.push({"event_time": datetime(2015, 2, 1, 6, 30, tzinfo=UTC)})[0]
    >>> row["hour"], row["weekday"]
    (6.5, 6.0)
    """

    code: ClassVar[str] = "TMF"
    category: ClassVar[str] = "Parse"

    fields: tuple[str, ...]
    time: str = "event_time"
    utc_offset: float = 0.0

    def validate(self) -> None:
        if not self.fields or len(set(self.fields)) < len(self.fields):
            raise ConfigError(f"fields must name at least one field, none twice; got {self.fields!r}")
        for name in self.fields:
            if name not in FIELDS:
                raise ConfigError(f"fields can be {', '.join(FIELDS)}; got {name!r}{did_you_mean(name, FIELDS)}")
        if not -24 <= self.utc_offset <= 24:
            raise ConfigError(f"utc_offset must be from -24 to 24 hours, got {self.utc_offset!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {self.time: "any"}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_time_field(self.name(), schema, self.time)

    def writes(self) -> frozenset[str]:
        return frozenset(self.fields)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.fields:
            schema = with_field(schema, pa.field(name, pa.float64()))
        return schema

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        times, present = microseconds(batch.column(self.time))
        us = times + round(self.utc_offset * HOUR)
        for name in self.fields:
            values = FIELDS[name](us).astype(np.float64)
            batch = replace_column(batch, name, pa.array(values, mask=~present))
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = [0, -1, 1_422_748_800_000_000, None, 253_402_300_799_999_999, 1_500_000_000_000_000]
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(len(times)), pa.int64()), "event_time": pa.array(times, TIMESTAMP)}
        )
        yield Case(cls(fields=tuple(FIELDS)), batch)
        yield Case(cls(fields=("hour",), utc_offset=-5.5), batch, "offset")
