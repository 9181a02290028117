"""Arrow types as Spark supports them, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.spark.types import spark_type


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.int8(), pa.int8()),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.int64()),
        (pa.duration("s"), pa.duration("us")),
        (pa.duration("ns"), pa.int64()),
        (pa.date64(), pa.date32()),
        (pa.list_(pa.uint8()), pa.list_(pa.int16())),
        (pa.large_list(pa.uint32()), pa.list_(pa.int64())),
        (pa.list_(pa.uint16(), 3), pa.list_(pa.int32())),
        (
            pa.struct([pa.field("a", pa.uint8(), nullable=False), pa.field("b", pa.list_(pa.uint64()))]),
            pa.struct([pa.field("a", pa.int16(), nullable=False), pa.field("b", pa.list_(pa.decimal128(20, 0)))]),
        ),
    ],
    ids=str,
)
def test_types_are_widened(kind, wanted):
    assert spark_type(kind) == wanted
