"""Templates for the names and keys of stored objects, filled with the fields of records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, RecordError

__all__ = ["Template", "decode_key", "encode_key", "render_keys", "template"]

UNITS = {"": 1, "us": 1, "ms": 1_000, "s": 1_000_000}
#: Characters that keys contain unescaped, besides letters, digits and ``_.-~``.
SAFE_CHARACTERS = "!$()*+,:;@[]"
#: Digits of the longest 64-bit number.
DIGITS = 20


def encode_key(value: str | bytes | int) -> str:
    """Encode a value as part of a key: printable ASCII that every store accepts.

    Letters, digits and ``_.-~!$()*+,:;@[]`` are unchanged; each byte of any other character in UTF-8 becomes ``=`` and
    two hexadecimal digits, so that ``|`` can separate values. Whole numbers get 20 digits, so that keys sort like their
    numbers; a negative number is ``-`` and its distance from the lowest.

    >>> encode_key("a/b|ü"), encode_key(42), encode_key(-1) < encode_key(0)
    ('a=2Fb=7C=C3=BC', '00000000000000000042', True)
    """
    if isinstance(value, int):
        return f"{value:0{DIGITS}d}" if value >= 0 else f"-{10**DIGITS + value:0{DIGITS}d}"
    return quote(value, safe=SAFE_CHARACTERS).replace("%", "=")


def decode_key(key: str) -> str:
    """Decode the text that :func:`encode_key` encoded; a number is returned as its digits.

    >>> decode_key("a=2Fb=7C=C3=BC")
    'a/b|ü'
    """
    return unquote(key.replace("=", "%"))


def _key_text(value: Any) -> str:
    return encode_key(value if isinstance(value, str | bytes | int) else str(value))


def _name_text(value: Any) -> str:
    # bytes that are not UTF-8 give a name that no store accepts
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class Template:
    """A text with fields of a record in it, such as ``models/{stream}-{end:ms}.model``.

    ``{field}`` is replaced by the text of the field; a time by the number of microseconds since 1970, or with
    ``{field:ms}`` and ``{field:s}`` of milliseconds and seconds. ``{{`` and ``}}`` are braces.

    Parameters
    ----------
    text : str
    key : bool, default False
        Whether it makes keys, whose values are encoded by :func:`encode_key`; otherwise names with unchanged values.

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
                    f"the template {text!r} of a key may only have ASCII letters, digits and _.-~{SAFE_CHARACTERS}| "
                    f"around its fields, got {literal!r}"
                )
            if name is not None and (not name or conversion or unit not in UNITS):
                raise ConfigError(
                    f"the template {text!r} is malformed: fields are written {{name}}, or {{name:s}}, {{name:ms}}, "
                    "{name:us} for a time"
                )
            self._parts.append((literal, name, UNITS[unit or ""]))
        if not text:
            raise ConfigError("a template of names or keys must not be empty")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it contains."""
        return tuple(dict.fromkeys(name for _, name, _ in self._parts if name is not None))

    def check(self, schema: pa.Schema) -> None:
        """Raise unless its fields can be written as text."""
        for name in self.fields:
            dtype = schema.field(name).type
            if pa.types.is_nested(dtype):
                raise ConfigError(f"the template {self.text!r} cannot show the field {name!r} of type {dtype}")

    def render(self, batch: pa.RecordBatch) -> list[str | None]:
        """Return the text for each record; None if a field is null."""
        columns: list[list[str | None]] = []
        for literal, name, divisor in self._parts:
            columns.append([literal] * batch.num_rows)
            if name is not None:
                columns.append(self._texts(batch.column(name), divisor))
        return [None if None in parts else "".join(parts) for parts in zip(*columns, strict=True)]

    def _texts(self, column: pa.Array, divisor: int) -> list[str | None]:
        dtype = column.type
        if pa.types.is_timestamp(dtype):
            times = column.cast(pa.timestamp("us", tz=dtype.tz), safe=False).cast(pa.int64())
            column = pa.array([None if t is None else t // divisor for t in times.to_pylist()], pa.int64())
        elif pa.types.is_boolean(dtype):
            column = column.cast(pa.string())
        elif pa.types.is_floating(dtype):
            column = pc.if_else(pc.is_nan(column), None, column)
        write = self._write
        return [None if value is None else write(value) for value in column.to_pylist()]


@functools.lru_cache(maxsize=256)
def template(text: str, key: bool = False) -> Template:
    """Return the template of a text, parsed once."""
    return Template(text, key=key)


def render_keys(
    batch: pa.RecordBatch, templates: Sequence[tuple[str, Template]], failures: dict[int, RecordError]
) -> list[tuple[str, ...]]:
    """Render templates, each beside its text, for each record; record a failure where a text is null."""
    columns = [one.render(batch) for _, one in templates]
    rows: list[tuple[str, ...]] = []
    for i, texts in enumerate(zip(*columns, strict=True)):
        if None in texts:
            missing, _ = templates[texts.index(None)]
            failures[i] = RecordError(f"a field of {missing!r} is null", reason="missing_key")
        rows.append(texts)
    return rows
