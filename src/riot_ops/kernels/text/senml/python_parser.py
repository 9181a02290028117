"""The reference parser of SenML messages, in plain Python: it decides what a message means, or why it is invalid.

It reads the few messages that the compiled scanners leave to it: packs of RFC 8428, which are arrays of records, and
objects with a list ``e`` of records, as in the drafts of that RFC. Base fields hold from the record that has them on.
"""

from __future__ import annotations

import decimal
import json
import re
from codecs import BOM_UTF8
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import numpy as np

from riot_ops.core.errors import ParseError, RecordError, excerpt
from riot_ops.kernels.text.senml.columns import (
    LENIENT,
    MAX_OFFSET,
    MAX_TIME,
    MIN_TIME,
    RELATIVE_BELOW,
    SECONDS,
    Columns,
    Plan,
)

__all__ = [
    "EMPTY_MESSAGE",
    "BadRecord",
    "Dialect",
    "Message",
    "Record",
    "parse_message",
    "parse_records",
    "write_message",
]

MAX_DEPTH = 32

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OUTER = re.compile(r"(-?(?:0|[1-9][0-9]*)),[ \t\r\n]*(?=[{\[])")
_BASE_FIELDS = frozenset({"bn", "bt", "bu", "bv", "bs", "bver"})
_OWN_FIELDS = frozenset({"n", "u", "v", "vs", "sv", "vb", "vd", "s", "t", "ut"})
#: The newest version of the format that is understood, see RFC 8428, section 4.4.
_VERSION = 10
#: Digits of the sum of a base value and a value.
_EXACT = decimal.Context(prec=40)
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F])|.)")


class _Literal(str):
    """A number as its text."""


class BadRecord(NamedTuple):
    """An invalid record of a message."""

    place: int  # of its field among the wanted fields, or of the record in the message
    error: RecordError
    raw: str


class Message(NamedTuple):
    """The content of a message, by column as in :class:`Columns`."""

    base: int
    values: list[float | None]
    texts: list[str | None]
    offsets: list[int]
    bad: list[BadRecord]


class Record(NamedTuple):
    """A record of a message, with its absolute time in microseconds."""

    place: int
    time: int
    sensor: str | None
    name: str | None
    value: float | None
    text: str | None
    unit: str | None
    total: float | None


class Dialect(NamedTuple):
    """How messages are read: microseconds per unit of their times, and whether units are wanted."""

    micros: int
    units: bool


class Entry(NamedTuple):
    """A record with the base fields that hold for it."""

    place: int
    record: dict[str, Any]
    base_name: str | None
    base_time: int | None
    base_unit: str | None
    base_value: Any
    base_sum: Any


EMPTY_MESSAGE = Message(0, [], [], [], [])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_Literal, parse_int=_Literal, parse_constant=_refuse)


def _decode(data: bytes | None) -> tuple[str | None, dict[str, Any], list[dict[str, Any]]]:
    """``(time before the comma, base fields before the first record, records)`` of a message."""
    stripped = b"" if data is None else data.removeprefix(BOM_UTF8).strip(_SPACE.encode())
    if not stripped:
        raise RecordError("the message is empty", reason="empty")
    try:
        text = stripped.decode()
    except UnicodeDecodeError as error:
        raise RecordError(
            f"the message is not UTF-8: {error.reason} at byte {error.start}", reason="invalid_utf8"
        ) from None
    outer = _OUTER.match(text)
    body = text[outer.end() :] if outer else text
    depth = deepest = 0
    brackets = body if body.count("[") + body.count("{") > MAX_DEPTH else ""  # otherwise it cannot be too deep
    for character in _STRINGS.sub("", brackets):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    if deepest > MAX_DEPTH:
        raise RecordError(f"the message is nested {deepest} deep; at most {MAX_DEPTH} is allowed", reason="too_deep")
    try:
        document = _DECODER.decode(body)
    except ValueError as error:
        what = getattr(error, "msg", str(error))
        raise ParseError(f"the message is not JSON ({what})", offset=getattr(error, "pos", -1), text=body) from None
    if "\\u" in body and any(found.group(1) for found in _ESCAPES.finditer(body)):
        raise ParseError("the message has an unpaired surrogate", text=body)
    packed = isinstance(document, list)
    if not packed and not isinstance(document, dict):
        raise ParseError("the message is neither a JSON array nor an object", text=body)
    records = document if packed else document.get("e")
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        where = "the array has something that is not a record" if packed else 'the message has no list "e" of records'
        raise ParseError(where, text=body)
    if packed and not records:
        raise ParseError("the array has no records", text=body)
    return (outer.group(1) if outer else None), ({} if packed else document), records


def _is_plain_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not isinstance(value, _Literal))


def _entries(document: dict[str, Any], records: list[dict[str, Any]], dialect: Dialect) -> tuple[Entry, list[Entry]]:
    """The base fields before the first record, and each record with its base fields, unless it has nothing else."""
    top = entry = _with_base(Entry(-1, document, None, None, None, None, None), dialect)
    found = []
    for k, record in enumerate(records):
        entry = _with_base(entry._replace(place=k, record=record), dialect)
        if not _OWN_FIELDS.isdisjoint(record) or _BASE_FIELDS.isdisjoint(record):
            found.append(entry)
    return top, found


def _with_base(entry: Entry, dialect: Dialect) -> Entry:
    """Take over the base fields of the record of an entry, or raise :class:`RecordError`."""
    record = entry.record
    for key in record:
        if key.endswith("_") and (key.startswith("b") or entry.place < 0):
            raise _not_understood(key)
    if record.keys().isdisjoint(_BASE_FIELDS):
        return entry
    if not _is_plain_text(name := record.get("bn")):
        raise ParseError('the base name "bn" is not a text', text=str(name))
    time = _time(record.get("bt"), "bt", MIN_TIME, MAX_TIME, dialect.micros)
    unit = _unit(record, "bu") if dialect.units else None
    if (version := record.get("bver")) is not None and not (
        isinstance(version, _Literal) and _INTEGER.fullmatch(version) and 0 < float(version) <= _VERSION
    ):
        raise ParseError(f'the version "bver" must be from 1 to {_VERSION}', text=str(version))
    for key in ("bv", "bs"):
        _number(record.get(key), key)
    return entry._replace(
        base_name=entry.base_name if name is None else name,
        base_time=entry.base_time if time is None else time,
        base_unit=entry.base_unit if unit is None else unit,
        base_value=record.get("bv", entry.base_value),
        base_sum=record.get("bs", entry.base_sum),
    )


def _not_understood(key: str) -> ParseError:
    return ParseError(f"the field {excerpt(key)!r} must be understood, since its name ends with _", text=key)


def _check_fields(record: dict[str, Any]) -> None:
    for key in record:
        if key.endswith("_"):
            raise _not_understood(key)


def _name(entry: Entry, concatenate: bool) -> str | None:
    name = entry.record.get("n")
    if not _is_plain_text(name):
        raise ParseError('a name "n" is not a text', text=str(name))
    if name is None:
        return entry.base_name
    return entry.base_name + str(name) if concatenate and entry.base_name is not None else str(name)


def _value(entry: Entry) -> Any:
    """Return the value of a record: its number plus the base value, else its text, boolean or data."""
    record = entry.record
    for key in ("v", "vs", "sv", "vb", "vd"):
        if (value := record.get(key)) is not None:
            return _plus(value, entry.base_value) if key == "v" else value
    return None


def _is_data(entry: Entry) -> bool:
    """Whether the value of a record is base64 data, which is never a number."""
    record = entry.record
    return record.get("vd") is not None and all(record.get(key) is None for key in ("v", "vs", "sv", "vb"))


def _plus(value: Any, base: Any) -> Any:
    """Return the sum of two numbers, in decimals; ``value`` if there is no base, or one of them is no finite number."""
    texts = [str(part).strip(_SPACE) if isinstance(part, str) else "" for part in (value, base)]
    if not all(_NUMBER.fullmatch(text) and abs(float(text)) < float("inf") for text in texts):
        return value
    return _Literal(_EXACT.add(Decimal(texts[0]), Decimal(texts[1])))


def _sum(entry: Entry) -> Any:
    own = entry.record.get("s")
    return entry.base_sum if own is None else _plus(own, entry.base_sum)


def _text(value: Any, name: str | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise ParseError(f"{name} is a list or an object", text=str(value))
    return str(value)


def _number(value: Any, name: str | None, *, lenient: bool = False) -> float | None:
    """Return the number of a value, None if it is missing."""
    if value is None:
        return None
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = value.strip(_SPACE)
        if text in ("", "null"):
            return None
        if _NUMBER.fullmatch(text):
            number = float(text)
            if abs(number) <= 1.7976931348623157e308:
                return number
            if lenient:
                return None
            raise RecordError(f"{name} = {excerpt(text)} is beyond the range of float64", reason="out_of_range")
    if lenient:
        return None
    raise RecordError(f"{name} = {excerpt(repr(value))} is not a number", reason="not_a_number")


def _time(value: Any, name: str, low: int, high: int, micros: int = 1000) -> int | None:
    """Return the microseconds of a time in units of ``micros`` microseconds, None if it is missing."""
    if isinstance(value, bool):
        raise RecordError(f"{name} = {value} is not a number", reason="not_a_number")
    number = _number(value, name)
    if number is None:
        return None
    text = value.strip(_SPACE)
    if not low - 1000 <= micros * number <= high + 1000:
        us = high + 1
    elif _INTEGER.fullmatch(text):
        us = micros * int(text)
    else:
        us = round(number * micros)
    if not low <= us <= high:
        unit = 's is outside the years 1 to 9999; milliseconds need time_unit="ms"'
        if micros != SECONDS:
            unit = "ms is outside the years 1 to 9999"
        raise RecordError(f"{name} = {excerpt(text)} {unit}", reason="out_of_range")
    return us


def _unit(record: dict[str, Any], key: str) -> str | None:
    unit = record.get(key)
    if not _is_plain_text(unit):
        raise ParseError(f'a unit "{key}" is not a text', text=str(unit))
    return None if unit is None else str(unit)


def _encode(value: Any) -> str:
    """Encode a decoded value as JSON, with numbers as in the message."""
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _now(outer: str | None, fallback: int) -> int:
    """Return the time of a message that has none: the time before the comma, else the fallback."""
    before = None if outer is None else _time(_Literal(outer), "the time before the comma", MIN_TIME, MAX_TIME)
    return fallback if before is None else before


def _offset(record: dict[str, Any], micros: int) -> int:
    return _time(record.get("t"), "t", -MAX_OFFSET, MAX_OFFSET, micros) or 0


def _instant(base: int | None, offset: int, now: int, micros: int) -> int:
    """Return the time of a record: base time plus offset; in seconds, a sum below 2^28 s is relative to now."""
    if micros == SECONDS:
        time = (base or 0) + offset
        time += now if time < RELATIVE_BELOW else 0
    else:
        time = (now if base is None else base) + offset
    if not MIN_TIME <= time <= MAX_TIME:
        raise RecordError("t: with the base time, the time is outside the years 1 to 9999", reason="out_of_range")
    return time


def _checked_value(entry: Entry, *, sums: bool) -> Any:
    """Return the value of a record, or :class:`RecordError` if it has fields that are not read."""
    _check_fields(entry.record)
    for key in ("vs", "sv", "vd"):
        if not _is_plain_text(text := entry.record.get(key)):
            raise ParseError(f'the value "{key}" is not a text', text=_encode(text))
    if not isinstance(flag := entry.record.get("vb"), bool | None):
        raise ParseError('the value "vb" is not true or false', text=_encode(flag))
    value = _value(entry)
    if value is None and not sums and _sum(entry) is not None:
        raise ParseError('the record has a sum "s" and no value', text=_encode(entry.record))
    return value


def parse_message(data: bytes | None, wanted: tuple[str, ...], plan: Plan, fallback: int, *, alone: bool) -> Message:
    """Parse the wanted fields of a message, or raise :class:`RecordError`.

    ``fallback`` is the base time of a message without one. With ``alone``, an invalid record is listed as bad and its
    field is missing; otherwise the whole message is rejected.
    """
    outer, document, records = _decode(data)
    dialect = Dialect(plan.micros, bool(plan.units))
    top, entries = _entries(document, records, dialect)
    by_name = {_name(entry, bool(plan.concatenate)): entry for entry in entries}
    base = next((entry.base_time for entry in (top, *entries) if entry.base_time is not None), None)
    # with a base time in milliseconds, the time before the comma is not read
    now = fallback if base is not None and plan.micros != SECONDS else _now(outer, fallback)
    nothing = Entry(-1, {}, None, base, top.base_unit, None, None)
    identity = wanted[plan.identity]
    sensor = _text(_checked_value(by_name.get(identity, nothing), sums=False), identity)
    if sensor is None or sensor.strip(_SPACE) in ("", "null"):
        raise RecordError(f"the message has no {identity}, which identifies the sensor", reason="missing_id")
    start = _instant(base, 0, now, plan.micros)
    if base is None and plan.micros == SECONDS and not plan.n_times:
        start = max(_instant(e.base_time, _offset(e.record, plan.micros), now, plan.micros) for e in entries)
    message = Message(start, [None] * plan.n_values, [None] * plan.n_texts, [0] * plan.n_times, [])
    for j, name in enumerate(wanted):
        entry = by_name.get(name, nothing)
        try:
            value = _checked_value(entry, sums=False)
            lenient = plan.flags[j] == LENIENT
            number = None
            if plan.value_of[j] >= 0 and not (lenient and _is_data(entry)):
                number = _number([value] if _is_data(entry) else value, name, lenient=lenient)
            text = _text(value, name) if plan.text_of[j] >= 0 else None
            offset = 0
            if j < plan.n_times:
                offset = _instant(entry.base_time, _offset(entry.record, plan.micros), now, plan.micros) - start
            unit = _unit(entry.record, "u") if plan.unit_of[j] >= 0 else None
        except RecordError as error:
            if not alone or j == plan.identity:
                raise
            message.bad.append(BadRecord(j, error, _encode(entry.record)))
            continue
        if plan.value_of[j] >= 0:
            message.values[plan.value_of[j]] = number
        if plan.text_of[j] >= 0:
            message.texts[plan.text_of[j]] = text
        if plan.unit_of[j] >= 0:
            message.texts[plan.unit_of[j]] = entry.base_unit if unit is None else unit
        if j < plan.n_times:
            message.offsets[j] = offset
    return message


def parse_records(
    data: bytes | None, fallback: int, *, dialect: Dialect, concatenate: bool, sums: bool, alone: bool
) -> tuple[list[Record], list[BadRecord]]:
    """Parse all records of a message; parameters as of :func:`parse_message`."""
    outer, document, records = _decode(data)
    _, entries = _entries(document, records, dialect)
    timed = dialect.micros != SECONDS and all(entry.base_time is not None for entry in entries)
    now = fallback if timed else _now(outer, fallback)
    found, bad = [], []
    for entry in entries:
        try:
            name, value = _name(entry, concatenate), _checked_value(entry, sums=sums)
            number = None if _is_data(entry) else _number(value, name, lenient=entry.record.get("v") is None)
            unit = _unit(entry.record, "u") if dialect.units else None
            unit = entry.base_unit if unit is None else unit
            time = _instant(entry.base_time, _offset(entry.record, dialect.micros), now, dialect.micros)
            total = _number(_sum(entry), "s") if sums else None
            text = _text(value, name)
            found.append(Record(entry.place, time, entry.base_name or None, name, number, text, unit, total))
        except RecordError as error:
            if not alone:
                raise
            bad.append(BadRecord(entry.place, error, _encode(entry.record)))
    return found, bad


def write_message(columns: Columns, plan: Plan, i: int, message: Message, size: int, extra: bytearray) -> None:
    """Write a message to row i; its texts are appended to ``extra``, which follows the ``size`` bytes of the batch."""
    columns.base[i] = message.base
    for k in range(plan.n_values):
        value = message.values[k] if message.values else None
        columns.values[i * plan.n_values + k] = np.nan if value is None else value
        if value is None:
            columns.found[0] = 1
    for k in range(plan.n_texts):
        text = message.texts[k] if message.texts else None
        encoded = b"" if text is None else text.encode()
        columns.starts[i * plan.n_texts + k] = -1 if text is None else size + len(extra)
        columns.lengths[i * plan.n_texts + k] = len(encoded)
        extra += encoded
    for k in range(plan.n_times):
        offset = message.offsets[k] if message.offsets else 0
        columns.offsets[i * plan.n_times + k] = offset
        if offset:
            columns.found[1] = 1
