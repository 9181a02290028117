"""Names and keys of stored things, made from the fields of records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from string import Formatter
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError

__all__ = ["Template", "decode_key", "encode_key", "template"]

UNITS = {"": 1, "us": 1, "ms": 1_000, "s": 1_000_000}
#: What stays as it is in keys beside letters, digits and ``_.-~``.
PLAIN = "!$()*+,:;@[]"
#: As many as the longest 64-bit number has.
DIGITS = 20


def encode_key(value: str | bytes | int) -> str:
    """A value as part of a key: printable ASCII, in which nothing is forbidden to any store.

    Letters, digits and ``_.-~!$()*+,:;@[]`` stay; all else stands as ``=`` and two hexadecimal digits
    per byte of UTF-8, so that ``|`` can separate values. Whole numbers get 20 digits, so that keys
    sort as their numbers do; a negative one is ``-`` and its distance from the lowest.

    >>> encode_key("a/b|ü"), encode_key(42), encode_key(-1) < encode_key(0)
    ('a=2Fb=7C=C3=BC', '00000000000000000042', True)
    """
    if isinstance(value, int):
        return f"{value:0{DIGITS}d}" if value >= 0 else f"-{10**DIGITS + value:0{DIGITS}d}"
    return quote(value, safe=PLAIN).replace("%", "=")


def decode_key(key: str) -> str:
    """The text that :func:`encode_key` was given, or the digits of the number.

    >>> decode_key("a=2Fb=7C=C3=BC")
    'a/b|ü'
    """
    return unquote(key.replace("=", "%"))


def _key_text(value: Any) -> str:
    return encode_key(value if isinstance(value, str | bytes | int) else str(value))


def _name_text(value: Any) -> str:
    # bytes that are no text give a name that no store accepts
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class Template:
    """Text with fields of a record in it: ``models/{stream}-{end:ms}.model``.

    ``{field}`` stands for the field's text; a time is the number of microseconds since 1970, and with
    ``{field:ms}`` or ``{field:s}`` of milliseconds or seconds. ``{{`` and ``}}`` are braces.

    Parameters
    ----------
    text : str
    key : bool
        Whether it makes keys, in which values are written by :func:`encode_key`, or names, in which
        they stand as they are.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"id": ["a|b", None], "n": [7, 8]})
    >>> Template("{n}|{id}", key=True).render(batch)
    ['00000000000000000007|a=7Cb', None]
    >>> Template("charts/{id}.svg").render(batch)
    ['charts/a|b.svg', None]
    """

    def __init__(self, text: str, *, key: bool = False) -> None:
        self.text = text
        self._write: Callable[[Any], str] = _key_text if key else _name_text
        self._parts: list[tuple[str, str | None, int]] = []
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigError(f"the template {text!r} is malformed: {error}") from None
        for literal, name, unit, conversion in parsed:
            if key and encode_key(literal.replace("|", "")) != literal.replace("|", ""):
                raise ConfigError(
                    f"the template {text!r} of a key may only have ASCII letters, digits and _.-~{PLAIN}| "
                    f"around its fields, got {literal!r}"
                )
            if name is not None and (not name or conversion or unit not in UNITS):
                raise ConfigError(
                    f"the template {text!r} is malformed: fields stand as {{name}}, or {{name:s}}, {{name:ms}}, "
                    "{name:us} for a time"
                )
            self._parts.append((literal, name, UNITS[unit or ""]))
        if not text:
            raise ConfigError("a template of names or keys must not be empty")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in it."""
        return tuple(dict.fromkeys(name for _, name, _ in self._parts if name is not None))

    def check(self, schema: pa.Schema) -> None:
        """Raise unless its fields have a text."""
        for name in self.fields:
            kind = schema.field(name).type
            if pa.types.is_nested(kind):
                raise ConfigError(f"the template {self.text!r} cannot show the field {name!r} of type {kind}")

    def render(self, batch: pa.RecordBatch) -> list[str | None]:
        """The text for each record; None where a field is null."""
        columns: list[list[str | None]] = []
        for literal, name, divisor in self._parts:
            columns.append([literal] * batch.num_rows)
            if name is not None:
                columns.append(self._texts(batch.column(name), divisor))
        return [None if None in parts else "".join(parts) for parts in zip(*columns, strict=True)]

    def _texts(self, column: pa.Array, divisor: int) -> list[str | None]:
        kind = column.type
        if pa.types.is_timestamp(kind):
            times = column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
            column = pa.array([None if t is None else t // divisor for t in times.to_pylist()], pa.int64())
        elif pa.types.is_boolean(kind):
            column = column.cast(pa.string())
        elif pa.types.is_floating(kind):
            column = pc.if_else(pc.is_nan(column), None, column)
        write = self._write
        return [None if value is None else write(value) for value in column.to_pylist()]


@functools.lru_cache(maxsize=256)
def template(text: str, key: bool = False) -> Template:
    """The template of a text, parsed once."""
    return Template(text, key=key)
