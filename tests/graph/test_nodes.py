"""Declared fields of sources."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.graph.nodes import source_node


def test_types_of_python_declare_fields():
    names = {"f": float, "i": int, "s": str, "b": bool, "y": bytes, "d": date, "t": datetime}
    schema = source_node("in", names).schema
    wanted = [pa.float64(), pa.int64(), pa.string(), pa.bool_(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC")]
    assert [schema.field(name).type for name in names] == wanted


@pytest.mark.parametrize("kind", [list, 5, None, complex])
def test_unsupported_type_of_a_field_is_refused_with_allowed_ones(kind):
    with pytest.raises(ConfigError, match=r"source 'in': the type of the field 'v' must be Arrow's, .*float, int, str"):
        source_node("in", {"v": kind})


@pytest.mark.parametrize(
    "dtype",
    [
        pa.decimal32(5, 2),
        pa.decimal64(18, 0),
        pa.decimal128(5, -2),
        pa.decimal256(76, 38),
        pa.list_(pa.decimal128(5, 2)),
    ],
)
def test_decimal_is_declared_as_arrow_spells_it(dtype):
    schema = source_node("in", {"v": str(dtype), "w": str(dtype).replace(", ", ",")}).schema
    assert [schema.field(name).type for name in "vw"] == [dtype] * 2


@pytest.mark.parametrize(
    "text", ["decimal128(39, 2)", "decimal128(0, 0)", "decimal128(5)", "decimal(5, 2)", "decimal128"]
)
def test_misspelt_decimal_is_refused(text):
    with pytest.raises(ConfigError, match=r"unknown type 'decimal.*'decimal128\(5, 2\)'"):
        source_node("in", {"v": text})
