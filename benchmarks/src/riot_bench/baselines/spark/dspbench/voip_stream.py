"""VoIP stream in plain PySpark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "voip_stream"]

BASELINE = Baseline(
    "split, transformWithStateInPandas with one key, and so on one core, for the average, then per number"
)
FAST, SLOW, ALPHA = -math.log(0.9672), -math.log(0.9917), 2.0 / 86_401.0
FOFIR, URL, ACD = (2.0, 10.0), (0.5, 1.0), (5.0, 10.0)
CALLS = "caller string, callee string, time double, duration double, established boolean, average double"
SCORES = "caller string, timestamp timestamp, score double, fofir double, url double, acd double"


def _ramp(ratio: float, ends: tuple[float, float]) -> float:
    return min(1.0, max(0.0, (ratio - ends[0]) / (ends[1] - ends[0])))


class _Rates:
    """Five decaying rates of a number: received, made and new calls; calls and talk time with a slower decay."""

    def __init__(self, values: list[float] | None) -> None:
        self.values = values or [0.0, -math.inf] * 5

    def add(self, which: int, amount: float, now: float, speed: float) -> float:
        rate, at = self.values[2 * which : 2 * which + 2]
        if now > at:
            rate, at = rate * math.exp(speed * (at - now)) + amount * speed, now
        else:
            rate += amount * speed * math.exp(speed * (now - at))
        self.values[2 * which : 2 * which + 2] = rate, at
        return rate

    def read(self, which: int, now: float, speed: float) -> float:
        rate, at = self.values[2 * which : 2 * which + 2]
        return rate * math.exp(speed * (at - now)) if now > at else rate


class PerNumber(StatefulProcessor):
    """Rates and scores of a number from its received and made calls."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("number", "rates array<double>, callees array<string>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        rates = _Rates(None if stored is None else list(stored[0]))
        callees = set() if stored is None else set(stored[1])
        found = []
        for frame in rows:
            columns = (frame[c].tolist() for c in ("received", "callee", "time", "duration", "established", "average"))
            for received, callee, now, duration, established, average in zip(*columns, strict=True):
                if received:
                    rates.add(0, 1.0, now, FAST)
                    continue
                new = callee not in callees
                callees.add(callee)
                if established:
                    found.append(
                        (key[0], pd.Timestamp(now, unit="s"), *self._scores(rates, new, now, duration, average))
                    )
        self._state.update((rates.values, list(callees)))
        yield pd.DataFrame(found, columns=[part.split()[0] for part in SCORES.split(", ")])

    def _scores(self, rates: _Rates, new: bool, now: float, duration: float, average: float) -> tuple[float, ...]:
        ecr = rates.add(1, 1.0, now, FAST)
        rcr = rates.read(0, now, FAST)
        encr = rates.add(2, 1.0, now, FAST) if new else rates.read(2, now, FAST)
        ecr24 = rates.add(3, 1.0, now, SLOW)
        ct24 = rates.add(4, duration, now, SLOW) if new else rates.read(4, now, SLOW)
        fofir = _ramp(ecr / rcr, FOFIR) if rcr else 1.0
        url = _ramp(encr / ecr, URL) if ecr else 0.0
        acd = _ramp(ct24 / ecr24 / average, ACD) if ecr24 and average else 0.0
        return 2.0 * fofir + 3.0 * url + 3.0 * acd, fofir, url, acd

    def close(self) -> None:
        pass


class Average(StatefulProcessor):
    """Average duration of all calls so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("average", "average double, n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        average, n = self._state.get() or (0.0, 0)
        for frame in rows:
            averages = []
            for duration in frame["duration"].tolist():
                n += 1
                average += (duration - average) * (1.0 / n if n <= 10 else ALPHA)
                averages.append(average)
            frame["average"] = averages
            yield frame[[part.split()[0] for part in CALLS.split(", ")]]
        self._state.update((average, n))

    def close(self) -> None:
        pass


def voip_stream(inputs: Mapping[str, Any]) -> Any:
    """``caller``, ``timestamp``, ``score``, ``fofir``, ``url``, ``acd``."""
    cells = f.split("value", "[,;]")
    calls = (
        inputs["calls"]
        .where(f.col("value").rlike("^([^,;]*,){3}([^,;]*;){4}[^,;]*$"))
        .select(cells.alias("cells"))
        .select(
            f.col("cells")[0].alias("caller"),
            f.col("cells")[1].alias("callee"),
            f.col("cells")[2].try_cast("timestamp").cast("double").alias("time"),
            f.col("cells")[6].try_cast("double").alias("duration"),
            f.lower(f.col("cells")[7]).alias("established"),
        )
        .where((f.col("caller") != "") & (f.col("callee") != "") & f.col("time").isNotNull())
        .where((f.col("duration") >= 0) & (f.col("duration") < float("inf")))
        .where(f.col("established").isin("true", "1", "false", "0"))
        .withColumn("established", f.col("established").isin("true", "1"))
    )
    calls = (
        calls.withColumn("all", f.lit(True))
        .groupBy("all")
        .transformWithStateInPandas(Average(), outputStructType=CALLS, outputMode="append", timeMode="None")
    )
    ends = f.array(
        f.struct(f.col("caller").alias("who"), f.lit(False).alias("received")),
        f.when(f.col("established"), f.struct(f.col("callee").alias("who"), f.lit(True).alias("received"))),
    )
    of_numbers = calls.withColumn("end", f.explode(ends)).where(f.col("end").isNotNull()).select("*", "end.*")
    return (
        of_numbers.drop("end")
        .groupBy("who")
        .transformWithStateInPandas(PerNumber(), outputStructType=SCORES, outputMode="append", timeMode="None")
    )
