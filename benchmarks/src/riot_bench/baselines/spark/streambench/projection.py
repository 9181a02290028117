"""Projection in plain PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.streambench.form import Form, by_arrow, per_line

__all__ = ["FORMS", "by_expression", "by_function"]


def by_expression(lines: Any, field: int) -> Any:
    """``seq``, ``value``: a cell of each line."""
    cell = f.get(f.split("value", "\t"), f.lit(field))
    return lines.select("seq", f.coalesce(cell, f.lit("")).alias("value"))


def by_function(lines: Any, field: int, arrow: bool | None = None) -> Any:
    """``seq``, ``value``: a cell of each line."""

    def cell(line: str) -> str:
        found = line.split("\t")
        return found[field] if field < len(found) else ""

    # a lambda, since Spark would look at the types of a function, and warn
    read = f.udf(lambda line: cell(line), "string", useArrow=arrow)  # noqa: PLW0108
    return lines.select("seq", read("value").alias("value"))


def _expressions(lines: Any, *, field: int = 1) -> Any:
    return by_expression(lines, field)


def _udf(lines: Any, *, field: int = 1, arrow: bool | None = None) -> Any:
    return by_function(lines, field, arrow)


def _arrow(lines: Any, *, field: int = 1) -> Any:
    return by_arrow("projection", lines, field=field)


FORMS = {
    "expressions": Form("split", _expressions, python=False),
    **per_line("a function per line", _udf),
    "arrow": Form("Arrow's functions in mapInArrow", _arrow),
}
