"""Functions that decide which records pass."""

from __future__ import annotations

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.tasks.functions.filter_function import FilterFunction


def test_non_bool_result_rejects_the_record():
    batch = pa.RecordBatch.from_pydict({"value": [1, 2, 3, None]})
    session = ro.filter(lambda row: row["value"] > 1 if row["value"] != 3 else 1).session()
    assert session.push_batch(batch).to_pylist() == [{"value": 2}]
    assert [e["reason"] for e in session.errors] == ["wrong_type", "function_error"]


def test_schema_is_refused():
    with pytest.raises(ConfigError, match="takes no schema"):
        FilterFunction(function=bool, schema={"x": "int64"})
