"""Records as InfluxDB's line protocol: measurement, tags, fields and time."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from riot_ops.core.errors import RecordError, value_text
from riot_ops.core.json_rows import json_texts, plain_column

__all__ = ["DIVISORS", "encode_lines"]

#: By precision, how many nanoseconds a unit of time has.
DIVISORS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MAX_INTEGER = 2**63 - 1
#: Texts that names and tags cannot hold: a reader takes a backslash before these, or at the end, for an escape.
_AMBIGUOUS = re.compile(r"\\(?=[,= \\]|$)")
_BREAKS = re.compile(r"[\n\r\x00]")
#: Characters that get a backslash.
_MEASUREMENT, _KEY, _TEXT = ", ", ", =", '\\"'


def encode_lines(
    batch: pa.RecordBatch,
    measurements: str | Sequence[str | None],
    tags: Sequence[str],
    fields: Sequence[str],
    time: str | None,
    *,
    time_unit: str = "us",
    unsigned: bool = True,
) -> bytes:
    r"""Write each record as a line.

    A tag that is null or empty is left out, and so is a field that is null, NaN or infinite; a record without a field
    makes no line. Integers end in ``i``, unsigned ones in ``u``.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    measurements : str, or sequence of str
        The measurement of all records, or of each.
    tags, fields : sequence of str
        Columns.
    time : str or None
        Column with the time; a record without one gets that of the server.
    time_unit : "ns", "us", "ms" or "s", default "us"
        Unit of the times in the lines.
    unsigned : bool, default True
        Whether the server has unsigned integers; they are written as signed ones otherwise.

    Raises
    ------
    RecordError
        For a record that has no form in the protocol.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"room": ["a b"], "n": [7], "t": [21.5], "note": ['say "hi"']})
    >>> encode_lines(rows, ["air"], ["room"], ["n", "t", "note"], None).decode()
    'air,room=a\\ b n=7i,t=21.5,note="say \\"hi\\""\n'
    """
    parts: list[Any] = []
    if isinstance(measurements, str):
        parts.append(_name(measurements, "measurement", 0, _MEASUREMENT))
    else:
        parts.append(_escaped(pa.array(measurements, pa.string()), "measurement", _MEASUREMENT))
    for tag in tags:
        key = _name(tag, "tag", None, _KEY)
        parts.append(_escaped(_tag_texts(batch.column(tag)), tag, _KEY, f",{key}=").fill_null(""))
    values = [
        pc.binary_join_element_wise(f",{_name(field, 'field', None, _KEY)}=", texts, "").fill_null("")
        for field, texts in ((field, _values(batch.column(field), field, unsigned)) for field in fields)
    ]
    if not values:
        return b""
    written = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*values, ""), 1)
    times = "" if time is None else _times(batch.column(time), DIVISORS[time_unit])
    lines = pc.binary_join_element_wise(*parts, " ", written, times, "\n", "")
    kept = lines.filter(pc.not_equal(written, "")).cast(pa.binary())
    return pc.binary_join(pa.ListArray.from_arrays([0, len(kept)], kept), b"")[0].as_py()  # type: ignore[no-any-return]


def _escaped(texts: pa.Array, what: str, escaped: str, before: str = "") -> pa.Array:
    """Escape measurements, or tags; RecordError for one that has no form. Tags that are empty become null."""
    words = texts.dictionary_encode()
    found: list[str | None] = []
    for number, text in enumerate(words.dictionary.to_pylist()):
        if text or what == "measurement":
            try:
                found.append(before + _name(text, what, 0, escaped))
            except RecordError:
                row = pc.index(words.indices, pa.scalar(number, words.indices.type)).as_py()
                _name(text, what, row, escaped)
        else:
            found.append(None)
    if what == "measurement" and texts.null_count:
        _name(None, what, pc.index(texts.is_null(), pa.scalar(value=True)).as_py(), escaped)
    return pa.array(found, pa.string()).take(words.indices)


def _name(text: str | None, what: str, row: int | None, escaped: str) -> str:
    """Escape a measurement, a key or a tag; RecordError for a text that a reader would take for another."""
    where = "" if row is None else f" of record {row}"
    if not text:
        raise RecordError(f"the {what}{where} is empty")
    if what == "measurement" and text.startswith("#"):
        raise RecordError(
            f"{what}{where}: line protocol takes a line that begins with '#' for a comment, as in {value_text(text)}"
        )
    if "\\" in text and _AMBIGUOUS.search(text):
        raise RecordError(
            f"{what}{where}: line protocol has no form for a backslash before a comma, '=', a space, a backslash or "
            f"the end, as in {value_text(text)}"
        )
    if not text.isprintable() and _BREAKS.search(text):
        raise RecordError(f"{what}{where}: line protocol has no form for a line break, as in {value_text(text)}")
    for character in escaped:
        text = text.replace(character, f"\\{character}")
    return text


def _tag_texts(column: pa.Array) -> pa.Array:
    if types.is_boolean(column.type) or types.is_integer(column.type) or types.is_dictionary(column.type):
        return column.cast(pa.string())
    return _texts(column)


def _texts(column: pa.Array) -> pa.Array:
    """Return values as text."""
    if types.is_string(column.type) or types.is_large_string(column.type):
        return column.cast(pa.string())
    return pa.array([None if v is None else _plain_text(v) for v in plain_column(column).to_pylist()], pa.string())


def _values(column: pa.Array, field: str, unsigned: bool) -> pa.Array:
    """Return the text of each value; null for those that are left out."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    dtype = column.type
    if types.is_boolean(dtype) or types.is_decimal(dtype):
        return column.cast(pa.string())
    if types.is_integer(dtype) or types.is_duration(dtype):
        if types.is_uint64(dtype) and not unsigned and (high := pc.max(column).as_py() or 0) > MAX_INTEGER:
            raise RecordError(f"field {field!r}: version 1 has no form for integers from 2^63 on, got {high}")
        suffix = "u" if types.is_unsigned_integer(dtype) and unsigned else "i"
        return pc.binary_join_element_wise(plain_column(column).cast(pa.string()), suffix, "")
    if types.is_floating(dtype):  # the shortest text that gives the same number of its width
        if types.is_float16(dtype):
            column = column.cast(pa.float32())
        return pc.if_else(pc.is_finite(column), column, None).cast(pa.string())
    texts = _texts(json_texts(column) if types.is_nested(dtype) else column)
    for character, escape in (("\\", r"\\"), ('"', r"\"")):
        texts = pc.replace_substring(texts, character, escape)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _times(column: pa.Array, divisor: int) -> pa.Array:
    per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    scale = per_unit[column.type.unit] if types.is_timestamp(column.type) else None
    if scale is None:
        raise RecordError(f"the time has type {column.type} instead of a timestamp")
    numbers = column.cast(pa.int64())
    try:
        if scale >= divisor:
            numbers = pc.multiply_checked(numbers, scale // divisor)
        else:  # rounded down, before 1970 too
            numbers = pa.array(
                numbers.fill_null(0).to_numpy() // (divisor // scale), mask=numbers.is_null().to_numpy(False)
            )
        texts = numbers.cast(pa.string())
    except pa.ArrowInvalid:  # beyond 64 bits
        texts = pa.array([None if n is None else str(n * scale // divisor) for n in numbers.to_pylist()], pa.string())
    return pc.binary_join_element_wise(" ", texts, "").fill_null("")
