"""Projection in plain PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations

__all__ = ["IMPLEMENTATIONS", "by_expression", "by_function"]


def by_expression(lines: Any, column: int) -> Any:
    """Select ``seq`` and a cell of each line as ``value``, with expressions."""
    cell = f.get(f.split("value", "\t"), f.lit(column))
    return lines.select("seq", f.coalesce(cell, f.lit("")).alias("value"))


def by_function(lines: Any, column: int, arrow: bool | None = None) -> Any:
    """Select ``seq`` and a cell of each line as ``value``, with a Python function."""

    def cell(line: str) -> str:
        found = line.split("\t")
        return found[column] if column < len(found) else ""

    # a lambda, since Spark inspects the type hints of a function and warns
    read = f.udf(lambda line: cell(line), "string", useArrow=arrow)  # noqa: PLW0108
    return lines.select("seq", read("value").alias("value"))


def _expressions(lines: Any, *, column: int = 1) -> Any:
    return by_expression(lines, column)


def _udf(lines: Any, *, column: int = 1, arrow: bool | None = None) -> Any:
    return by_function(lines, column, arrow)


def _arrow(lines: Any, *, column: int = 1) -> Any:
    return map_in_arrow("projection", lines, column=column)


IMPLEMENTATIONS = {
    "expressions": Implementation("split", _expressions, python=False),
    **udf_implementations("a function per line", _udf),
    "arrow": Implementation("Arrow's functions in mapInArrow", _arrow),
}
