"""Dates and times in text to microseconds since 1970."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, byte, digits_of, eight_digits, load8

__all__ = [
    "MEMO",
    "NONE",
    "parse_epoch",
    "parse_instant",
    "parse_iso",
    "parse_log_time",
    "parse_tweet_time",
    "plain_iso",
    "plain_log_time",
]

_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
#: The limits of int64; as nanoseconds, in microseconds and the nanoseconds after; and more microseconds than any time.
_MIN, _MAX = -(2**63), 2**63 - 1
_MIN_TENTH = -(2**63 // 10)
_MIN_MICROS, _MIN_NANOS = divmod(_MIN, 1000)
_MAX_MICROS, _MAX_NANOS = divmod(_MAX, 1000)
_BEYOND = 10**18
_DAYS_IN = readonly(np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64))
#: English abbreviations of months as 24-bit numbers.
_MONTHS = readonly(
    np.array(
        [a << 16 | b << 8 | c for a, b, c in zip(*[iter(b"JanFebMarAprMayJunJulAugSepOctNovDec")] * 3, strict=True)]
    )
)


#: The same of weekdays, from Monday.
_WEEKDAYS = readonly(
    np.array([a << 16 | b << 8 | c for a, b, c in zip(*[iter(b"MonTueWedThuFriSatSun")] * 3, strict=True)])
)


@kernel
def _month(data: Any, i: Any) -> Any:
    """Return the month of an English abbreviation; 13 if it is none."""
    name = byte(data, i) << 16 | byte(data, i + 1) << 8 | byte(data, i + 2)
    month = 1
    while month <= 12 and _MONTHS[month - 1] != name:
        month += 1
    return month


@kernel
def _two(data: Any, i: Any) -> Any:
    """Parse two digits; -1 if they are not digits."""
    tens = byte(data, i) - 48
    ones = byte(data, i + 1) - 48
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return -1
    return 10 * tens + ones


@kernel
def _midnight(year: Any, month: Any, day: Any) -> Any:
    """``(ok, microseconds)`` at the beginning of a day of the proleptic Gregorian calendar."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return False, 0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS_IN[month] and not (leap and month == 2 and day == 29):
        return False, 0
    y = year - 1 if month <= 2 else year  # years counted from March
    m = month + 9 if month <= 2 else month - 3
    return True, (365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 719469) * _DAY


@kernel
def _clock(hour: Any, minute: Any, second: Any) -> Any:
    """``(ok, microseconds)`` since midnight."""
    ok = hour >= 0 and hour <= 23 and minute >= 0 and minute <= 59 and second >= 0 and second <= 59
    return ok, hour * _HOUR + minute * _MINUTE + second * _SECOND


@kernel
def _zone(data: Any, p: Any, end: Any) -> Any:
    """``(ok, microseconds ahead of UTC)`` of ``Z``, ``±hh:mm``, ``±hhmm``, ``±hh`` or nothing."""
    n = end - p
    if n == 0:
        return True, 0
    sign = byte(data, p)
    if n == 1:
        return sign == 90 or sign == 122, 0
    colon = n == 6 and byte(data, p + 3) == 58
    if not (colon or n == 5 or n == 3) or not (sign == 43 or sign == 45):
        return False, 0
    minute = 0 if n == 3 else _two(data, p + (4 if colon else 3))
    ok, ahead = _clock(_two(data, p + 1), minute, 0)
    return ok, ahead if sign == 43 else -ahead


@kernel
def parse_iso(data: Any, start: Any, end: Any) -> Any:
    """``(ok, microseconds, nanoseconds)`` of ``Y-M-D[(T| )h[:m[:s[(.|,)f…]]][zone]]``.

    The nanoseconds, from 0 to 999, are those after the microsecond; digits below a nanosecond are cut off.
    """
    n = end - start
    if n < 10 or byte(data, start + 4) != 45 or byte(data, start + 7) != 45:
        return False, 0, 0
    century, year = _two(data, start), _two(data, start + 2)
    if century < 0 or year < 0:
        return False, 0, 0
    ok, time = _midnight(100 * century + year, _two(data, start + 5), _two(data, start + 8))
    if not ok or n == 10:
        return ok, time, 0
    mark = byte(data, start + 10)
    if n < 13 or (mark != 84 and mark != 32 and mark != 116):
        return False, 0, 0
    minute, second, nanos = 0, 0, 0
    p = start + 13
    if p + 3 <= end and byte(data, p) == 58:
        minute = _two(data, p + 1)
        p += 3
        if p + 3 <= end and byte(data, p) == 58:
            second = _two(data, p + 1)
            p += 3
            if p < end and (byte(data, p) == 46 or byte(data, p) == 44):
                p += 1
                first = p
                scale = 1000 * _SECOND // 10
                while p < end:
                    d = byte(data, p) - 48
                    if d < 0 or d > 9:
                        break
                    nanos += scale * d
                    scale //= 10
                    p += 1
                if p == first:
                    return False, 0, 0
    ok, clock = _clock(_two(data, start + 11), minute, second)
    known, ahead = _zone(data, p, end)
    return ok and known, time + clock + nanos // 1000 - ahead, nanos % 1000


@kernel
def parse_instant(data: Any, start: Any, end: Any) -> Any:
    """``(ok, nanoseconds)`` since 1970 of an ISO 8601 time as :func:`parse_iso` reads it, or of a whole number of them.

    Not ok if that exceeds int64.
    """
    if end - start >= 10 and byte(data, start + 4) == 45:
        ok, time, nanos = parse_iso(data, start, end)
        low = time < _MIN_MICROS or (time == _MIN_MICROS and nanos < _MIN_NANOS)
        high = time > _MAX_MICROS or (time == _MAX_MICROS and nanos > _MAX_NANOS)
        return (True, 1000 * time + nanos) if ok and not (low or high) else (False, 0)
    p = start
    negative = p < end and byte(data, p) == 45
    if negative or (p < end and byte(data, p) == 43):
        p += 1
    ok = p < end
    value = 0  # negative, as there is one more negative number
    while p < end:
        d = byte(data, p) - 48
        if d < 0 or d > 9 or value < _MIN_TENTH or (value == _MIN_TENTH and d > 8):
            return False, 0
        value = 10 * value - d
        p += 1
    if negative:
        return ok, value
    return ok and value > _MIN, -value


@kernel
def parse_epoch(data: Any, start: Any, end: Any, unit: Any) -> Any:
    """``(ok, microseconds)`` of a decimal number of units since 1970, rounded down.

    A unit has ``unit`` microseconds; 0 means nanoseconds, which must be in int64. Any larger number of the other
    units gives a time after the year 9999, or before the year 1.
    """
    p = start
    negative = p < end and byte(data, p) == 45
    if negative or (p < end and byte(data, p) == 43):
        p += 1
    per = max(unit, 1)
    limit = _BEYOND // per if unit else _MAX
    value = 0
    first = p
    exact = True
    while p < end:
        d = byte(data, p) - 48
        if d < 0 or d > 9:
            break
        exact = exact and value <= (limit - d) // 10
        value = 10 * value + d if exact else limit
        p += 1
    ok = p > first and (exact or unit > 0)
    below = 0  # microseconds in the fraction
    rest = False  # whether there is more in it
    if p < end and byte(data, p) == 46:
        p += 1
        first = p
        scale = unit // 10
        while p < end:
            d = byte(data, p) - 48
            if d < 0 or d > 9:
                break
            below += scale * d
            rest = rest or (d > 0 and scale == 0)
            scale //= 10
            p += 1
        ok = ok and p > first
    if p < end:
        ok = False
    if unit:
        micros = value * per + below
        return ok, -micros - int(rest) if negative else micros
    if negative:
        value = -value - int(rest)
    return ok, value // 1000


@kernel
def parse_log_time(data: Any, start: Any, end: Any) -> Any:
    """``(ok, microseconds)`` of ``day/Mon/year:h:m:s ±hhmm``, the format of web server logs."""
    if end - start != 26 or byte(data, start + 20) != 32:
        return False, 0
    if byte(data, start + 2) != 47 or byte(data, start + 6) != 47 or byte(data, start + 11) != 58:
        return False, 0
    century, year = _two(data, start + 7), _two(data, start + 9)
    if century < 0 or year < 0 or byte(data, start + 14) != 58 or byte(data, start + 17) != 58:
        return False, 0
    ok, time = _midnight(100 * century + year, _month(data, start + 3), _two(data, start))
    good, clock = _clock(_two(data, start + 12), _two(data, start + 15), _two(data, start + 18))
    known, ahead = _zone(data, start + 21, end)
    return ok and good and known, time + clock - ahead


@kernel
def parse_tweet_time(data: Any, start: Any, end: Any) -> Any:
    """``(ok, microseconds)`` of ``Wed Oct 10 20:19:24 +0000 2018``, the time of a tweet in version 1.1 of its API."""
    if end - start != 30:
        return False, 0
    for i in (3, 7, 10, 19, 25):
        if byte(data, start + i) != 32:
            return False, 0
    century, year = _two(data, start + 26), _two(data, start + 28)
    if century < 0 or year < 0 or byte(data, start + 13) != 58 or byte(data, start + 16) != 58:
        return False, 0
    ok, time = _midnight(100 * century + year, _month(data, start + 4), _two(data, start + 8))
    weekday = byte(data, start) << 16 | byte(data, start + 1) << 8 | byte(data, start + 2)
    ok = ok and _WEEKDAYS[(time // _DAY + 3) % 7] == weekday
    good, clock = _clock(_two(data, start + 11), _two(data, start + 14), _two(data, start + 17))
    known, ahead = _zone(data, start + 20, start + 25)
    return ok and good and known, time + clock - ahead


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text.ljust(8, b"\0"), "little"))


#: Layouts of dates and times as words: zeros for digits with the separators, and masks of the separators.
_DATE, _DATE_MARKS = _word(b"0000-00-"), _word(b"\0\0\0\0\xff\0\0\xff")
_TIME, _TIME_MARKS = _word(b"00\x0000:00"), _word(b"\0\0\0\0\0\xff")
_SECONDS, _SECONDS_MARKS = _word(b":00"), _word(b"\xff")
#: The second word of a date without a time, after its first two bytes: midnight.
_MIDNIGHT = _word(b"\0\0T00:00")
_CLOCK, _CLOCK_MARKS = _word(b"00:00:00"), _word(b"\0\0\xff\0\0\xff")
_T, _BLANK, _BYTE = np.uint64(ord("t")), np.uint64(32), np.uint64(0xFF)
_U8, _U16, _U32, _U48 = np.uint64(8), np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16, _LOW24, _LOW32 = np.uint64(0xFFFF), np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFF)
_NOUGHT = np.uint64(0)
#: Size of the cache that :func:`plain_iso` and :func:`plain_log_time` keep between calls.
MEMO = 8
#: An empty cache entry: no text has these bytes.
NONE = np.uint64(0xFFFFFFFFFFFFFFFF)
_TENS = 10 ** np.arange(7)


@kernel
def _pairs(digits: Any) -> Any:
    """Combine digits pairwise: each byte becomes the two-digit number that begins there."""
    return digits * np.uint64(10) + (digits >> _U8)


@kernel
def _byte_of(word: Any, i: Any) -> Any:
    return np.int64((word >> np.uint64(8 * i)) & _BYTE)


@kernel(inline=True)
def _plain_seconds(data: Any, start: Any, n: Any) -> Any:
    """``(ok, microseconds)`` of ``:s[.f…]`` of n bytes, with up to six digits; 12 bytes must be readable."""
    s = (load8(data, start) & _LOW24) ^ _SECONDS
    if n < 3 or n == 4 or n > 10 or (digits_of(s) & HIGH) | (s & _SECONDS_MARKS) != _NOUGHT:
        return False, 0
    rest = 0
    if n > 3:
        if byte(data, start + 3) != 46:
            return False, 0
        good, rest = eight_digits(load8(data, start + 4), n - 4)
        if not good:
            return False, 0
        rest *= _TENS[10 - n]
    second = _byte_of(_pairs(s), 1)
    return second <= 59, second * _SECOND + rest


@kernel(inline=True)
def plain_iso(data: Any, start: Any, n: Any, memo: Any) -> Any:
    """``(ok, microseconds)`` of ``Y-M-D[(T| )h:m:s[.f…]]`` of n bytes, with up to six digits.

    Not ok only means that the text does not have this form. ``memo`` caches the last minute and the last day, as text
    and as time, because most lines are of the minute of the line before; it has :data:`MEMO` numbers, :data:`NONE` at
    first. 28 bytes from the start must be readable.
    """
    first, second = load8(data, start), load8(data, start + 8)
    seconds = 0
    if n != 10:
        ok, seconds = _plain_seconds(data, start + 16, n - 16)
        if not ok:
            return False, 0
        if first == memo[0] and second == memo[1]:
            return True, np.int64(memo[2]) + seconds
    d = first ^ _DATE
    t = (second & _LOW16) | _MIDNIGHT if n == 10 else second
    mark = (t >> _U16) & _BYTE
    t = (t & ~(_BYTE << _U16)) ^ _TIME
    wrong = ((digits_of(d) | digits_of(t)) & HIGH) | (d & _DATE_MARKS) | (t & _TIME_MARKS)
    if wrong != _NOUGHT or (mark != _BLANK and (mark | _BLANK) != _T):
        return False, 0
    today = d | ((t & _BYTE) << _U32) | ((t & (_BYTE << _U8)) << _U48)  # in place of the dashes
    if today != memo[3]:
        years, months = _pairs(d), _pairs(t)
        ok, midnight = _midnight(100 * _byte_of(years, 0) + _byte_of(years, 2), _byte_of(years, 5), _byte_of(months, 0))
        if not ok:
            return False, 0
        memo[3] = today
        memo[4] = np.uint64(np.int64(midnight))
    t = _pairs(t)
    ok, minute = _clock(_byte_of(t, 3), _byte_of(t, 6), 0)
    minute += np.int64(memo[4])
    if ok and n != 10:
        memo[0] = first
        memo[1] = second
        memo[2] = np.uint64(np.int64(minute))
    return ok, minute + seconds


#: The most frequent end of a log time, after the seconds.
_UTC = _word(b"\0\0 +0000")


@kernel(inline=True)
def plain_log_time(data: Any, start: Any, n: Any, memo: Any) -> Any:
    """``(ok, microseconds)`` of ``day/Mon/year:h:m:s +0000``.

    Not ok only means that the text does not have this form. ``memo`` is the cache of :func:`plain_iso`, here of the
    last day, as most lines are of the day of the line before. 26 bytes from the start must be readable.
    """
    date, year = load8(data, start), load8(data, start + 8) & _LOW32
    t = load8(data, start + 12) ^ _CLOCK
    if n != 26 or (load8(data, start + 18) & ~_LOW16) != _UTC or (t & _CLOCK_MARKS) | (digits_of(t) & HIGH) != _NOUGHT:
        return False, 0
    if date != memo[5] or year != memo[6]:
        ok, midnight = parse_log_time(data, start, start + n)
        if not ok:
            return False, 0
        memo[5] = date
        memo[6] = year
        memo[7] = np.uint64(np.int64(midnight - midnight % _DAY))
    t = _pairs(t)
    ok, clock = _clock(_byte_of(t, 0), _byte_of(t, 3), _byte_of(t, 6))
    return ok, np.int64(memo[7]) + clock
