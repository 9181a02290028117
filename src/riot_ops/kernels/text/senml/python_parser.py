"""The reference parser of SenML messages, in plain Python: it decides what a message means, or why it is invalid.

It reads the few messages that the compiled scanners leave to it.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

import numpy as np

from riot_ops.core.errors import ParseError, RecordError, excerpt
from riot_ops.kernels.text.senml.columns import LENIENT, MAX_OFFSET, MAX_TIME, MIN_TIME, Columns, Plan

__all__ = [
    "EMPTY_MESSAGE",
    "BadRecord",
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
_OUTER = re.compile(r"(-?(?:0|[1-9][0-9]*)),[ \t\r\n]*(?=\{)")
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
    name: str | None
    value: float | None
    text: str | None
    unit: str | None


EMPTY_MESSAGE = Message(0, [], [], [], [])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_Literal, parse_int=_Literal, parse_constant=_refuse)


def _decode(data: bytes | None) -> tuple[str | None, dict[str, Any], list[dict[str, Any]]]:
    """``(time before the comma, the object, its records)`` of a message."""
    stripped = b"" if data is None else data.strip(_SPACE.encode())
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
    if not isinstance(document, dict):
        raise ParseError("the message is not a JSON object", text=body)
    records = document.get("e")
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise ParseError('the message has no list "e" of records', text=body)
    return (outer.group(1) if outer else None), document, records


def _name(record: dict[str, Any], base: str | None, concatenate: bool) -> str | None:
    name = record.get("n")
    if name is not None and (not isinstance(name, str) or isinstance(name, _Literal)):
        raise ParseError('a name "n" is not a text', text=str(name))
    if name is None:
        return base
    return base + name if concatenate and base is not None else name


def _base_name(document: dict[str, Any]) -> str | None:
    base = document.get("bn")
    if base is not None and (not isinstance(base, str) or isinstance(base, _Literal)):
        raise ParseError('the base name "bn" is not a text', text=str(base))
    return base


def _value(record: dict[str, Any]) -> Any:
    for key in ("v", "sv", "vb"):
        if record.get(key) is not None:
            return record[key]
    return None


def _text(value: Any, name: str | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise ParseError(f"{name} is a list or an object", text=str(value))
    return str(value)


def _number(value: Any, name: str | None, *, lenient: bool = False) -> float | None:
    """The number of a value, None if it is missing."""
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


def _time(value: Any, name: str, low: int, high: int) -> int | None:
    """Microseconds of a time in milliseconds, None if it is missing."""
    if isinstance(value, bool):
        raise RecordError(f"{name} = {value} is not a number", reason="not_a_number")
    number = _number(value, name)
    if number is None:
        return None
    text = value.strip(_SPACE)
    if not low - 1000 <= 1000 * number <= high + 1000:
        us = high + 1
    elif _INTEGER.fullmatch(text):
        us = 1000 * int(text)
    else:
        us = round(number * 1000)
    if not low <= us <= high:
        raise RecordError(f"{name} = {excerpt(text)} ms is outside the years 1 to 9999", reason="out_of_range")
    return us


def _unit(record: dict[str, Any], key: str) -> str | None:
    unit = record.get(key)
    if unit is not None and (not isinstance(unit, str) or isinstance(unit, _Literal)):
        raise ParseError(f'a unit "{key}" is not a text', text=str(unit))
    return unit


def _encode(value: Any) -> str:
    """Encode a decoded value as JSON, with numbers as in the message."""
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _base_time(outer: str | None, document: dict[str, Any]) -> int | None:
    base = _time(document.get("bt"), "bt", MIN_TIME, MAX_TIME)
    if base is None and outer is not None:
        base = _time(_Literal(outer), "the time before the comma", MIN_TIME, MAX_TIME)
    return base


def _offset(record: dict[str, Any]) -> int:
    return _time(record.get("t"), "t", -MAX_OFFSET, MAX_OFFSET) or 0


def _checked_sum(base: int, offset: int) -> int:
    if offset and not MIN_TIME <= base + offset <= MAX_TIME:
        raise RecordError("t: with the base time, the time is outside the years 1 to 9999", reason="out_of_range")
    return base + offset


def parse_message(data: bytes | None, wanted: tuple[str, ...], plan: Plan, fallback: int, *, alone: bool) -> Message:
    """Parse the wanted fields of a message, or raise :class:`RecordError`.

    ``fallback`` is the base time of a message without one. With ``alone``, an invalid record is listed as bad and its
    field is missing; otherwise the whole message is rejected.
    """
    outer, document, records = _decode(data)
    base_name = _base_name(document)
    by_name = {_name(record, base_name, bool(plan.concatenate)): record for record in records}
    base = _base_time(outer, document)
    base_unit = _unit(document, "bu") if plan.units else None
    identity = wanted[plan.identity]
    sensor = _text(_value(by_name.get(identity, {})), identity)
    if sensor is None or sensor.strip(_SPACE) in ("", "null"):
        raise RecordError(f"the message has no {identity}, which identifies the sensor", reason="missing_id")
    message = Message(
        fallback if base is None else base, [None] * plan.n_values, [None] * plan.n_texts, [0] * plan.n_times, []
    )
    for j, name in enumerate(wanted):
        record = by_name.get(name, {})
        try:
            value = _value(record)
            number = _number(value, name, lenient=plan.flags[j] == LENIENT) if plan.value_of[j] >= 0 else None
            text = _text(value, name) if plan.text_of[j] >= 0 else None
            offset = _offset(record) if j < plan.n_times else 0
            unit = _unit(record, "u") if plan.unit_of[j] >= 0 else None
            _checked_sum(message.base, offset)
        except RecordError as error:
            if not alone or j == plan.identity:
                raise
            message.bad.append(BadRecord(j, error, _encode(record)))
            continue
        if plan.value_of[j] >= 0:
            message.values[plan.value_of[j]] = number
        if plan.text_of[j] >= 0:
            message.texts[plan.text_of[j]] = text
        if plan.unit_of[j] >= 0:
            message.texts[plan.unit_of[j]] = base_unit if unit is None else unit
        if j < plan.n_times:
            message.offsets[j] = offset
    return message


def parse_records(
    data: bytes | None, fallback: int, *, concatenate: bool, units: bool, alone: bool
) -> tuple[str | None, list[Record], list[BadRecord]]:
    """Parse the base name and all records of a message; parameters as of :func:`parse_message`."""
    outer, document, records = _decode(data)
    base_name = _base_name(document)
    base = _base_time(outer, document)
    base = fallback if base is None else base
    base_unit = _unit(document, "bu") if units else None
    found, bad = [], []
    for k, record in enumerate(records):
        try:
            name, value = _name(record, base_name, concatenate), _value(record)
            number = _number(value, name, lenient=record.get("v") is None)
            unit = _unit(record, "u") if units else None
            time = _checked_sum(base, _offset(record))
            found.append(Record(k, time, name, number, _text(value, name), base_unit if unit is None else unit))
        except RecordError as error:
            if not alone:
                raise
            bad.append(BadRecord(k, error, _encode(record)))
    return base_name or None, found, bad


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
