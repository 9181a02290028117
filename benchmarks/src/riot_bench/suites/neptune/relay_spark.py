"""The message relay on Spark, over message sizes, block sizes and micro-batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.neptune.messages import POOL_BYTES, MessageSource, ReceivingSink, RelayResult
from riot_bench.suites.neptune.relay import BUFFERS, QUICK_BUFFERS, QUICK_SIZES, SIZES, size_label, with_published
from riot_bench.suites.neptune.thesis import BANDWIDTH, LATENCY, THROUGHPUT
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.dataflow import Dataflow

__all__ = ["relay_measures", "spark_relay"]

#: Bytes of a block, of a micro-batch, and of a micro-batch in the sweep over block sizes (full and quick form).
BLOCK, MICRO_BATCH, SWEEP_MICRO_BATCH, QUICK_SWEEP_MICRO_BATCH = 1 << 20, 32 << 20, 4 << 20, 1 << 20
#: Counted micro-batches of each setting.
REPETITIONS, QUICK_REPETITIONS = 8, 4


class _Run(NamedTuple):
    rates: list[float]  # of its micro-batches
    found: RelayResult


def spark_relay(quick: bool) -> Iterator[Measure]:
    """Measure the relay on Spark.

    The relay counts messages in a worker after a shuffle, so its count is the message number.
    """
    require_extra("this experiment", "spark", "pyspark", "pandas")
    repetitions, swept = (QUICK_REPETITIONS, QUICK_SWEEP_MICRO_BATCH) if quick else (REPETITIONS, SWEEP_MICRO_BATCH)
    buffers = QUICK_BUFFERS if quick else BUFFERS
    with spark_session() as session:
        for size in QUICK_SIZES if quick else SIZES:
            yield from relay_measures(
                session, size, repetitions, MICRO_BATCH, buffers if size == SIZES[0] else (), swept
            )


def relay_measures(
    session: Any,
    size: int,
    repetitions: int,
    micro_batch: int,
    buffers: Sequence[int] = (),
    swept: int = SWEEP_MICRO_BATCH,
) -> Iterator[Measure]:
    """Measure all runs with messages of a size; ``buffers`` are the bytes of blocks, then of micro-batches."""
    at = f"neptune/relay/spark/{size_label(size)}"
    runs = {at: (micro_batch, BLOCK)}
    runs |= {f"{at}/buffer-{size_label(n)}": (swept, n) for n in buffers}
    runs |= {f"{at}/micro-batch-{size_label(n)}": (n, BLOCK) for n in buffers}
    made = dict[str, _Run]()
    for name, (read, block) in runs.items():
        batch = max(1, read // size)
        made[name] = run = _run(session, size, batch, repetitions, block)
        how = f"{size_label(size)}, local[2], micro-batches of {batch:,}, blocks of {size_label(block)}"
        yield from _figures(name, size, run, how, main=name == at)
    if buffers:
        few, many = (f"{at}/buffer-{size_label(n)}" for n in (min(buffers), max(buffers)))
        gains = [a / b for a, b in zip(made[many].rates, made[few].rates, strict=False)]
        note = f"blocks of {size_label(max(buffers))} against those of {size_label(min(buffers))}, by micro-batch"
        yield _median_of_batches(f"{at}/vs-small-blocks", gains, "ratio", note)
    found = [run.found for run in made.values()]
    lost, disorder = sum(abs(one.lost) for one in found), sum(one.disorder for one in found)
    yield Measure(f"{at}/lost", lost, "messages", "lost or duplicated, in all of these runs", 0, at_most=True)
    yield Measure(f"{at}/disorder", disorder, "messages", "in all of these runs", 0, at_most=True)


def _run(session: Any, size: int, batch: int, repetitions: int, block: int) -> _Run:
    read = block if block < BLOCK else POOL_BYTES  # small blocks need small batches
    messages = MessageSource(size, total=batch * (repetitions + 1), read=read)
    flow = Dataflow("relay")
    source = flow.source("messages", schema=messages.schema)
    flow.sink("received", source.to(t.RunningCount(), id="relay"))
    with temporary_folder() as notes:
        sink = ReceivingSink(notes)
        query = flow.start(session, messages, sinks=sink, max_records=batch, buffering=Buffering(capacity=block))
        query.wait()
        found = sink.result(batch * (repetitions + 1))
    rates = [batch / one for one in durations(query.streaming)[1 : repetitions + 1]]
    return _Run(rates, found)


def _figures(at: str, size: int, run: _Run, how: str, *, main: bool) -> Iterator[Measure]:
    throughput, latency, bandwidth = (t[size] if main else None for t in (THROUGHPUT, LATENCY, BANDWIDTH))
    yield with_published(
        _median_of_batches(at, run.rates, "messages/s", how + ", without the first of a run"), throughput
    )
    for name, value in (("mean", run.found.mean), ("sd", run.found.deviation), ("p99", run.found.p99)):
        one = Measure(f"{at}/latency/{name}", value, "ms", how + ", from reading to the step's output")
        yield with_published(one, latency, name)
    widths = [rate * size * 8 / 1e9 for rate in run.rates]
    yield with_published(_median_of_batches(f"{at}/bandwidth", widths, "Gbit/s", how), bandwidth)


def _median_of_batches(name: str, values: Sequence[float], unit: str, how: str) -> Measure:
    """Return the median of the micro-batches of one run; they are a sample, not runs."""
    return Measure(name, median(values), unit, how, sample=tuple(values))
