"""Where and how lines of text write their time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.ingest.replay_kernels import NO_TIME
from riot_ops.kernels.arrays.arrow import int_column

__all__ = ["LineTime"]

#: Microseconds of the units of numbers; below one for nanoseconds.
UNITS: dict[str, float] = {"s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3}
#: Numbers that int64 holds.
NUMBER = r"^-?(\d{1,18}|[1-8]\d{18})$"
SECOND, DAY = 1_000_000, 86_400_000_000


@dataclass(frozen=True)
class LineTime:
    r"""Where and how lines of text write their time, to pace them and to advance the times of copies.

    Parameters
    ----------
    pattern : str
        Regular expression (RE2, without look-around) for a whole line. All of it is in named groups; those whose
        names begin with ``time`` are times, and the first of them is the line's time. A line that does not match has
        no time and is never changed.
    time_format : str
        ``s``, ``ms``, ``us`` or ``ns`` for numbers since 1970; otherwise the format of a text, such as
        ``%d/%b/%Y:%H:%M:%S``. Leave fractions of a second and time zones to the other groups.

    Examples
    --------
    >>> cell = LineTime(r"(?P<before>[^,]*,)(?P<time>[^,.]*)(?P<after>.*)", "%Y-%m-%dT%H:%M:%S")
    >>> cell.shift(pa.array([b"a,2020-02-28T23:59:59.5,x\n", b"a,?\n"]), 2_000_000).to_pylist()
    [b'a,2020-02-29T00:00:01.5,x\n', b'a,?\n']
    """

    pattern: str
    time_format: str

    def __post_init__(self) -> None:
        try:
            compiled = re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(f"pattern must be a regular expression, got {self.pattern!r}: {error}") from None
        names = compiled.groupindex
        if compiled.groups != len(names) or not any(name.startswith("time") for name in names):
            raise ConfigError(f"pattern must have named groups only, one of them named time, got {self.pattern!r}")
        if self.time_format not in UNITS and "%" not in self.time_format:
            raise ConfigError(
                f"time_format must be s, ms, us, ns or a text with %Y and so on, got {self.time_format!r}"
            )

    def to_dict(self) -> dict[str, str]:
        """Describe the place and format of the time as JSON-able data."""
        return {"pattern": self.pattern, "time_format": self.time_format}

    @cached_property
    def step(self) -> int:
        """Shortest time in µs by which every time can be shifted: a day if the format has only dates."""
        if self.time_format in UNITS:
            return max(1, int(UNITS[self.time_format]))
        return SECOND if re.search("%[HIMSTRcX]", self.time_format) else DAY

    def read(self, lines: pa.Array) -> npt.NDArray[np.int64]:
        """Return the times of lines in µs since 1970, ``NO_TIME`` where there is none."""
        groups = self._groups(lines)
        times = self._parse(next(column for name, column in groups.items() if name.startswith("time")))
        values = int_column(times.fill_null(0))
        if self.time_format == "ns":
            values = values // 1000
        elif self.time_format in UNITS:
            values = values * int(UNITS[self.time_format])
        else:
            values = values * SECOND
        return np.where(times.is_null().to_numpy(zero_copy_only=False), NO_TIME, values)

    def shift(self, lines: pa.Array, shift: int) -> pa.Array:
        """Return the lines with all their times ``shift`` µs later, a multiple of :attr:`step`."""
        lines, later = lines.cast(pa.binary()), []
        groups = self._groups(lines)
        whole = pc.equal(pc.binary_join_element_wise(*groups.values(), b""), lines)
        if pc.all(whole).as_py() is False:
            raise ConfigError(f"pattern must put each part of a line into one group, got {self.pattern!r}")
        for name, column in groups.items():
            if name.startswith("time"):
                column = self._write(self._parse(column), shift).cast(pa.binary())
            later.append(column)
        moved = pc.binary_join_element_wise(*later, b"")
        return pc.coalesce(moved, lines)

    def _groups(self, lines: pa.Array) -> dict[str, pa.Array]:
        found = pc.extract_regex(lines.cast(pa.binary()), f"(?s)^(?:{self.pattern})$")
        names = [field.name for field in found.type]
        return dict(zip(names, found.flatten(), strict=True))

    def _parse(self, texts: pa.Array) -> pa.Array:
        """Return numbers in the unit of the format, or seconds; null for what is not in the format."""
        ascii_only = pc.match_substring_regex(texts, r"^[\x00-\x7f]*$")
        texts = pc.if_else(ascii_only, texts, pa.scalar(None, pa.binary())).cast(pa.string())
        if self.time_format in UNITS:
            valid = pc.match_substring_regex(texts, NUMBER)
            return pc.if_else(valid, texts, pa.scalar(None, pa.string())).cast(pa.int64())
        times = pc.strptime(texts, format=self.time_format, unit="s", error_is_null=True)
        real = pc.equal(pc.strftime(times, format=self.time_format), texts)  # 30 February is read as 1 March
        return pc.if_else(real, times, pa.scalar(None, times.type)).cast(pa.int64())

    def _write(self, times: pa.Array, shift: int) -> pa.Array:
        if self.time_format in UNITS:
            by: Any = shift * 1000 if self.time_format == "ns" else shift // int(UNITS[self.time_format])
            return pc.add(times, by).cast(pa.string())
        return pc.strftime(pc.add(times, shift // SECOND).cast(pa.timestamp("s")), format=self.time_format)
