"""The records that a task rejects, each with a reason and its original text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import repeat
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import can_cast, cast_or_null, is_text, to_python
from riot_ops.core.errors import escape_surrogates, value_text
from riot_ops.core.schema import EARLIEST, ERRORS, LATEST, TIMESTAMP

__all__ = ["RejectedRecords", "json_text", "records_as_json"]

ENCODER = msgspec.json.Encoder()
#: Types that the encoder writes without conversion.
_ENCODED = {str, int, type(None)}
#: Python's text of floats that JSON writes differently.
_SPECIAL_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "None": "null"}
#: Up to this many records are written one by one: a call of Arrow costs more than that.
MAX_ROWWISE = 256
#: Types whose ``str()`` appears in JSON.
PRINTABLE = (bool, int, float, Decimal, date, time, timedelta)


class RejectedRecords:
    """Collects the records that a task rejects, with reason and original text.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> errors = RejectedRecords("check")
    >>> batch = pa.RecordBatch.from_pydict({"seq": [7, 8], "value": [1.0, -999.0]})
    >>> errors.reject(batch, np.array([False, True]), "out_of_range", "value = -999 is below 0")
    >>> errors.count
    1
    >>> row = errors.take()[0].to_pylist()[0]
    >>> row["seq"], row["reason"], row["raw"]
    (8, 'out_of_range', '{"seq": 8, "value": -999.0}')
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self.count: int = 0
        self._rejected: list[_Rejected] = []

    def reject(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[Any],
        reason: str,
        message: str | Sequence[str] | pa.StringArray,
        raw: pa.Array | None = None,
    ) -> None:
        """Reject rows of a batch.

        Parameters
        ----------
        rows : array of bool or of int
            Mask of the rejected rows, or their indices.
        reason : str
            Short stable code, such as ``malformed``.
        message : str, sequence of str or array of text
            Description of the problem: one text for all rejected rows, or one for each.
        raw : array, optional
            Original text of *all* rows of the batch; by default the whole record as JSON.
        """
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        if index.size == 0:
            return
        n = int(index.size)
        self.count += n
        last = self._rejected[-1] if self._rejected else None
        if last is None or last.batch is not batch or last.raw is not raw:
            last = _Rejected(batch, raw, [], [], [])
            self._rejected.append(last)
        last.rows.append(index)
        last.reasons.extend([escape_surrogates(str(reason))] * n)
        if isinstance(message, pa.Array):
            last.messages.append(message)
            return
        if not last.messages or isinstance(last.messages[-1], pa.Array):
            last.messages.append([])
        if isinstance(message, str):
            last.messages[-1].extend([escape_surrogates(message)] * n)
        else:
            last.messages[-1].extend(message if "".join(message).isascii() else map(escape_surrogates, message))

    def take(self) -> list[pa.RecordBatch]:
        """Return the collected records as batches of the errors stream, and clear the collector."""
        if not self._rejected:
            return []
        rejected, self._rejected = self._rejected, []
        return [self._errors(group) for group in rejected]

    def _errors(self, group: _Rejected) -> pa.RecordBatch:
        rows = pa.array(np.concatenate(group.rows))
        records = group.batch.take(rows)
        columns = [
            _numbers(records),
            _times(records),
            pa.repeat(pa.scalar(self.task, pa.string()), len(rows)),
            pa.array(group.reasons, pa.string()),
            pa.concat_arrays([m if isinstance(m, pa.Array) else pa.array(m, pa.string()) for m in group.messages]),
            records_as_json(records) if group.raw is None else _as_text(group.raw.take(rows)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ERRORS)


class _Rejected(NamedTuple):
    """The rejected rows of one batch, for one reason or several; they become one batch of errors."""

    batch: pa.RecordBatch
    raw: pa.Array | None
    rows: list[npt.NDArray[Any]]
    reasons: list[str]
    #: Lists of Python texts, and Arrow arrays of text.
    messages: list[Any]


def json_text(record: Any) -> str:
    """Write a record, or a value of one, as JSON; never raises for any value.

    >>> json_text({"device": b"ok", "value": {1}})
    '{"device": "ok", "value": "{1} (set)"}'
    """
    try:
        return escape_surrogates(json.dumps(record, default=_plain, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):  # keys that are not text, cycles, endless nesting
        return escape_surrogates(value_text(record))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value) if isinstance(value, PRINTABLE) else value_text(value)


def _numbers(batch: pa.RecordBatch) -> pa.Array:
    return _column_or_nulls(batch, "seq", pa.int64())


def _times(batch: pa.RecordBatch) -> pa.Array:
    """Return the event times; null if outside the range of Python's ``datetime``."""
    column = _column_or_nulls(batch, "event_time", TIMESTAMP)
    if column.null_count == len(column) or _all_in_range(column):
        return column
    numbers = column.cast(pa.int64())
    known = pc.and_(pc.greater_equal(numbers, EARLIEST), pc.less_equal(numbers, LATEST))
    return pc.if_else(known, column, pa.scalar(None, TIMESTAMP))


def _all_in_range(times: pa.Array) -> bool:
    """Whether all times that are not null are in the range of Python's ``datetime``."""
    if not times.null_count and len(times):
        micros = np.frombuffer(times.buffers()[1], np.int64, len(times), 8 * times.offset)
        return bool(micros.min() >= EARLIEST and micros.max() <= LATEST)
    lowest, highest = pc.min_max(times.view(pa.int64())).values()
    return not lowest.is_valid or (lowest.as_py() >= EARLIEST and highest.as_py() <= LATEST)


def _column_or_nulls(batch: pa.RecordBatch, name: str, dtype: pa.DataType) -> pa.Array:
    """Return a column of the batch cast to a type; nulls if it is missing or cannot be cast."""
    place = batch.schema.get_field_index(name)
    if place >= 0 and batch.column(place).type == dtype:
        return batch.column(place)
    if place < 0 or not can_cast(batch.schema.field(place).type, dtype):
        return pa.nulls(batch.num_rows, dtype)
    return cast_or_null(batch.column(place), dtype)


def _as_text(column: pa.Array) -> pa.Array:
    """Convert a column to text; bytes that are not UTF-8 are escaped."""
    return pa.array(
        [None if v is None else v if isinstance(v, str) else _plain(v) for v in to_python(column)], pa.string()
    )


def records_as_json(batch: pa.RecordBatch) -> pa.Array:
    """Write each record of a batch as JSON.

    >>> records_as_json(pa.RecordBatch.from_pydict({"seq": [7], "payload": [b"a,b"]})).to_pylist()
    ['{"seq": 7, "payload": "a,b"}']
    """
    names = batch.schema.names
    if len(set(names)) < len(names) or not names:
        columns = [to_python(column) for column in batch.columns]
        rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
        return pa.array([json_text(dict(zip(names, row, strict=True))) for row in rows], pa.string())
    parts: list[Any] = ["{"]  # columns of texts, and between them the text that all records share
    for place, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
        parts[-1] += f"{', ' if place else ''}{json.dumps(escape_surrogates(name), ensure_ascii=False)}: "
        if column.null_count == len(column):
            parts[-1] += "null"
        else:
            parts += [_tokens(column), ""]
    parts[-1] += "}"
    if len(parts) == 1:
        return pa.array(parts * batch.num_rows, pa.string())
    if batch.num_rows > MAX_ROWWISE:
        return pc.binary_join_element_wise(*(pa.array(p, pa.string()) if isinstance(p, list) else p for p in parts), "")
    texts = [repeat(part) if isinstance(part, str) else part for part in parts]
    return pa.array(map("".join, zip(*texts)), pa.string())  # noqa: B905 (repeat() is endless)


def _tokens(column: pa.Array) -> Any:
    """Write the values as JSON; in large columns Arrow or NumPy converts numbers and times, the common types."""
    dtype, few = column.type, len(column) <= MAX_ROWWISE
    if pa.types.is_integer(dtype):
        if few:
            return ["null" if value is None else str(value) for value in column.to_pylist()]
        texts = column.cast(pa.string())
        return texts.fill_null("null") if column.null_count else texts
    if dtype == TIMESTAMP and _all_in_range(column):
        return _time_tokens(column)
    if pa.types.is_binary(dtype):
        with contextlib.suppress(pa.ArrowInvalid):  # invalid UTF-8 is handled value by value below
            column = column.cast(pa.string())
    values = to_python(column)
    if pa.types.is_float64(dtype):
        return [_SPECIAL_FLOATS.get(text, text) for text in map(repr, values)]
    if not (is_text(dtype) or dtype == TIMESTAMP):
        return [json_text(value) for value in values]
    if not {*map(type, values)} <= _ENCODED:
        values = [value if type(value) in _ENCODED else _plain(value) for value in values]
    return ENCODER.encode_lines(values).decode().split("\n")[:-1]


def _time_tokens(column: pa.Array) -> list[str]:
    """Write times in Python's format; NumPy needs a fifth of the time of Python or Arrow."""
    micros = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
    if column.null_count:
        micros = np.where(column.is_valid().to_numpy(zero_copy_only=False), micros, 0)
    unit: Literal["us", "s"] = "us" if (micros % 1_000_000).any() else "s"
    texts = np.datetime_as_string(micros.view("datetime64[us]"), unit=unit).tolist()
    tokens = [f'"{text[:10]} {text[11:].removesuffix(".000000")}+00:00"' for text in texts]
    if column.null_count:
        known = column.is_valid().to_pylist()
        tokens = [token if there else "null" for token, there in zip(tokens, known, strict=True)]
    return tokens
