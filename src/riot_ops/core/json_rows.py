"""Records as JSON: the forms of values in files and messages."""

from __future__ import annotations

import msgspec
import pyarrow as pa
from pyarrow import types

__all__ = ["JSON", "json_lines", "json_texts", "plain_column"]

#: Writes decimals as numbers, and times, for which JSON has no form, as ISO 8601.
JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=lambda value: value.isoformat())


def plain_column(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Durations as whole numbers; times that Python's types would cut or that JSON does not know as text."""
    if types.is_duration(column.type):
        return column.cast(pa.int64())
    if types.is_time(column.type) or (types.is_timestamp(column.type) and column.type.unit == "ns"):
        return column.cast(pa.string())
    return column


def json_lines(table: pa.Table | pa.RecordBatch) -> bytes:
    r"""Write each record as a line with a JSON object.

    Numbers keep all digits. NaN and infinities become ``null``, times ISO 8601, durations whole numbers of their unit,
    bytes Base64.

    >>> json_lines(pa.RecordBatch.from_pydict({"room": ["küche", None], "value": [21.5, float("nan")]})).decode()
    '{"room":"küche","value":21.5}\n{"room":null,"value":null}\n'
    """
    columns = [plain_column(column) for column in table.columns]
    return JSON.encode_lines(pa.table(columns, names=table.schema.names).to_pylist())


def json_texts(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Write each value as JSON; null stays null.

    >>> json_texts(pa.array([[1, 2], None])).to_pylist()
    ['[1,2]', None]
    """
    texts = [None if value is None else JSON.encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())
