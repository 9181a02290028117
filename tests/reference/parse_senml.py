"""SenML parsing, one message at a time, with a separate JSON reader."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
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
    """A number with its digits unchanged."""

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
    wire = re.match(r"(-?(?:0|[1-9][0-9]*)),[ \t\r\n]*[{\[]", text)
    if wire:
        outer = wire.group(1)
        text = text[wire.end() - 1 :]
    if depth_of(text) > 32:
        raise Rejected("too_deep")
    reader = Reader(text)
    document = reader.value()
    reader.space()
    if reader.i == len(text) and isinstance(document, list) and document:
        document = {"e": document}
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


def micros_of(value: Any, low: int, high: int, per_unit: int = 1000) -> int | None:
    if isinstance(value, bool):
        raise Rejected("not_a_number")
    number = number_of(value, True)
    if number is None:
        return None
    text = (value.text if isinstance(value, Num) else value).strip(BLANK)
    if abs(number) > 1e15:
        raise Rejected("out_of_range")
    us = int(text) * per_unit if re.fullmatch("-?[0-9]+", text) else round(number * per_unit)
    if us < low or us > high:
        raise Rejected("out_of_range")
    return us


def unit_or_name(record: dict[str, Any], key: str) -> str | None:
    if record.get(key) is not None and not isinstance(record[key], str):
        raise Rejected("malformed")
    return record.get(key)


def with_bases(have: dict[str, Any], record: dict[str, Any], top: bool, unit: float, units: bool) -> dict[str, Any]:
    """The base fields after this record."""
    if any(key.endswith("_") and (top or key.startswith("b")) for key in record):
        raise Rejected("malformed")
    new = {"bn": unit_or_name(record, "bn"), "bt": micros_of(record.get("bt"), FIRST_US, LAST_US, unit)}
    new["bu"] = unit_or_name(record, "bu") if units else None
    version = record.get("bver")
    if version is not None and not (isinstance(version, Num) and version.text in map(str, range(1, 11))):
        raise Rejected("malformed")
    for key in ("bv", "bs"):
        number_of(record.get(key), True)
        new[key] = record.get(key)
    return {key: have.get(key) if value is None else value for key, value in new.items()}


def plus(value: Any, base: Any) -> Any:
    texts = [x.text if isinstance(x, Num) else x if isinstance(x, str) else "" for x in (value, base)]
    texts = [text.strip(BLANK) for text in texts]
    if not all(NUMBER.fullmatch(text) and abs(float(text)) < float("inf") for text in texts):
        return value
    with localcontext(prec=40):
        return Num(str(Decimal(texts[0]) + Decimal(texts[1])))


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
    seconds: bool = False,
) -> dict[str, Any]:
    """Sensor and, per ``(name, kind)`` of the fields, ``(time, value, text, unit)``.

    With ``alone`` a field whose record is bad has the reason in its place.
    """
    outer, document = read(payload)
    per_unit = 1_000_000 if seconds else 1000
    bases = with_bases({}, document, True, per_unit, units)
    top = bases
    records = {}
    first = bases["bt"]
    inner = []
    for record in document["e"]:
        bases = with_bases(bases, record, False, per_unit, units)
        own = set(record) & {"n", "u", "v", "vs", "sv", "vb", "vd", "s", "t", "ut"}
        if not own and set(record) & {"bn", "bt", "bu", "bv", "bs", "bver"}:
            continue
        inner.append((record, bases))
        first = bases["bt"] if first is None else first
    for record, bases in inner:
        records[name_of(record, bases["bn"], concatenate)] = (record, bases)
    now = fallback
    if outer is not None and (first is None or seconds):
        now = micros_of(Num(outer), FIRST_US, LAST_US) or 0

    def time_of(record: dict[str, Any], bases: dict[str, Any]) -> int:
        t = micros_of(record.get("t"), FIRST_US - LAST_US, LAST_US - FIRST_US, per_unit) or 0
        if seconds:
            at = (bases["bt"] or 0) + t
            at = at + now if at < 2**28 * 1_000_000 else at
        else:
            at = t + (now if bases["bt"] is None else bases["bt"])
        if not FIRST_US <= at <= LAST_US:
            raise Rejected("out_of_range")
        return at

    def value_of(name: str) -> tuple[Any, bool]:
        record, bases = records.get(name, ({}, top))
        if any(key.endswith("_") for key in record):
            raise Rejected("malformed")
        for key, kind in (("vs", str), ("sv", str), ("vd", str), ("vb", bool)):  # RFC 8428, table 1
            if record.get(key) is not None and not isinstance(record[key], kind):
                raise Rejected("malformed")
        for key in ("v", "vs", "sv", "vb", "vd"):
            if record.get(key) is not None:
                return (plus(record[key], bases["bv"]) if key == "v" else record[key]), key == "vd"
        if record.get("s") is not None or (record and bases["bs"] is not None):
            raise Rejected("malformed")
        return None, False

    sensor = text_of(value_of(id_field)[0])
    if sensor is None or sensor.strip(BLANK) in ("", "null"):
        raise Rejected("missing_id")
    start = time_of({}, {"bt": first})

    def observation(name: str, kind: str) -> tuple[Any, ...]:
        value, data = value_of(name)
        if data and kind == "v":
            raise Rejected("not_a_number")
        number = None if data else number_of(value, kind == "v")
        text = text_of(value) if kind == "sv" or raw else None
        record, bases = records.get(name, ({}, {**top, "bt": first}))
        at = time_of(record, bases) if times else start
        unit = unit_or_name(record, "u") if units else None
        return at, number, text, bases["bu"] if unit is None else unit

    observations: list[Any] = []
    for name, kind in fields:
        try:
            observations.append(observation(name, kind))
        except Rejected as error:
            if not alone or name == id_field:  # without that there is nothing
                raise
            observations.append(error.reason)
    return {"sensor": sensor, "base": start, "observations": observations}
