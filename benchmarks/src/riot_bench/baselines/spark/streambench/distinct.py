"""Distinct count in plain PySpark: the values that are new, of which whoever takes them keeps the number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.streambench.form import Form, by_arrow, per_line
from riot_bench.baselines.spark.streambench.projection import by_expression, by_function

__all__ = ["FORMS"]


class PerValue(StatefulProcessor):
    """Whether a value has come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("seen", "seen boolean")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        if not self._state.exists():
            self._state.update((True,))
            yield pd.DataFrame({"value": [key[0]]})

    def close(self) -> None:
        pass


def _expressions(lines: Any, *, field: int = 0) -> Any:
    return by_expression(lines, field).select("value").dropDuplicates(["value"])


def _udf(lines: Any, *, field: int = 0, arrow: bool | None = None) -> Any:
    return by_function(lines, field, arrow).select("value").dropDuplicates(["value"])


def _state(lines: Any, *, field: int = 0) -> Any:
    return (
        by_expression(lines, field)
        .groupBy("value")
        .transformWithStateInPandas(PerValue(), outputStructType="value string", outputMode="append", timeMode="None")
    )


def _arrow(lines: Any, *, field: int = 0) -> Any:
    return by_arrow("distinct", lines, field=field).dropDuplicates(["value"])


FORMS = {
    "expressions": Form("split, dropDuplicates", _expressions, python=False),
    **per_line("a function per line, dropDuplicates", _udf),
    "state": Form("split, transformWithStateInPandas per value", _state),
    "arrow": Form("Arrow's functions in mapInArrow, dropDuplicates", _arrow),
}
