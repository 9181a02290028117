"""Growth of each task's cost per record with the number of keys and with the window length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_ops import tasks as t
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.dataflows.dspbench.operators import (
    BoundedCount,
    DecayingRate,
    MarkovScore,
    SlidingTotals,
    TopK,
    WeightedAverage,
)
from riot_ops.runtime.state import KeyedState
from riot_ops.task import KeyedTask

__all__ = ["KEYED", "WINDOWED", "measures"]

BATCH = 65_536
#: Milliseconds between two records.
GAP_MS = 1
#: Maximum growth of the cost.
MAX_GROWTH = 4
STATES = ("LNL", "LNN", "LNS", "MNN", "HHS")

BY = ("key",)
#: Tasks with state per key. A tick occurs every 100,000 records, and its output counts as records, too.
KEYED: dict[str, Callable[[], KeyedTask]] = {
    "running_count": lambda: t.RunningCount(by=BY),
    "running_totals": lambda: t.RunningTotals(by=BY, totals={"n": None, "total": "number"}),
    "bounded_count": lambda: BoundedCount(field="key", capacity=10_000_000),
    "deduplicate": lambda: t.Deduplicate(by=BY),
    "moving_average": lambda: t.MovingAverage(by=BY, window=10, mode="growing", output="mean"),
    "markov_score": lambda: MarkovScore(by=BY, window=5),
    "weighted_average": lambda: WeightedAverage(by=BY, value="value", weight="number", window=15),
    "as_of_join": lambda: t.AsOfJoin(by=BY, fields=("known",), how="left"),
    "clipped_average": lambda: t.ClippedAverage(by=BY, value="value"),
    "sliding_sum": lambda: t.SlidingSum(by=BY, value="value", window=10),
    "exponential_average": lambda: t.ExponentialAverage(by=BY, value="value", span=100.0),
    "decaying_rate": lambda: DecayingRate(by=BY),
    "decaying_filter": lambda: DecayingRate(fields=("key",), capacity=2_000_000),
    "deduplicate_filter": lambda: t.Deduplicate(fields=("key",), capacity=2_000_000, error=0.01, flag="new"),
    "sliding_totals": lambda: SlidingTotals(by=BY, totals={"n": None}, every=timedelta(seconds=100)),
    "top_k": lambda: TopK(item="key", value="number", k=10, every=timedelta(seconds=100)),
}
#: Tasks with a window of given length over the latest records of a key.
WINDOWED: dict[str, Callable[[int], KeyedTask]] = {
    "moving_average": lambda n: t.MovingAverage(by=BY, window=n, mode="growing", output="mean"),
    "weighted_average": lambda n: WeightedAverage(by=BY, value="value", weight="number", window=n),
    "sliding_sum": lambda n: t.SlidingSum(by=BY, value="value", window=n),
    "clipped_average": lambda n: t.ClippedAverage(by=BY, value="value", window=n),
    "markov_score": lambda n: MarkovScore(by=BY, window=n, states=None),
    "sliding_totals": lambda n: SlidingTotals(
        by=BY, totals={"n": None}, every=timedelta(milliseconds=GAP_MS * 100_000), slots=max(2, n // 25)
    ),
}


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    keys, rows, repetitions = (10_000, 131_072, 1) if quick else (1_000_000, 1_048_576, 3)
    lengths = (10, 1_000) if quick else (10, 100_000)
    with pinned_to_one_core():
        for name, make in KEYED.items():
            few, many = (_record_cost(make(), n, rows, repetitions) for n in (1_000, keys))
            yield from _growth(f"operators/{name}/keys", few, many, f"1,000 keys and {keys:,}, {rows:,} records")
        for name, of in WINDOWED.items():
            short, long = (_record_cost(of(n), 8, rows, repetitions) for n in lengths)
            what = f"windows of {lengths[0]} and {lengths[1]:,}, 8 keys, {rows:,} records"
            yield from _growth(f"operators/{name}/window", short, long, what)


def _growth(name: str, small: float, large: float, how: str) -> Iterator[Measure]:
    yield Measure(name, 1e9 * large, "ns/record", f"{how}; {1e9 * small:.0f} for the first, one core")
    yield Measure(f"{name}/growth", large / small, "ratio", how, MAX_GROWTH, at_most=True)


def _record_cost(task: KeyedTask, keys: int, rows: int, repetitions: int) -> float:
    """Return the CPU seconds per input or output record, with all keys known and windows full."""
    state, errors = KeyedState(task), RejectedRecords(task.name())
    rng = np.random.default_rng(1)
    seq = 0
    for batch in _batches(rng.permutation(keys), seq):
        state.update(batch, errors)
    seq = keys
    times: list[float] = []
    for _ in range(repetitions + 1):
        batches = list(_batches(rng.integers(0, keys, rows), seq))
        seq += rows
        given = 0
        start = time.process_time()
        for batch in batches:
            made = state.update(batch, errors)
            given += batch.num_rows + (sum(b.num_rows for b in made) if task.clock() else 0)
        times.append((time.process_time() - start) / given)
    return median(times[1:])


def _batches(keys: npt.NDArray[np.int64], first: int) -> Iterator[pa.RecordBatch]:
    names = pa.array([f"key-{k:07d}" for k in range(int(keys.max(initial=0)) + 1)])
    for start in range(0, keys.size, BATCH):
        own = keys[start : start + BATCH]
        seq = np.arange(first + start, first + start + own.size)
        values = (own * 2_654_435_761 + seq * 40_503) % 1000
        yield pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(seq),
                "event_time": pa.array(seq * GAP_MS * 1000).cast(TIMESTAMP),
                "key": names.take(pa.array(own)),
                "value": pa.array(50.0 + values / 100.0),
                "number": pa.array(1 + values),
                "state": pa.array(np.array(STATES)[values % len(STATES)]),
                "known": pa.array(np.where(values % 2 == 0, values * 1.0, np.nan), from_pandas=True),
            }
        )
