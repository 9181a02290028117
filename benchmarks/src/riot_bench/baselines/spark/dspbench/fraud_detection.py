"""Fraud detection in plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_ops.models.markov import purchase_model

__all__ = ["BASELINE", "fraud_detection"]

BASELINE = Baseline("split, transformWithStateInPandas per customer")
WINDOW, THRESHOLD = 5, 0.96


class PerCustomer(StatefulProcessor):
    """Score of a customer's latest purchases: how unlikely they are."""

    def __init__(self, misses: dict[tuple[str, str], float]) -> None:
        self._misses = misses

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._latest = handle.getValueState("latest", "states array<string>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._latest.get()
        chain: list[str] = [] if stored is None else list(stored[0])
        found = []
        for frame in rows:
            for state in frame["state"].tolist():
                chain = [*chain[-WINDOW + 1 :], state]
                if len(chain) == WINDOW:
                    score = sum(self._misses[pair] for pair in pairwise(chain)) / (WINDOW - 1)
                    if score > THRESHOLD:
                        found.append((key[0], score, ",".join(chain)))
        self._latest.update((chain,))
        yield pd.DataFrame(found, columns=["entity_id", "score", "states"])

    def close(self) -> None:
        pass


def fraud_detection(inputs: Mapping[str, Any]) -> Any:
    """``entity_id``, ``score``, ``states``."""
    model = purchase_model()
    rows = dict(zip(model.states, model.matrix.tolist(), strict=True))
    misses = {(a, b): 1 - p for a, row in rows.items() for b, p in zip(model.states, row, strict=True)}
    cells = f.split("value", ",")
    cards = inputs["cards"].select(cells[0].alias("entity_id"), f.get(cells, f.lit(2)).alias("state"))
    cards = cards.where((f.col("entity_id") != "") & f.col("state").isin(*model.states))
    return cards.groupBy("entity_id").transformWithStateInPandas(
        PerCustomer(misses),
        outputStructType="entity_id string, score double, states string",
        outputMode="append",
        timeMode="None",
    )
