"""Functions over the batches of a DataFrame with any names of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["map_batches", "quoted"]

Apply = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_batches(df: DataFrame, apply: Apply, schema: StructType | str) -> DataFrame:
    """Apply a function over batches, as ``df.mapInArrow``, which takes a dot in a name for access to a struct."""
    names = df.columns
    if all(quoted(name) == f"`{name}`" and "." not in name for name in names):
        return df.mapInArrow(apply, schema)
    return df.toDF(*(f"column_{i}" for i in range(len(names)))).mapInArrow(_renamed(apply, names), schema)


def _renamed(apply: Apply, names: list[str]) -> Apply:
    def renamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return apply(batch.rename_columns(names) for batch in batches)

    return renamed


def quoted(name: str) -> str:
    """Return a column's name as Spark's expressions take it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"
