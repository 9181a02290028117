"""Identity in plain PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations

__all__ = ["IMPLEMENTATIONS"]


def _expressions(lines: Any) -> Any:
    return lines.select("seq", "value")


def _udf(lines: Any, *, arrow: bool | None = None) -> Any:
    same = f.udf(lambda line: line, "string", useArrow=arrow)
    return lines.select("seq", same("value").alias("value"))


def _arrow(lines: Any) -> Any:
    return map_in_arrow("identity", lines)


IMPLEMENTATIONS = {
    "expressions": Implementation("select", _expressions, python=False),
    **udf_implementations("a function per line", _udf),
    "arrow": Implementation("Arrow's functions in mapInArrow", _arrow),
}
