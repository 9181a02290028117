"""Arrow types as Spark supports them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["spark_type"]

#: Types that Spark lacks, and the narrowest ones that hold their values. Times of Spark are in microseconds, so that
#: nanoseconds are whole numbers there.
WIDER = {
    **{pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)},
    **{pa.duration(unit): pa.duration("us") for unit in ("s", "ms")},
    **{pa.duration("ns"): pa.int64(), pa.date64(): pa.date32()},
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type itself, or the narrowest type of Spark that holds its values.

    >>> str(spark_type(pa.uint8())), str(spark_type(pa.list_(pa.uint64(), 3)))
    ('int16', 'list<item: decimal128(20, 0)>')
    """
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(spark_type(f.type)) for f in kind])
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us", kind.tz)
    return WIDER.get(kind, kind)
