"""The types of Delta tables: how columns of Arrow are stored there without loss."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from riot_ops.core.errors import ConfigError

__all__ = ["delta_schema", "fits", "stored_type"]

#: Integers without a sign, by the type that holds all of their values.
UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
#: The types whose values have one stored form.
SAME = {
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(),
}  # fmt: skip
#: What helps for a type that Delta lacks.
REMEDIES = {
    "uint64": "cast it to int64, float64 or text in a task before the sink",
    "time": "write it as text or as a number of seconds",
    "duration": "write it as a number of seconds",
}
#: Wider types that hold all values of a type, in the order in which they are tried.
WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


def stored_type(name: str, dtype: pa.DataType) -> pa.DataType:
    """Return the type in which a Delta table holds a column without loss.

    Times have microseconds; integers without a sign become wider ones.

    >>> stored_type("n", pa.uint16()), stored_type("at", pa.timestamp("ms", "Europe/Berlin"))
    (DataType(int32), TimestampType(timestamp[us, tz=UTC]))
    >>> stored_type("n", pa.uint64())
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: the field 'n' has the type uint64, which Delta tables lack; cast it to int64,
    float64 or text in a task before the sink
    """
    kind = pa.types
    if dtype in SAME:
        return dtype
    if dtype in UNSIGNED:
        return UNSIGNED[dtype]
    if kind.is_dictionary(dtype):
        return stored_type(name, dtype.value_type)
    if kind.is_large_string(dtype) or kind.is_string_view(dtype):
        return pa.string()
    if kind.is_large_binary(dtype) or kind.is_binary_view(dtype) or kind.is_fixed_size_binary(dtype):
        return pa.binary()
    if kind.is_timestamp(dtype) and dtype.unit != "ns":
        return pa.timestamp("us", None if dtype.tz is None else "UTC")
    if kind.is_date64(dtype):
        return pa.date32()
    if kind.is_float16(dtype):
        return pa.float32()
    if kind.is_decimal(dtype) and dtype.precision <= 38 and 0 <= dtype.scale <= dtype.precision:
        return pa.decimal128(dtype.precision, dtype.scale)
    if kind.is_list(dtype) or kind.is_large_list(dtype) or kind.is_fixed_size_list(dtype):
        return pa.list_(pa.field("element", stored_type(f"{name}[]", dtype.value_type)))
    if kind.is_struct(dtype) and dtype.num_fields:
        return pa.struct([pa.field(f.name, stored_type(f"{name}.{f.name}", f.type)) for f in dtype.fields])
    if kind.is_map(dtype):
        key, item = stored_type(f"{name} key", dtype.key_type), stored_type(f"{name} value", dtype.item_type)
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item))
    text = str(dtype)
    remedy = next((helps for start, helps in REMEDIES.items() if text.startswith(start)), "convert or drop it")
    if kind.is_timestamp(dtype):
        remedy = "cast it to microseconds, timestamp[us, tz=UTC]"
    raise ConfigError(f"the field {name!r} has the type {text}, which Delta tables lack; {remedy}")


def delta_schema(stream: str, schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """Return the schema of a stream as a Delta table holds it; :class:`ConfigError` for fields that it cannot hold."""
    names: dict[str, str] = {}
    for name in schema.names:
        if not name or re.search(r"[ ,;{}()\n\t=]", name):
            raise ConfigError(
                f"stream {stream!r}: the field {name!r} cannot be a column of a Delta table, whose names are not "
                "empty and have none of the characters ' ,;{}()=', tab and new line; rename it in a task"
            )
        if (other := names.setdefault(name.lower(), name)) != name:
            raise ConfigError(f"stream {stream!r}: Delta tables do not distinguish the fields {other!r} and {name!r}")
    try:
        fields = [pa.field(f.name, stored_type(f.name, f.type)) for f in schema]
    except ConfigError as error:
        raise ConfigError(f"stream {stream!r}: {error}") from None
    found = pa.schema(fields)
    for name in partition_by:
        dtype = found.field(name).type
        if pa.types.is_nested(dtype) or pa.types.is_binary(dtype) or pa.types.is_floating(dtype):
            raise ConfigError(
                f"partition_by: the field {name!r} of stream {stream!r} is {dtype}; it must be text, an integer, a "
                "decimal, a date, a time or bool"
            )
    if len(partition_by) == len(names):
        raise ConfigError(f"partition_by names all fields of stream {stream!r}: a data file needs at least one more")
    return found


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a column of the table, of type ``want``, holds all values of the type ``have``.

    >>> fits(pa.int32(), pa.int64()), fits(pa.int64(), pa.float64()), fits(pa.list_(pa.int8()), pa.list_(pa.int64()))
    (True, False, True)
    """
    if have == want or want in WIDER.get(have, ()):
        return True
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale)
    if pa.types.is_list(have) and pa.types.is_list(want):
        return fits(have.value_type, want.value_type)
    if pa.types.is_map(have) and pa.types.is_map(want):
        return fits(have.key_type, want.key_type) and fits(have.item_type, want.item_type)
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return [f.name for f in have.fields] == [f.name for f in want.fields] and all(
            fits(a.type, b.type) for a, b in zip(have.fields, want.fields, strict=True)
        )
    return False
