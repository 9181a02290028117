"""How files of text write numbers and times: decimal commas, formats of times, local times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.castable import is_naive, valid_utf8
from riot_ops.core.casting import Problem, cast_or_null, problems_of, to_python
from riot_ops.core.errors import ConfigError, value_text

__all__ = ["Ambiguous", "Notation"]

types = pa.types
Mask = npt.NDArray[np.bool_]
Problems = dict[int, Problem]
Ambiguous = Literal["reject", "earliest", "latest"]

MICROS = pa.timestamp("us")
UTC_MICROS = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Notation:
    """Converts texts to the declared types, where these are written otherwise than a cast reads them.

    Parameters
    ----------
    decimal : "." or ","
        Decimal mark of numbers; with a comma a point is not one.
    time_format : str, optional
        Format of times, as for :meth:`datetime.datetime.strptime`; by default ISO 8601.
    tz : str, optional
        Time zone of times without one, by its IANA name; by default UTC.
    ambiguous : "reject", "earliest" or "latest"
        Meaning of a local time that occurs twice, when clocks are set back. A time that does not occur is rejected.
    thousands : str, optional
        Separator of the digits of a number in groups of two or three, the last one of three.
    """

    decimal: str = "."
    time_format: str | None = None
    tz: str | None = None
    ambiguous: Ambiguous = "reject"
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ConfigError(f"decimal must be '.' or ',', got {self.decimal!r}")
        mark = self.thousands
        if mark is not None and (
            not isinstance(mark, str) or len(mark) != 1 or mark.isalnum() or mark in f'+-"\r\n{self.decimal}'
        ):
            raise ConfigError(
                f"thousands must be one character other than a letter, a digit, a sign, a quote, a line break and the "
                f"decimal mark, got {mark!r}"
            )
        if self.ambiguous not in ("reject", "earliest", "latest"):
            raise ConfigError(f"ambiguous must be 'reject', 'earliest' or 'latest', got {self.ambiguous!r}")
        if self.ambiguous != "reject" and self.tz is None:
            raise ConfigError("ambiguous is for local times; give their tz as well")
        if self.tz is not None:
            try:
                pc.assume_timezone(pa.array([0], MICROS), self.tz)
            except (pa.ArrowException, TypeError):
                raise ConfigError(f"tz must be the IANA name of a time zone, got {self.tz!r}") from None
        if self.time_format is not None:
            try:
                text = datetime(2024, 2, 29, 13, 5, 9, tzinfo=UTC).strftime(self.time_format)
                datetime.strptime(text, self.time_format)  # noqa: DTZ007 (whether it can be parsed)
            except (ValueError, TypeError):
                raise ConfigError(
                    f"time_format must be a format of datetime.strptime, such as '%d.%m.%Y %H:%M', "
                    f"got {self.time_format!r}"
                ) from None

    def concerns(self, dtype: pa.DataType) -> bool:
        """Whether it reads texts of a declared type otherwise than a cast does."""
        if types.is_timestamp(dtype):
            return self.time_format is not None or (self.tz is not None and dtype.tz is not None)
        if types.is_date(dtype):
            return self.time_format is not None
        fractional = types.is_floating(dtype) or types.is_decimal(dtype)
        return (self.decimal != "." and fractional) or (
            self.thousands is not None and (fractional or types.is_integer(dtype))
        )

    def convert(self, text: pa.Array, dtype: pa.DataType) -> tuple[pa.Array, Problems]:
        """Convert texts to a type that it concerns; those that cannot be converted are null and have a problem."""
        given, text = text, _utf8(text)
        if types.is_temporal(dtype):
            result, problems = self._times(text, dtype)
            return result, {**_problems(given, result, dtype), **problems}
        text = self._without_thousands(text)
        if self.decimal == ",":
            text = pc.if_else(pc.match_substring(text, "."), pa.scalar(None, text.type), text)
            text = pc.replace_substring(text, ",", ".")
        result = cast_or_null(text, dtype)
        return result, _problems(given, result, dtype)

    def _without_thousands(self, text: pa.Array) -> pa.Array:
        """Return numbers without separators of thousands; null where these are at other places than between groups."""
        if self.thousands is None:
            return text
        mark, point = re.escape(self.thousands), re.escape(self.decimal)
        number = rf"^\s*[+-]?[1-9]\d{{0,2}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}(?:{point}\d*)?(?:[eE][+-]?\d+)?\s*$"
        wrong = pc.and_not(pc.match_substring(text, self.thousands), pc.match_substring_regex(text, number))
        return pc.replace_substring(pc.if_else(wrong, pa.scalar(None, text.type), text), self.thousands, "")

    def _times(self, text: pa.Array, dtype: pa.DataType) -> tuple[pa.Array, Problems]:
        trimmed = pc.utf8_trim_whitespace(text)
        zoned = types.is_timestamp(dtype) and dtype.tz is not None
        unit = "us" if self.time_format is not None or types.is_date(dtype) else dtype.unit
        utc = pa.timestamp(unit, "UTC")
        if self.time_format is None:
            naive = pa.array(is_naive(trimmed))
            missing = pa.scalar(None, text.type)
            local = cast_or_null(pc.if_else(naive, trimmed, missing), pa.timestamp(unit))
            absolute = cast_or_null(pc.if_else(naive, missing, trimmed), utc)
        else:
            local, absolute = _parsed(trimmed, self.time_format)
        problems: Problems = {}
        if self.tz is not None and zoned:
            local, problems = self._localized(text, local, self.tz)
        found = pc.coalesce(local.cast(utc), absolute)
        result = found.cast(MICROS).cast(dtype, safe=False) if types.is_date(dtype) else cast_or_null(found, dtype)
        return result, problems

    def _localized(self, text: pa.Array, local: pa.Array, tz: str) -> tuple[pa.Array, Problems]:
        """Convert local times to times in UTC."""
        utc = pa.timestamp(local.type.unit, "UTC")
        first = pc.assume_timezone(local, tz, ambiguous="earliest", nonexistent="earliest").cast(pa.int64())
        last = pc.assume_timezone(local, tz, ambiguous="latest", nonexistent="latest").cast(pa.int64())
        apart = pc.subtract(last, first).fill_null(0).to_numpy(zero_copy_only=False)
        bad = apart == 1  # the last unit before a gap, and the first one after it
        missing = np.flatnonzero(bad)
        twice = np.flatnonzero(apart > 1) if self.ambiguous == "reject" else np.empty(0, np.int64)
        bad[twice] = True
        chosen = last if self.ambiguous == "latest" else first
        result = pc.if_else(pa.array(bad), pa.scalar(None, pa.int64()), chosen).cast(utc)
        problems = {}
        for rows, reason, what in (
            (missing, "no_such_time", "does not occur"),
            (twice, "ambiguous_time", "occurs twice"),
        ):
            values = text.take(pa.array(rows)).to_pylist()
            for row, value in zip(rows.tolist(), values, strict=True):
                problems[row] = Problem(reason, f"= {value_text(value)} {what} in {tz}")
        return result, problems


def _utf8(text: pa.Array) -> pa.Array:
    """Return the texts, with null in place of those that are no UTF-8."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pc.if_else(pa.array(valid_utf8(text)), text, pa.scalar(None, text.type))
    return text


def _problems(text: pa.Array, result: pa.Array, dtype: pa.DataType) -> Problems:
    """Describe the texts that have no result."""
    rows = np.flatnonzero(np.asarray(result.is_null()) & np.asarray(text.is_valid()))
    return problems_of(rows.tolist(), to_python(text.take(pa.array(rows))), dtype)


def _parsed(text: pa.Array, form: str) -> tuple[pa.Array, pa.Array]:
    """Parse times in a format, as Python's ``strptime`` does: ``(local, absolute)``; one of them is null."""
    times = pa.nulls(len(text), pa.timestamp("s"))
    same = pa.array(np.zeros(len(text), np.bool_))
    if "%z" not in form and "%Z" not in form:
        times = pc.strptime(text, format=form, unit="s", error_is_null=True)
        # Arrow takes the 31st of all months, and reads less than Python
        same = pc.equal(pc.strftime(times, format=form), text).fill_null(False)
    local = pc.if_else(same, times, pa.scalar(None, times.type)).cast(MICROS)
    rest = np.flatnonzero(~np.asarray(same) & np.asarray(text.is_valid()))
    if not rest.size:
        return local, pa.nulls(len(text), UTC_MICROS)
    values: list[Any] = [_strptime(value, form) for value in text.take(pa.array(rest)).to_pylist()]
    here, there = [None] * len(text), [None] * len(text)
    for row, value in zip(rest.tolist(), values, strict=True):
        if value is not None:
            (here if value.tzinfo is None else there)[row] = value
    return pc.coalesce(local, pa.array(here, MICROS)), pa.array(there, UTC_MICROS)


def _strptime(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007 (the caller adds the zone)
    except (ValueError, OverflowError):
        return None
