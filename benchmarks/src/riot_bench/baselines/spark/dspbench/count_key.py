"""A common key for several counts in one aggregation."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

__all__ = ["count_key"]


def count_key(stream: str, a: Any = None, b: Any = None) -> Any:
    """Build the key of a count, where one aggregation computes several counts."""
    parts = [(f.lit(None) if part is None else part).cast("string") for part in (a, b)]
    return f.struct(f.lit(stream).alias("stream"), parts[0].alias("a"), parts[1].alias("b"))
