"""StreamBench's word count in plain PySpark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations

__all__ = ["IMPLEMENTATIONS"]

#: Separator of words.
SPACE = r"[ \t\n\r\x0B\f]+"


class PerWord(StatefulProcessor):
    """Count of a word."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        count = (0 if stored is None else stored[0]) + sum(len(frame) for frame in rows)
        self._state.update((count,))
        yield pd.DataFrame({"word": [key[0]], "count": [count]})

    def close(self) -> None:
        pass


def _words(lines: Any) -> Any:
    words = lines.select(f.explode(f.split("value", SPACE)).alias("word"))
    return words.where(f.col("word") != "")


def _expressions(lines: Any) -> Any:
    return _words(lines).groupBy("word").count()


def _udf(lines: Any, *, arrow: bool | None = None) -> Any:
    words = re.compile(r"[^ \t\n\r\x0B\f]+").findall
    # a lambda, since Spark inspects the signature of a function
    split = f.udf(lambda line: words(line), "array<string>", useArrow=arrow)  # noqa: PLW0108
    return lines.select(f.explode(split("value")).alias("word")).groupBy("word").count()


def _state(lines: Any) -> Any:
    return (
        _words(lines)
        .groupBy("word")
        .transformWithStateInPandas(
            PerWord(), outputStructType="word string, count bigint", outputMode="update", timeMode="None"
        )
    )


def _arrow(lines: Any) -> Any:
    return map_in_arrow("wordcount", lines).groupBy("word").agg(f.sum("count").alias("count"))


IMPLEMENTATIONS = {
    "expressions": Implementation("split, explode, groupBy(word).count()", _expressions, "update", python=False),
    **udf_implementations("a function per line, explode, groupBy(word).count()", _udf, "update"),
    "state": Implementation("split, explode, transformWithStateInPandas per word", _state, "update"),
    "arrow": Implementation("Arrow's functions in mapInArrow, groupBy(word).agg(sum)", _arrow, "update"),
}
