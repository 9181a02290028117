"""Bargain index in plain PySpark."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "bargain_index"]

BASELINE = Baseline("split, transformWithStateInPandas per stock; the file is read once for trades and quotes")
WINDOW, THRESHOLD = 15, 0.001
MOST = sys.float_info.max


class PerStock(StatefulProcessor):
    """Average price of a stock's last trades, and the quotes below it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("trades", "money array<double>, volume array<double>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        money: deque[float] = deque(() if stored is None else stored[0], maxlen=WINDOW)
        volumes: deque[float] = deque(() if stored is None else stored[1], maxlen=WINDOW)
        found = []
        for frame in rows:
            for price, volume in zip(frame["price"].tolist(), frame["volume"].tolist(), strict=True):
                money.append(price * volume)
                volumes.append(volume)
                total = sum(volumes)
                average = sum(money) / total if total > 0 else -math.inf
                if average > price:
                    index = math.exp(min(average - price, 700.0)) * volume
                    if index > THRESHOLD:
                        found.append((key[0], price, volume, index))
        self._state.update((list(money), list(volumes)))
        yield pd.DataFrame(found, columns=["stock", "price", "volume", "bargain_index"])

    def close(self) -> None:
        pass


def bargain_index(inputs: Mapping[str, Any]) -> Any:
    """``stock``, ``price``, ``volume``, ``bargain_index``; every line is a trade followed by a quote."""
    cells = f.split(f.regexp_replace("value", ",$", ""), ",")
    bars = (
        inputs["trades"]
        .select(cells.alias("cells"))
        .where((f.size("cells") == 8) & (f.col("cells")[0] != ""))
        .select(
            f.col("cells")[0].alias("stock"),
            f.col("cells")[1].try_cast("timestamp").alias("event_time"),
            f.col("cells")[5].try_cast("double").alias("price"),
            f.col("cells")[7].try_cast("double").alias("volume"),
        )
        .where(f.col("event_time").isNotNull() & _finite("price") & f.col("volume").between(0, MOST))
        .select("stock", "price", "volume")
    )
    return bars.groupBy("stock").transformWithStateInPandas(
        PerStock(),
        outputStructType="stock string, price double, volume double, bargain_index double",
        outputMode="append",
        timeMode="None",
    )


def _finite(name: str) -> Any:
    return ~f.isnan(name) & (f.abs(name) < float("inf"))
