"""Cost per row, state size and memory as the number of keys grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riot_bench.harness.data import LineFiles, RecordFiles, write_city, write_readings
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites.keyed import kalman, kalman_flow
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.state import KeyedState

__all__ = ["measures"]

BATCH = 65_536
#: Messages per file.
MESSAGES_PER_FILE = 25_000


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    most, rows, repetitions = (100_000, 200_000, 2) if quick else (1_000_000, 2_000_000, 5)
    with pinned_to_one_core():
        yield from _in_process(most, rows, repetitions)
    with temporary_folder() as base:
        yield from _on_spark(base, most, rows, 1 if quick else 3)
        yield from _memory(base, most)


# -- one process -----------------------------------------------------------------------------------


def _in_process(most: int, rows: int, repetitions: int) -> Iterator[Measure]:
    """Measure a warm Kalman filter with a growing number of keys, and with batches that touch few of many keys."""
    cost: dict[int, float] = {}
    keys = 1000
    while keys <= most:
        cost[keys], size = _row_cost(_WarmState(keys), _readings(keys, keys, rows), repetitions)
        yield Measure(
            f"growth/local/rows/{keys}",
            1e9 * cost[keys],
            "ns/row",
            f"Kalman filter over {rows:,} rows, its delta of {size:,} bytes included, one core",
        )
        keys *= 10
    yield Measure(
        "growth/local/many-vs-few-keys",
        cost[most] / cost[1000],
        "ratio",
        f"cost per row with {most:,} keys against 1,000",
        2,
        at_most=True,
    )
    state = _WarmState(most)
    all_cost, all_bytes = _row_cost(state, _readings(most, most, rows), repetitions)
    few_cost, few_bytes = _row_cost(state, _readings(most, most // 100, rows), repetitions)
    touched = most * (1 - (1 - 1 / most) ** rows)
    yield Measure(
        "growth/local/touch-1-percent",
        few_cost / all_cost,
        "ratio",
        "cost per row of batches that touch 1 % of the keys against batches that touch all",
        2,
        at_most=True,
    )
    yield Measure("growth/local/delta-all", all_bytes / touched, "bytes/key", "state written per key touched, all keys")
    yield Measure(
        "growth/local/delta-1-percent",
        few_bytes / (most // 100),
        "bytes/key",
        "state written per key touched, 1 % of the keys",
    )
    yield Measure(
        "growth/local/delta-1-percent-vs-all",
        few_bytes / (most // 100) / (all_bytes / touched),
        "ratio",
        "bytes per key touched, 1 % of the keys against all",
        2,
        at_most=True,
    )
    yield Measure("growth/local/state", state.state.nbytes / most, "bytes/key", "Kalman filter: arrays, index and keys")


class _WarmState:
    """State of the Kalman filter in which all keys are known."""

    def __init__(self, keys: int) -> None:
        self.state = KeyedState(kalman())
        self.errors = RejectedRecords("kalman")
        self.run(_batches(_names(np.arange(keys))))
        self.state.snapshot("full")

    def run(self, batches: list[pa.RecordBatch]) -> int:
        for batch in batches:
            self.state.update(batch, self.errors)
        return len(self.state.snapshot("delta"))


def _row_cost(state: _WarmState, batches: list[pa.RecordBatch], repetitions: int) -> tuple[float, int]:
    """Return the seconds per row, with the delta snapshot, and the bytes of the snapshot."""
    times, size = [], state.run(batches)
    for _ in range(repetitions):
        start = time.perf_counter()
        size = state.run(batches)
        times.append(time.perf_counter() - start)
    return median(times) / sum(b.num_rows for b in batches), size


def _names(keys: Any) -> pa.Array:
    return pa.array([f"device-{k:07d}" for k in keys])


def _readings(keys: int, of: int, rows: int) -> list[pa.RecordBatch]:
    """Generate readings of ``of`` randomly chosen keys."""
    rng = np.random.default_rng(1)
    names = _names(rng.choice(keys, of, replace=False))
    return _batches(names.take(pa.array(rng.integers(0, of, rows))))


def _batches(devices: pa.Array) -> list[pa.RecordBatch]:
    values = pa.array(np.random.default_rng(2).standard_normal(len(devices)))
    whole = pa.RecordBatch.from_pydict({"device": devices, "value": values})
    return [whole.slice(i, BATCH) for i in range(0, len(devices), BATCH)]


# -- Spark -----------------------------------------------------------------------------------------


def _on_spark(base: Path, most: int, rows: int, repetitions: int) -> Iterator[Measure]:
    """Measure the same on Spark: a query with few keys, and one with many whose micro-batches touch all or 1 %."""
    with spark_session() as spark:
        few = write_readings(base / "few", 1 + repetitions, rows, 1000)
        many = base / "many"
        # the first micro-batch creates the keys; a new full snapshot, made when deltas exceed it, falls in "all"
        kinds = ["all"] + ["all"] * repetitions + ["part"] * repetitions
        for i, kind in enumerate(kinds):
            write_readings(many, 1, rows, most, of=most if kind == "all" else most // 100, first=i)
        seconds: dict[str, list[float]] = {"few": _run(spark, base / "c1", few, rows)[1:], "all": [], "part": []}
        for kind, taken in list(zip(kinds, _run(spark, base / "c2", many, rows), strict=True))[1:]:
            seconds[kind].append(taken)
        sizes: dict[str, list[int]] = {"all": [], "part": []}
        for kind, size in list(zip(kinds, _changelog_bytes(base / "c2"), strict=False))[1:]:
            sizes[kind].append(size)
    how = f"micro-batches of {rows:,} rows, local[2]"
    for kind, name, text in (
        ("few", "1000", "1,000 keys"),
        ("all", f"{most}", f"{most:,} keys, all touched"),
        ("part", f"{most}-touch-1-percent", f"1 % of {most:,} keys touched"),
    ):
        yield Measure(f"growth/spark/rows/{name}", 1e9 * median(seconds[kind]) / rows, "ns/row", f"{text}, {how}")
    yield Measure(
        "growth/spark/many-vs-few-keys",
        median(seconds["all"]) / median(seconds["few"]),
        "ratio",
        f"cost per row with {most:,} keys against 1,000; {how}",
        2,
        at_most=True,
    )
    yield Measure(
        "growth/spark/touch-1-percent",
        median(seconds["part"]) / median(seconds["all"]),
        "ratio",
        f"cost per row of micro-batches that touch 1 % of {most:,} keys against all; {how}",
        2,
        at_most=True,
    )
    if sizes["part"]:
        touched = most * (1 - (1 - 1 / most) ** rows)
        each = median(sizes["all"]) / touched, median(sizes["part"]) / (most // 100)
        yield Measure("growth/spark/written-all", each[0], "bytes/key", "state store files per key touched, all keys")
        yield Measure(
            "growth/spark/written-1-percent", each[1], "bytes/key", "state store files per key touched, 1 % of the keys"
        )
        yield Measure(
            "growth/spark/written-1-percent-vs-all",
            each[1] / each[0],
            "ratio",
            "bytes written per key touched, 1 % of the keys against all",
            2,
            at_most=True,
        )


def _run(spark: Any, checkpoint: Path, data: Path, rows: int) -> list[float]:
    query = kalman_flow().start(
        spark, RecordFiles(data, rows // 2), sinks=DiscardSink(), max_records=rows, checkpoint=checkpoint
    )
    query.wait()
    return durations(query.streaming)


def _changelog_bytes(checkpoint: Path) -> list[int]:
    """Return the bytes of the state store's change logs per micro-batch."""
    sizes: dict[int, int] = {}
    for path in (checkpoint / "state").rglob("*.changelog"):
        version = int(path.stem.split("_")[0])
        sizes[version] = sizes.get(version, 0) + path.stat().st_size
    return [sizes[v] for v in sorted(sizes)]


# -- memory ----------------------------------------------------------------------------------------


def _memory(base: Path, most: int) -> Iterator[Measure]:
    """Measure the memory of STATS over the same number of messages with few and with many keys."""
    peaks = {}
    files = 3 * (most // 5) // MESSAGES_PER_FILE + 1
    for keys in (5000, most):
        data = write_city(base / f"memory-{keys}", files * MESSAGES_PER_FILE, files, keys // 5)
        with spark_session() as spark, _peak_memory() as peak:
            tumbling_stats().start(
                spark, LineFiles(data, MESSAGES_PER_FILE), sinks=DiscardSink(), max_records=4 * MESSAGES_PER_FILE
            ).wait()
        peaks[keys] = peak
    for part in ("driver", "jvm", "workers"):
        for keys, peak in peaks.items():
            yield Measure(
                f"growth/memory/{part}/{keys}",
                peak[part] / 2**20,
                "MiB",
                f"peak memory, STATS on local[2] with {keys:,} keys; shared pages counted proportionally",
            )
    for part, text in (("workers", "Python workers"), ("driver", "Python process that started the query")):
        yield Measure(
            f"growth/memory/{part}-per-key",
            (peaks[most][part] - peaks[5000][part]) / (most - 5000),
            "bytes/key",
            f"STATS, {text}: additional memory of {most:,} keys against 5,000, per key",
        )


@contextmanager
def _peak_memory() -> Iterator[dict[str, int]]:
    """Track the peak memory of this process, the JVM and the Python workers."""
    import psutil

    peak = {"driver": 0, "jvm": 0, "workers": 0}
    stop = threading.Event()
    this = psutil.Process()

    def watch() -> None:
        while not stop.wait(0.3):
            now = {"driver": _resident_bytes(this), "jvm": 0, "workers": 0}
            for child in this.children(recursive=True):
                try:
                    now["jvm" if child.name() == "java" else "workers"] += _resident_bytes(child)
                except psutil.Error:  # the process has ended
                    continue
            for part, size in now.items():
                peak[part] = max(peak[part], size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()


def _resident_bytes(process: Any) -> int:
    """Return the proportional set size if available, since forked workers share pages; else the resident size."""
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", 0) or memory.rss)
