"""State per key in NumPy beside the loops of plain Python, in batches of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from riot_bench.baselines.python.dspbench.bargain_index import bargain_index
from riot_bench.baselines.python.dspbench.spike_detection import spike_detection
from riot_bench.baselines.spark.dspbench.bargain_index import PerStock
from riot_bench.baselines.spark.dspbench.spike_detection import PerDevice
from riot_bench.harness.validation import compare


class State:
    """The state of one key; each micro-batch has a new processor."""

    def __init__(self) -> None:
        self.value: Any = None

    def getValueState(self, name: str, schema: str) -> Any:  # noqa: N802 - as in Spark
        return self

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value


def put_out(kind: Any, frame: pd.DataFrame, sizes: tuple[int, int]) -> list[tuple[Any, ...]]:
    """The rows of a key for micro-batches and batches of the given sizes."""
    state, (of_micro_batch, of_batch), rows = State(), sizes, list[tuple[Any, ...]]()
    for start in range(0, len(frame), of_micro_batch):
        processor = kind()
        processor.init(state)
        part = frame.iloc[start : start + of_micro_batch].reset_index(drop=True)
        batches = (part.iloc[i : i + of_batch].reset_index(drop=True) for i in range(0, len(part), of_batch))
        for found in processor.handleInputRows(("A",), batches, None):
            rows += found.itertuples(index=False, name=None)
    return rows


@pytest.mark.parametrize("sizes", [(5000, 5000), (1700, 600), (40, 7), (1, 1)], ids=str)
def test_spikes_in_vectors_equal_a_loop(sizes: tuple[int, int]) -> None:
    values = np.random.default_rng(1).normal(20, 1, 2500).round(3)
    lines = [f"2004-03-01 00:00:00 1 A {value} 1 1 1".encode() for value in values]
    found = put_out(PerDevice, pd.DataFrame({"device_id": "A", "value": values}), sizes)
    difference = compare("spikes", spike_detection({"sensors": lines})["spikes"], found)
    assert difference.equal, difference
    assert difference.found > 100


@pytest.mark.parametrize("sizes", [(5000, 5000), (1700, 600), (40, 7), (1, 1)], ids=str)
def test_bargains_in_vectors_equal_a_loop(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(2)
    prices, volumes = random.normal(20, 1, 500).round(2), random.integers(0, 3, 500).astype(float)
    volumes[:20] = 0  # no average yet
    lines = [f"A,2024-05-01,9,9,9,{p},9,{v}".encode() for p, v in zip(prices, volumes, strict=True)]
    found = put_out(PerStock, pd.DataFrame({"stock": "A", "price": prices, "volume": volumes}), sizes)
    difference = compare("bargains", bargain_index({"trades": lines, "quotes": lines})["bargains"], found)
    assert difference.equal, difference
    assert difference.found > 100
