"""Value filter: texts, numbers, booleans, nulls."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError


def passed(values, column, **options):
    batch = pa.RecordBatch.from_pydict({"x": column})
    return t.ValueFilter(field="x", values=values, **options).session().push_batch(batch)["x"].to_pylist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_texts_are_compared(kind):
    column = pa.array([b"en", b"EN", None, b"", b"pt"], pa.binary()).cast(kind)
    text = (lambda s: s.encode()) if kind == pa.binary() else (lambda s: s)
    assert passed(("en", "pt"), column) == [text("en"), text("pt")]
    assert passed(("",), column, keep_null=True) == [None, text("")]
    many = tuple(f"language {i}" for i in range(9))  # enough for a set look-up instead of comparisons
    assert passed(("pt", *many), column) == [text("pt")]
    assert passed(("", *many), column, keep_null=True) == [None, text("")]


def test_dictionaries_and_null_columns_are_accepted():
    assert passed(("b",), pa.array(["a", "b", None]).dictionary_encode()) == ["b"]
    assert passed(("b",), pa.nulls(2)) == []
    assert passed(("b",), pa.nulls(2), keep_null=True) == [None, None]


def test_numbers_and_booleans_are_compared():
    assert passed((1, 2.5, True), pa.array([1.0, 2.5, float("nan"), 2.0])) == [1.0, 2.5]
    assert passed((1, 2.5, 1 << 60), pa.array([1, 2, (1 << 60) + 1, 1 << 60])) == [1, 1 << 60]
    assert passed((300, 7), pa.array([7, 44], pa.int8())) == [7]
    assert passed((True,), pa.array([True, False, None])) == [True]
    assert passed((0, 2), pa.array([True, False, None]), keep_null=True) == [False, None]


@pytest.mark.parametrize("values", ["en", (), ("a", 1), (float("nan"),), (None,), 7], ids=str)
def test_wrong_values_are_refused(values):
    with pytest.raises(ConfigError, match="values"):
        t.ValueFilter(field="x", values=values)


def test_texts_are_refused_for_numbers():
    with pytest.raises(ConfigError, match="text"):
        passed(("1",), pa.array([1]))
    with pytest.raises(ConfigError, match="number"):
        passed((1,), pa.array(["1"]))
