"""Arrow columns for tests of kernels: examples of all types, and strategies."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

_INDEX_TYPES = st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
_VALUES = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ü"])), min_size=1, max_size=5)


@st.composite
def dictionary_columns(draw):
    """Slices of dictionary columns, also with duplicate values and nulls in the dictionary."""
    known = draw(_VALUES)
    indices = draw(st.lists(st.one_of(st.none(), st.integers(0, len(known) - 1)), max_size=9))
    column = pa.DictionaryArray.from_arrays(pa.array(indices, draw(_INDEX_TYPES)), pa.array(known, pa.string()))
    return column.slice(draw(st.integers(0, 3)), draw(st.integers(0, 9)))


#: Columns of all kinds of types, with and without nulls.
COLUMNS = [
    pa.array([1.5, None, float("nan"), None, -0.0] * 5),
    pa.array([None, 2**53 + 1, None, -(2**63)] * 7),
    pa.array([1, None, 3] * 6, pa.uint8()),
    pa.array([True, None, False]),
    pa.array(["a", None, "ü", ""]),
    pa.array(["a", None, "ü"]).dictionary_encode(),
    pa.array([[1], None, []]),
    pa.array([{"a": 1}, None, {"a": None}]),
    pa.array([1, None], pa.timestamp("us", "UTC")),
    pa.nulls(9),
    pa.nulls(9, pa.float64()),
    pa.nulls(9, pa.string()),
    pa.array([1.0, 2.0]),
    pa.array([], pa.float64()),
    pa.array([1, 1, None]).cast(pa.int64()),
    pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([None, 1])),
    pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([None, 1]), pa.nulls(1)]
    ),
]


def slices(column):
    """A column and slices of it."""
    return [column, column.slice(1), column.slice(min(3, len(column))), column.slice(0, 1), column.slice(2, 3)]
