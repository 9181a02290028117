"""Records as a SenML pack (RFC 8428)."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import types

from riot_ops.connectors.template import Template
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.json_rows import json_texts, plain_column

__all__ = ["check_senml", "senml_body"]

#: The time of records, and fields that are no measurements.
TIME = "event_time"
OWN = (TIME, "seq")


def check_senml(stream: str, name: Template, fields: Sequence[str], schema: pa.Schema) -> None:
    """Raise a ConfigError unless records with the schema can be written as SenML."""
    for field in (*name.fields, *fields):
        if field not in schema.names and field != "stream":
            raise ConfigError(f"HTTPSink reads the field {field!r}, which the stream {stream!r} lacks")
    if not measured(name, fields, schema.names):
        raise ConfigError(f"the stream {stream!r} has no field for SenML beside those of the name; give fields=")


def measured(name: Template, fields: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the fields that become measurements."""
    return list(fields) or [n for n in names if n not in OWN and n not in name.fields]


def senml_body(stream: str, batch: pa.RecordBatch, name: Template, fields: Sequence[str]) -> bytes:
    """Write records as a SenML pack: for each record its base name and time, and a measurement per field.

    >>> rows = pa.RecordBatch.from_pydict({"room": ["a"], "t": [21.5], "open": [True], "note": [None]})
    >>> senml_body("out", rows, Template("{room}:"), ()).decode()
    '[{"bn":"a:","n":"t","v":21.5},{"n":"open","vb":true}]'
    """
    named = batch
    if "stream" not in batch.schema.names:
        named = batch.append_column("stream", pa.array([stream] * batch.num_rows, pa.string()))
    names = name.render(named)
    if None in names:
        raise ConnectorError(
            f"record {names.index(None)} of a batch of the stream {stream!r} cannot be sent: a field of the name "
            f"{name.text!r} is null"
        )
    place = batch.schema.get_field_index(TIME)
    times: list[int | None] = [None] * batch.num_rows
    if place >= 0:
        times = batch.column(place).cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    columns = [(n, *_values(batch.column(n))) for n in measured(name, fields, batch.schema.names)]
    pack: list[dict[str, Any]] = []
    for row, (base, time) in enumerate(zip(names, times, strict=True)):
        head: dict[str, Any] = {"bn": base} if time is None else {"bn": base, "bt": time / 1e6}
        for field, label, values in columns:
            value = values[row]
            if value is not None:
                pack.append({**head, "n": field, label: value})
                head = {}
    return msgspec.json.encode(pack)


def _values(column: pa.Array) -> tuple[str, list[Any]]:
    """Return the label of SenML for values of a column, and the values."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    dtype = column.type
    if types.is_boolean(dtype):
        return "vb", column.to_pylist()
    if types.is_floating(dtype) or types.is_decimal(dtype):
        numbers = [None if v is None else float(v) for v in column.to_pylist()]
        return "v", [None if v is None or not math.isfinite(v) else v for v in numbers]  # JSON has no NaN
    if types.is_integer(dtype) or types.is_duration(dtype):
        return "v", plain_column(column).to_pylist()
    if types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype):
        encoded = (None if v is None else base64.urlsafe_b64encode(v).rstrip(b"=") for v in column.to_pylist())
        return "vd", [None if v is None else v.decode() for v in encoded]
    if types.is_nested(dtype):
        return "vs", json_texts(column).to_pylist()
    if types.is_string(dtype) or types.is_large_string(dtype):
        return "vs", column.to_pylist()
    return "vs", [
        None if v is None else v.isoformat() if hasattr(v, "isoformat") else str(v)
        for v in plain_column(column).to_pylist()
    ]
