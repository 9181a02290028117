"""Records as InfluxDB's line protocol: measurement, tags, fields and time."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
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
_MEASUREMENT = str.maketrans({",": r"\,", " ": r"\ "})
_KEY = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})
_TEXT = str.maketrans({'"': r"\"", "\\": r"\\"})


def encode_lines(
    batch: pa.RecordBatch,
    measurements: Sequence[str | None],
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
    measurements : sequence of str
        The measurement of each record.
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
    parts = [[_name(text, "measurement", row, _MEASUREMENT) for row, text in enumerate(measurements)]]
    for tag in tags:
        key = _name(tag, "tag", None, _KEY)
        texts = enumerate(_tag_texts(batch.column(tag)))
        parts.append([f",{key}={_name(text, tag, row, _KEY)}" if text else "" for row, text in texts])
    columns = [(_name(field, "field", None, _KEY), _values(batch.column(field), field, unsigned)) for field in fields]
    times = [""] * batch.num_rows if time is None else _times(batch.column(time), DIVISORS[time_unit])
    series = ["".join(one) for one in zip(*parts, strict=True)]
    lines = []
    for row, (head, stamp) in enumerate(zip(series, times, strict=True)):
        written = ",".join([f"{key}={values[row]}" for key, values in columns if values[row] is not None])
        if written:
            lines.append(f"{head} {written}{stamp}\n")
    return "".join(lines).encode()


def _name(text: str | None, what: str, row: int | None, escapes: dict[int, str]) -> str:
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
    return text.translate(escapes)


def _tag_texts(column: pa.Array) -> list[str | None]:
    if types.is_boolean(column.type) or types.is_integer(column.type) or types.is_dictionary(column.type):
        column = column.cast(pa.string())
    return [None if v is None else _plain_text(v) for v in plain_column(column).to_pylist()]


def _values(column: pa.Array, field: str, unsigned: bool) -> list[str | None]:
    """Return the text of each value; None for those that are left out."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    dtype = column.type
    write: Callable[[Any], str | None]
    if types.is_boolean(dtype):
        write = _flag
    elif types.is_unsigned_integer(dtype) and unsigned:
        write = "{}u".format
    elif types.is_integer(dtype) or types.is_duration(dtype):
        write = _integer if types.is_uint64(dtype) else "{}i".format
    elif types.is_float64(dtype):
        write = _float
    elif types.is_floating(dtype):  # the shortest text that gives the same number of its width
        numbers = column.to_numpy(zero_copy_only=False)
        return [str(v) if math.isfinite(v) else None for v in numbers.astype(np.float32)]
    elif types.is_decimal(dtype):
        write = str
    else:
        write = _quoted
        if types.is_nested(dtype):
            column = json_texts(column)
    try:
        return [None if v is None else write(v) for v in plain_column(column).to_pylist()]
    except RecordError as error:
        raise RecordError(f"field {field!r}: {error}") from None


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _integer(value: int) -> str:
    if value > MAX_INTEGER:
        raise RecordError(f"version 1 has no form for integers from 2^63 on, got {value}")
    return f"{value}i"


def _float(value: float) -> str | None:
    return repr(value) if math.isfinite(value) else None


def _quoted(value: Any) -> str:
    return f'"{_plain_text(value).translate(_TEXT)}"'


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _times(column: pa.Array, divisor: int) -> list[str]:
    per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    scale = per_unit[column.type.unit] if types.is_timestamp(column.type) else None
    if scale is None:
        raise RecordError(f"the time has type {column.type} instead of a timestamp")
    numbers = column.cast(pa.int64()).to_pylist()
    return ["" if n is None else f" {n * scale // divisor}" for n in numbers]
