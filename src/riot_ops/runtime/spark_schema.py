"""The Arrow schema of a Spark DataFrame, in any version of PySpark."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["to_arrow_schema"]


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame's fields, with timestamps in UTC."""
    from pyspark.sql.pandas import types

    if "timezone" in inspect.signature(types.to_arrow_schema).parameters:
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)  # PySpark 4.0 and 4.1 take no zone: it is UTC
