"""Bargain index in plain PySpark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "bargain_index"]

BASELINE = Baseline("split, NumPy in transformWithStateInPandas per stock; the file is read once for trades and quotes")
WINDOW, THRESHOLD = 15, 0.001
MOST = sys.float_info.max


class PerStock(StatefulProcessor):
    """Average price of a stock's last trades, and the quotes below it, a batch of rows at a time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("trades", "money binary, volume binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        money, volume = (np.zeros(WINDOW - 1) if stored is None else np.frombuffer(part) for part in stored or (0, 0))
        for frame in rows:
            price, offered = frame["price"].to_numpy(), frame["volume"].to_numpy()
            money, volume = np.concatenate([money, price * offered]), np.concatenate([volume, offered])
            totals, sums = (sliding_window_view(part, WINDOW).sum(axis=1) for part in (volume, money))
            average = np.divide(sums, totals, out=np.full(len(sums), -np.inf), where=totals > 0)
            index = np.exp(np.minimum(average - price, 700.0)) * offered
            found = frame.loc[(average > price) & (index > THRESHOLD), ["stock", "price", "volume"]]
            yield found.assign(bargain_index=index[found.index])
            money, volume = money[1 - WINDOW :], volume[1 - WINDOW :]
        self._state.update((money.tobytes(), volume.tobytes()))

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
