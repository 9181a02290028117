"""A SenML message from the fields of a CSV line, by the rules of the specification."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}(?::[0-9]{2})?)(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
BLANK = " \t"


def milliseconds(text: str) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    match = ISO.fullmatch(text)
    if match is None:
        return None
    day, minutes, seconds, fraction, offset = match.groups()
    if minutes and len(minutes) == 2:  # hours alone
        minutes += ":00"
    shift = timedelta()
    if offset and offset != "Z":
        hours, minute = int(offset[1:3]), int(offset[4:])
        if hours > 23 or minute > 59:
            return None
        shift = timedelta(hours=hours, minutes=minute) * (-1 if offset[0] == "-" else 1)
    try:
        moment = datetime.strptime(f"{day} {minutes or '00:00'}:{seconds or '00'}+0000", "%Y-%m-%d %H:%M:%S%z")
    except ValueError:
        return None
    if (seconds or "00") > "59":
        return None
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return whole + int(((fraction or "") + "000")[:3]) - shift // timedelta(milliseconds=1)


def message(
    fields: list[str], names: tuple[str, ...], units: tuple[str, ...], kinds: tuple[str, ...], time_field: str
) -> dict[str, Any] | str:
    """Return the message, with all digits of its numbers, or the reason of a rejection."""
    if len(fields) != len(names):
        return "wrong_columns"
    entries = []
    time = None
    for text, name, unit, kind in zip(fields, names, units, kinds, strict=True):
        bare = text.strip(BLANK)
        if bare in ("", "null"):
            continue
        if name == time_field:
            time = milliseconds(bare)
        elif kind == "v" and NUMBER.fullmatch(bare) and abs(Decimal(bare)) < Decimal("1e308"):
            entries.append({"n": name, "u": unit, "v": Decimal(bare)})
        else:
            entries.append({"n": name, "u": unit, "sv": text})
    return "bad_time" if time is None else {"e": entries, "bt": time}
