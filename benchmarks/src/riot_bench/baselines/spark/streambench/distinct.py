"""Distinct count in plain PySpark: it emits the new values, which the consumer counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations
from riot_bench.baselines.spark.streambench.projection import by_expression, by_function

__all__ = ["IMPLEMENTATIONS"]


class PerValue(StatefulProcessor):
    """Whether a value was seen."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("seen", "seen boolean")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        if not self._state.exists():
            self._state.update((True,))
            yield pd.DataFrame({"value": [key[0]]})

    def close(self) -> None:
        pass


def _expressions(lines: Any, *, column: int = 0) -> Any:
    return by_expression(lines, column).select("value").dropDuplicates(["value"])


def _udf(lines: Any, *, column: int = 0, arrow: bool | None = None) -> Any:
    return by_function(lines, column, arrow).select("value").dropDuplicates(["value"])


def _state(lines: Any, *, column: int = 0) -> Any:
    return (
        by_expression(lines, column)
        .groupBy("value")
        .transformWithStateInPandas(PerValue(), outputStructType="value string", outputMode="append", timeMode="None")
    )


def _arrow(lines: Any, *, column: int = 0) -> Any:
    return map_in_arrow("distinct", lines, column=column).dropDuplicates(["value"])


IMPLEMENTATIONS = {
    "expressions": Implementation("split, dropDuplicates", _expressions, python=False),
    **udf_implementations("a function per line, dropDuplicates", _udf),
    "state": Implementation("split, transformWithStateInPandas per value", _state),
    "arrow": Implementation("Arrow functions in mapInArrow, dropDuplicates", _arrow),
}
