"""Statistics in plain PySpark over integer fields, whose sums are exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations
from riot_ops.core.errors import ConfigError
from riot_ops.streams.streambench.packets import FIELDS

__all__ = ["IMPLEMENTATIONS"]

RESULTS = "count bigint, min double, max double, sum double, mean double"


class GlobalStatistics(StatefulProcessor):
    """Statistics of all values."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("figures", "count bigint, minimum double, maximum double, total string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get() or (0, float("inf"), -float("inf"), "0")
        count, minimum, maximum, total = *stored[:3], int(stored[3])
        for frame in rows:
            values = frame["value"].tolist()
            count += len(values)
            minimum, maximum = min(minimum, *values), max(maximum, *values)
            total += sum(map(int, values))
        self._state.update((count, minimum, maximum, str(total)))
        found = {"count": count, "min": minimum, "max": maximum, "sum": float(total), "mean": float(total) / count}
        yield pd.DataFrame({name: [value] for name, value in found.items()})

    def close(self) -> None:
        pass


def _place(field: str) -> int:
    if field not in FIELDS[:13]:
        raise ConfigError(f"field must be an integer field, one of {', '.join(FIELDS[:13])}, got {field!r}")
    return FIELDS.index(field)


def _finite(values: Any) -> Any:
    return values.where((f.abs("value") < float("inf")) & ~f.isnan("value"))


def _values(lines: Any, field: str) -> Any:
    place = _place(field)
    cell = f.get(f.split("value", ","), f.lit(place))
    return _finite(lines.select(cell.try_cast("double").alias("value")))


def _figures(values: Any, field: str) -> Any:
    # sums of bytes exceed 64 bits
    whole = f.col("value").cast("decimal(20,0)" if field.endswith("bytes") else "bigint")
    of_value = [
        function("value").alias(name) for name, function in (("count", f.count), ("min", f.min), ("max", f.max))
    ]
    found = values.agg(*of_value, f.sum(whole).cast("double").alias("sum"))
    return found.select("*", (f.col("sum") / f.col("count")).alias("mean"))


def _expressions(lines: Any, *, field: str = "v4_pkts") -> Any:
    return _figures(_values(lines, field), field)


def _udf(lines: Any, *, field: str = "v4_pkts", arrow: bool | None = None) -> Any:
    place = _place(field)

    def value(line: str) -> float | None:
        try:
            return float(line.split(",")[place])
        except (IndexError, ValueError):
            return None

    # a lambda, since Spark inspects the type hints of a function and warns
    read = f.udf(lambda line: value(line), "double", useArrow=arrow)  # noqa: PLW0108
    return _figures(_finite(lines.select(read("value").alias("value"))), field)


def _state(lines: Any, *, field: str = "v4_pkts") -> Any:
    return (
        _values(lines, field)
        .withColumn("all", f.lit(0))
        .groupBy("all")
        .transformWithStateInPandas(GlobalStatistics(), outputStructType=RESULTS, outputMode="update", timeMode="None")
    )


def _arrow(lines: Any, *, field: str = "v4_pkts") -> Any:
    _place(field)
    parts = map_in_arrow("statistics", lines, field=field)
    merged = (f.sum("count").alias("count"), f.min("min").alias("min"), f.max("max").alias("max"))
    found = parts.agg(*merged, f.sum("sum").cast("double").alias("sum"))
    return found.select("*", (f.col("sum") / f.col("count")).alias("mean"))


IMPLEMENTATIONS = {
    "expressions": Implementation("split, agg", _expressions, "update", python=False),
    **udf_implementations("a function per line, agg", _udf, "update"),
    "state": Implementation("split, transformWithStateInPandas of one key", _state, "update"),
    "arrow": Implementation("Arrow's functions in mapInArrow, agg", _arrow, "update"),
}
