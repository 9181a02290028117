"""Arrow's types as Spark has them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["spark_type"]

#: What Spark has no type for, and the least that holds it.
WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type, or the least that Spark knows which holds its values.

    >>> str(spark_type(pa.uint8())), str(spark_type(pa.list_(pa.uint64(), 3)))
    ('int16', 'list<item: decimal128(20, 0)>')
    """
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(spark_type(f.type)) for f in kind])
    return WIDER.get(kind, kind)
