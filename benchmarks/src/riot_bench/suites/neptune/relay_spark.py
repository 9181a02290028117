"""The relay on Spark, over sizes of messages, of the blocks in which they cross, and of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from riot_bench.harness.confidence import welch
from riot_bench.harness.data import needs
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import durations, folder, spark_session
from riot_bench.suites.neptune.messages import POOL_BYTES, Messages, Received, Relayed
from riot_bench.suites.neptune.published import BANDWIDTH, LATENCY, THROUGHPUT
from riot_bench.suites.neptune.relay import BUFFERS, QUICK_BUFFERS, QUICK_SIZES, SIZES, beside, label
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.dataflow import Dataflow

__all__ = ["relays", "spark"]

#: Bytes of a block, and of a micro-batch; of one whose blocks are swept over.
BLOCK, MICRO_BATCH, SWEPT, QUICK_SWEPT = 1 << 20, 32 << 20, 4 << 20, 1 << 20
#: Micro-batches that count, of each setting.
REPETITIONS, QUICK_REPETITIONS = 8, 4


class _Run(NamedTuple):
    rates: list[float]  # of its micro-batches
    found: Relayed


def spark(quick: bool) -> Iterator[Measure]:
    """On Spark, where the relay counts in a worker behind a shuffle: its count is the message's number."""
    needs("this experiment", "spark", "pyspark", "pandas")
    repetitions, swept = (QUICK_REPETITIONS, QUICK_SWEPT) if quick else (REPETITIONS, SWEPT)
    buffers = QUICK_BUFFERS if quick else BUFFERS
    with spark_session() as session:
        for size in QUICK_SIZES if quick else SIZES:
            yield from relays(session, size, repetitions, MICRO_BATCH, buffers if size == SIZES[0] else (), swept)


def relays(
    session: Any, size: int, repetitions: int, micro_batch: int, buffers: Sequence[int] = (), swept: int = SWEPT
) -> Iterator[Measure]:
    """All runs with messages of a size; ``buffers``: what blocks, and then micro-batches, have in bytes."""
    at = f"neptune/relay/spark/{label(size)}"
    runs = {at: (micro_batch, BLOCK)}
    runs |= {f"{at}/buffer-{label(n)}": (swept, n) for n in buffers}
    runs |= {f"{at}/micro-batch-{label(n)}": (n, BLOCK) for n in buffers}
    made = dict[str, _Run]()
    for name, (read, block) in runs.items():
        batch = max(1, read // size)
        made[name] = run = _run(session, size, batch, repetitions, block)
        how = f"{label(size)}, local[2], micro-batches of {batch:,}, blocks of {label(block)}"
        yield from _figures(name, size, run, how, main=name == at)
    if buffers:
        few, many = (f"{at}/buffer-{label(n)}" for n in (min(buffers), max(buffers)))
        tested = welch(made[many].rates, made[few].rates)
        told = f"Welch, of micro-batches of one run each, H0: blocks of {label(max(buffers))} are no faster than "
        told += f"those of {label(min(buffers))}; t = {tested.statistic:.2f}, df = {tested.df:.2f}"
        yield Measure(f"{at}/welch-p", tested.p, "p", told, 0.05, at_most=True)
    found = [run.found for run in made.values()]
    lost, disorder = sum(abs(one.lost) for one in found), sum(one.disorder for one in found)
    yield Measure(f"{at}/lost", lost, "messages", "lost or doubled, in all of these runs", 0, at_most=True)
    yield Measure(f"{at}/disorder", disorder, "messages", "in all of these runs", 0, at_most=True)


def _run(session: Any, size: int, batch: int, repetitions: int, block: int) -> _Run:
    read = block if block < BLOCK else POOL_BYTES  # small blocks are not cut from large batches
    messages = Messages(size, total=batch * (repetitions + 1), read=read)
    flow = Dataflow("relay")
    source = flow.source("messages", schema=messages.schema)
    flow.sink("received", source.to(t.RunningCount(), id="relay"))
    with folder() as notes:
        sink = Received(notes)
        query = flow.start(session, messages, sinks=sink, max_records=batch, buffering=Buffering(capacity=block))
        query.wait()
        found = sink.relayed(batch * (repetitions + 1))
    rates = [batch / one for one in durations(query.streaming)[1 : repetitions + 1]]
    return _Run(rates, found)


def _figures(at: str, size: int, run: _Run, how: str, *, main: bool) -> Iterator[Measure]:
    throughput, latency, bandwidth = (t[size] if main else None for t in (THROUGHPUT, LATENCY, BANDWIDTH))
    yield beside(_of_batches(at, run.rates, "messages/s", how + ", in the later ones of one run"), throughput)
    for name, value in (("mean", run.found.mean), ("sd", run.found.deviation), ("p99", run.found.p99)):
        one = Measure(f"{at}/latency/{name}", value, "ms", how + ", from reading to the step's output")
        yield beside(one, latency, name)
    widths = [rate * size * 8 / 1e9 for rate in run.rates]
    yield beside(_of_batches(f"{at}/bandwidth", widths, "Gbit/s", how), bandwidth)


def _of_batches(name: str, values: Sequence[float], unit: str, how: str) -> Measure:
    """The median of micro-batches of one run, which is no more than one run."""
    return Measure(name, median(values), unit, how, sample=tuple(values))
