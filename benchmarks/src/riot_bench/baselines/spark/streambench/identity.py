"""Identity in plain PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.streambench.form import Form, by_arrow, per_line

__all__ = ["FORMS"]


def _expressions(lines: Any) -> Any:
    return lines.select("seq", "value")


def _udf(lines: Any, *, arrow: bool | None = None) -> Any:
    same = f.udf(lambda line: line, "string", useArrow=arrow)
    return lines.select("seq", same("value").alias("value"))


def _arrow(lines: Any) -> Any:
    return by_arrow("identity", lines)


FORMS = {
    "expressions": Form("select", _expressions, python=False),
    **per_line("a function per line", _udf),
    "arrow": Form("Arrow's functions in mapInArrow", _arrow),
}
