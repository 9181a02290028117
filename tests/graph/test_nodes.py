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
