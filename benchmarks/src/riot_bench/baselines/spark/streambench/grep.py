"""Grep in plain PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.streambench.form import Form, by_arrow, per_line

__all__ = ["FORMS"]


def _expressions(lines: Any, *, text: str = "ihiza", invert: bool = False) -> Any:
    found = f.col("value").contains(text)
    return lines.select("seq", "value").where(~found if invert else found)


def _udf(lines: Any, *, text: str = "ihiza", invert: bool = False, arrow: bool | None = None) -> Any:
    chosen = f.udf(lambda line: (text in line) != invert, "boolean", useArrow=arrow)
    return lines.select("seq", "value").where(chosen("value"))


def _arrow(lines: Any, *, text: str = "ihiza", invert: bool = False) -> Any:
    return by_arrow("grep", lines, text=text, invert=invert)


FORMS = {
    "expressions": Form("where contains", _expressions, python=False),
    **per_line("where a function per line", _udf),
    "arrow": Form("Arrow's functions in mapInArrow", _arrow),
}
