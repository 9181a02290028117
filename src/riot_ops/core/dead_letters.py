"""Records that a task rejects, with reason and original text."""

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

from riot_ops.core.casting import cast, castable, cells, is_text
from riot_ops.core.errors import encodable, short
from riot_ops.core.schema import EARLIEST, ERRORS, LATEST, TIMESTAMP

__all__ = ["DeadLetters", "json_text", "records_as_json"]

ENCODER = msgspec.json.Encoder()
#: What the encoder takes as it is, and how JSON writes a float that Python writes so.
_ENCODED = {str, int, type(None)}
_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "None": "null"}
#: Records that are written one by one: of so few, each call of Arrow's costs more than they do.
FEW = 256
PRINTABLE = (bool, int, float, Decimal, date, time, timedelta)


class DeadLetters:
    """Collects the records that a task rejects, with reason and original text."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.count = 0
        self._rejected: list[_Rejected] = []

    def reject(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[Any],
        reason: str,
        message: str | Sequence[str] | pa.StringArray,
        raw: pa.Array | None = None,
    ) -> None:
        """Reject rows (a mask or indices) of a batch.

        Parameters
        ----------
        reason : str
            Short stable code, such as ``malformed``.
        message : str, sequence of str or array of text
            What was wrong, for all rows or for each.
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
        last.reasons.extend([encodable(str(reason))] * n)
        if isinstance(message, pa.Array):
            last.messages.append(message)
            return
        if not last.messages or isinstance(last.messages[-1], pa.Array):
            last.messages.append([])
        if isinstance(message, str):
            last.messages[-1].extend([encodable(message)] * n)
        else:
            last.messages[-1].extend(message if "".join(message).isascii() else map(encodable, message))

    def take(self) -> list[pa.RecordBatch]:
        """The collected records as batches of errors; the collector is empty afterwards."""
        if not self._rejected:
            return []
        rejected, self._rejected = self._rejected, []
        return [self._errors(one) for one in rejected]

    def _errors(self, one: _Rejected) -> pa.RecordBatch:
        rows = pa.array(np.concatenate(one.rows))
        picked = one.batch.take(rows)
        columns = [
            _numbers(picked),
            _times(picked),
            pa.repeat(pa.scalar(self.task, pa.string()), len(rows)),
            pa.array(one.reasons, pa.string()),
            pa.concat_arrays([m if isinstance(m, pa.Array) else pa.array(m, pa.string()) for m in one.messages]),
            records_as_json(picked) if one.raw is None else _as_text(one.raw.take(rows)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ERRORS)


class _Rejected(NamedTuple):
    """What has been rejected of a batch, for one reason or several, turned into errors all at once."""

    batch: pa.RecordBatch
    raw: pa.Array | None
    rows: list[npt.NDArray[Any]]
    reasons: list[str]
    #: In parts: texts of Python's, or of Arrow's.
    messages: list[Any]


def json_text(record: Any) -> str:
    """A record, or a value of one, as JSON, whatever it holds.

    >>> json_text({"device": b"ok", "value": {1}})
    '{"device": "ok", "value": "{1} (set)"}'
    """
    try:
        return encodable(json.dumps(record, default=_plain, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, a cycle, a depth without an end
        return encodable(short(record))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value) if isinstance(value, PRINTABLE) else short(value)


def _numbers(batch: pa.RecordBatch) -> pa.Array:
    return _known(batch, "seq", pa.int64())


def _times(batch: pa.RecordBatch) -> pa.Array:
    """The event times; null for those that no reader of the errors could hold."""
    column = _known(batch, "event_time", TIMESTAMP)
    if column.null_count == len(column) or _all_in_range(column):
        return column
    numbers = column.cast(pa.int64())
    known = pc.and_(pc.greater_equal(numbers, EARLIEST), pc.less_equal(numbers, LATEST))
    return pc.if_else(known, column, pa.scalar(None, TIMESTAMP))


def _all_in_range(times: pa.Array) -> bool:
    """Whether Python can hold all times that are there."""
    if not times.null_count and len(times):
        micros = np.frombuffer(times.buffers()[1], np.int64, len(times), 8 * times.offset)
        return bool(micros.min() >= EARLIEST and micros.max() <= LATEST)
    least, most = pc.min_max(times.view(pa.int64())).values()
    return not least.is_valid or (least.as_py() >= EARLIEST and most.as_py() <= LATEST)


def _known(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """A field of the batch, null where it is missing or of another kind."""
    place = batch.schema.get_field_index(name)
    if place >= 0 and batch.column(place).type == kind:
        return batch.column(place)
    if place < 0 or not castable(batch.schema.field(place).type, kind):
        return pa.nulls(batch.num_rows, kind)
    return cast(batch.column(place), kind)[0]


def _as_text(column: pa.Array) -> pa.Array:
    """Text of a column that may hold invalid UTF-8, without losing a byte."""
    return pa.array([None if v is None else v if isinstance(v, str) else _plain(v) for v in cells(column)], pa.string())


def records_as_json(batch: pa.RecordBatch) -> pa.Array:
    """Each record of a batch as JSON text.

    >>> records_as_json(pa.RecordBatch.from_pydict({"seq": [7], "payload": [b"a,b"]})).to_pylist()
    ['{"seq": 7, "payload": "a,b"}']
    """
    names = batch.schema.names
    if len(set(names)) < len(names) or not names:
        columns = [cells(column) for column in batch.columns]
        rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
        return pa.array([json_text(dict(zip(names, row, strict=True))) for row in rows], pa.string())
    parts: list[Any] = ["{"]  # between the columns what is the same in all records
    for place, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
        parts[-1] += f"{', ' if place else ''}{json.dumps(encodable(name), ensure_ascii=False)}: "
        if column.null_count == len(column):
            parts[-1] += "null"
        else:
            parts += [_tokens(column), ""]
    parts[-1] += "}"
    if len(parts) == 1:
        return pa.array(parts * batch.num_rows, pa.string())
    if batch.num_rows > FEW:
        return pc.binary_join_element_wise(*(pa.array(p, pa.string()) if isinstance(p, list) else p for p in parts), "")
    texts = [repeat(part) if isinstance(part, str) else part for part in parts]
    return pa.array(map("".join, zip(*texts)), pa.string())  # noqa: B905 (some have no end)


def _tokens(column: pa.Array) -> Any:
    """The values as JSON text; of many the numbers and times, which are common, all at once."""
    kind, few = column.type, len(column) <= FEW
    if pa.types.is_integer(kind):
        if few:
            return ["null" if value is None else str(value) for value in column.to_pylist()]
        texts = column.cast(pa.string())
        return texts.fill_null("null") if column.null_count else texts
    if kind == TIMESTAMP and _all_in_range(column):
        return _time_tokens(column)
    if pa.types.is_binary(kind):
        with contextlib.suppress(pa.ArrowInvalid):  # what is no UTF-8 is looked at one by one
            column = column.cast(pa.string())
    values = cells(column)
    if pa.types.is_float64(kind):
        return [_NO_NUMBERS.get(text, text) for text in map(repr, values)]
    if not (is_text(kind) or kind == TIMESTAMP):
        return [json_text(value) for value in values]
    if not {*map(type, values)} <= _ENCODED:
        values = [value if type(value) in _ENCODED else _plain(value) for value in values]
    return ENCODER.encode_lines(values).decode().split("\n")[:-1]


def _time_tokens(column: pa.Array) -> list[str]:
    """Times as Python writes them; NumPy takes a fifth of what Python or Arrow take."""
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
