"""SenML parsing, one message at a time, with a separate JSON reader."""

from __future__ import annotations

import re
from typing import Any

BLANK = " \t\r\n"
FIRST_US, LAST_US = -62135596800000000, 253402300799999999
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Rejected(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Num:
    """A number as it is written in the text."""

    def __init__(self, text: str) -> None:
        self.text = text


class Reader:
    def __init__(self, text: str) -> None:
        self.text, self.i = text, 0

    def fail(self) -> Any:
        raise Rejected("malformed")

    def space(self) -> None:
        while self.i < len(self.text) and self.text[self.i] in BLANK:
            self.i += 1

    def take(self, what: str) -> bool:
        if self.text.startswith(what, self.i):
            self.i += len(what)
            return True
        return False

    def value(self) -> Any:
        self.space()
        for word, meaning in (("null", None), ("true", True), ("false", False)):
            if self.take(word):
                return meaning
        if self.take('"'):
            return self.string()
        if self.take("["):
            return self.items("]", self.value)
        if self.take("{"):
            return dict(self.items("}", self.member))
        found = NUMBER.match(self.text, self.i)
        if not found:
            self.fail()
        self.i = found.end()
        return Num(found.group())

    def member(self) -> tuple[str, Any]:
        self.space()
        if not self.take('"'):
            self.fail()
        key = self.string()
        self.space()
        if not self.take(":"):
            self.fail()
        return key, self.value()

    def items(self, close: str, one: Any) -> list[Any]:
        found: list[Any] = []
        self.space()
        if self.take(close):
            return found
        while True:
            found.append(one())
            self.space()
            if self.take(close):
                return found
            if not self.take(","):
                self.fail()

    def string(self) -> str:
        units = []
        while True:
            if self.i >= len(self.text):
                self.fail()
            c = self.text[self.i]
            self.i += 1
            if c == '"':
                break
            if c < " ":
                self.fail()
            if c == "\\":
                e = self.text[self.i : self.i + 1]
                self.i += 1
                if e == "u":
                    digits = self.text[self.i : self.i + 4]
                    if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                        self.fail()
                    c = chr(int(digits, 16))
                    self.i += 4
                elif e in ESCAPES and e:
                    c = ESCAPES[e]
                else:
                    self.fail()
            units.append(c)
        try:
            return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self.fail()
        return ""


def depth_of(text: str) -> int:
    depth = deepest = i = 0
    while i < len(text):
        if text[i] == '"':
            i += 1
            while i < len(text) and text[i] != '"':
                i += 2 if text[i] == "\\" else 1
        elif text[i] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif text[i] in "]}":
            depth -= 1
        i += 1
    return deepest


def read(payload: bytes | None) -> tuple[str | None, dict[str, Any]]:
    if payload is None or not payload.strip(BLANK.encode()):
        raise Rejected("empty")
    try:
        text = payload.decode().strip(BLANK)
    except UnicodeDecodeError:
        raise Rejected("invalid_utf8") from None
    outer = None
    wire = re.match(r"(-?(?:0|[1-9][0-9]*)),[ \t\r\n]*\{", text)
    if wire:
        outer = wire.group(1)
        text = text[wire.end() - 1 :]
    if depth_of(text) > 32:
        raise Rejected("too_deep")
    reader = Reader(text)
    document = reader.value()
    reader.space()
    if reader.i != len(text) or not isinstance(document, dict):
        raise Rejected("malformed")
    e = document.get("e")
    if not isinstance(e, list) or not all(isinstance(r, dict) for r in e):
        raise Rejected("malformed")
    return outer, document


def text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Num):
        return value.text
    raise Rejected("malformed")


def number_of(value: Any, strict: bool) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, (str, Num)):
        text = (value.text if isinstance(value, Num) else value).strip(BLANK)
        if text == "" or text == "null":
            return None
        if NUMBER.fullmatch(text):
            number = float(text)
            if number not in (float("inf"), float("-inf")):
                return number
            if strict:
                raise Rejected("out_of_range")
            return None
    if strict:
        raise Rejected("not_a_number")
    return None


def micros_of(value: Any, low: int, high: int) -> int | None:
    if isinstance(value, bool):
        raise Rejected("not_a_number")
    number = number_of(value, True)
    if number is None:
        return None
    text = (value.text if isinstance(value, Num) else value).strip(BLANK)
    if abs(number) > 1e15:
        raise Rejected("out_of_range")
    us = int(text) * 1000 if re.fullmatch("-?[0-9]+", text) else round(number * 1000)
    if us < low or us > high:
        raise Rejected("out_of_range")
    return us


def name_of(record: dict[str, Any], bn: str | None, concatenate: bool) -> str | None:
    n = record.get("n")
    if n is None:
        return bn
    if not isinstance(n, str):
        raise Rejected("malformed")
    return (bn or "") + n if concatenate else n


def parse(
    payload: bytes | None,
    fallback: int,
    *,
    fields: list[tuple[str, str]],
    id_field: str,
    concatenate: bool = False,
    times: bool = True,
    alone: bool = False,
    raw: bool = False,
    units: bool = False,
) -> dict[str, Any]:
    """Sensor and, per ``(name, kind)`` of the fields, ``(time, value, text, unit)``.

    With ``alone`` a field whose record is bad has the reason in its place.
    """
    outer, document = read(payload)
    bn = document.get("bn")
    if bn is not None and not isinstance(bn, str):
        raise Rejected("malformed")
    records = {}
    for record in document["e"]:
        records[name_of(record, bn, concatenate)] = record
    base = micros_of(document.get("bt"), FIRST_US, LAST_US)
    if base is None and outer is not None:
        base = micros_of(Num(outer), FIRST_US, LAST_US)

    def value_of(name: str) -> Any:
        record = records.get(name, {})
        for key in ("v", "sv", "vb"):
            if record.get(key) is not None:
                return record[key]
        return None

    sensor = text_of(value_of(id_field))
    if sensor is None or sensor.strip(BLANK) in ("", "null"):
        raise Rejected("missing_id")
    start = fallback if base is None else base
    base_unit = document.get("bu") if units else None
    if base_unit is not None and not isinstance(base_unit, str):
        raise Rejected("malformed")

    def observation(name: str, kind: str) -> tuple[Any, ...]:
        value = number_of(value_of(name), kind == "v")
        text = text_of(value_of(name)) if kind == "sv" or raw else None
        t = 0
        if times:
            t = micros_of(records.get(name, {}).get("t"), FIRST_US - LAST_US, LAST_US - FIRST_US) or 0
        unit = records.get(name, {}).get("u") if units else None
        if unit is not None and not isinstance(unit, str):
            raise Rejected("malformed")
        if t and not FIRST_US <= start + t <= LAST_US:
            raise Rejected("out_of_range")
        return start + t, value, text, base_unit if unit is None else unit

    observations: list[Any] = []
    for name, kind in fields:
        try:
            observations.append(observation(name, kind))
        except Rejected as error:
            if not alone or name == id_field:  # without that there is nothing
                raise
            observations.append(error.reason)
    return {"sensor": sensor, "base": start, "observations": observations}
