"""StreamBench's durability suite: word count at steady rates for a long time, with marks that show its availability."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import progress
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.streambench.formulas import availability, relative_slope
from riot_bench.suites.streambench.runs import program_flow
from riot_ops import streams
from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Source, Split, WrappedSource
from riot_ops.ingest.pace import PacedSource
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.processes import ProcessTree

__all__ = ["MarkObserver", "MarkedSource", "Sizes", "check_rates", "durability"]

#: Prefix of a mark, followed by its number and its due time (µs since the epoch).
MARK = "mark!"
#: How the paper measures.
PAPER = "in the paper 1,000,000 records per minute for two days"
#: Seconds between marks, and between micro-batches.
SLOT_S, TRIGGER_S = 10.0, 1.0
#: Seconds within which a mark must be seen.
LIMIT_S = max(3 * TRIGGER_S, 30.0)
#: Memory growth in % per minute that counts as a leak, and the share of the time in which memory settles.
MAX_GROWTH, SETTLING_SHARE = 1.0, 0.25


@dataclass(frozen=True)
class Sizes:
    """Records per minute of each of the concurrent queries, and the duration in seconds."""

    rates: tuple[float, ...]
    seconds: float


FULL = Sizes((10_000, 200_000), 1800.0)
QUICK = Sizes((10_000, 200_000), 120.0)


class MarkedSource(WrappedSource):
    """Lines with marks among them: a word with the number and the due time.

    Parameters
    ----------
    source : Source
    every : float, >= 1
        Lines between two marks; a mark at a fractional position is the next line.
    """

    def __init__(self, source: Source, every: float) -> None:
        super().__init__(source)
        self.every = every

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        due, first = split.get("due"), None
        for batch in super().read(split):
            seq = int_column(batch.column("seq"))
            first = int(seq[0]) if first is None and seq.size else first
            places, numbers = mark_positions(seq, self.every)
            if not places.size:
                yield batch
                continue
            begin, end = due or (time.time() * 1e6,) * 2
            of = max(1, split["end"] - split["start"] - 1)
            marks = [
                f"{MARK}{number}!{begin + (end - begin) * (seq[i] - first) / of:.0f}".encode()
                for i, number in zip(places, numbers, strict=True)
            ]
            column = batch.schema.get_field_index("payload")
            payload = batch.column(column)
            mask = np.zeros(batch.num_rows, np.bool_)
            mask[places] = True
            marked = pc.replace_with_mask(payload, pa.array(mask), pa.array(marks, payload.type))
            yield batch.set_column(column, batch.schema.field(column), marked)


def mark_positions(seq: Any, every: float) -> tuple[Any, Any]:
    """Return the positions of marks within line numbers, and the numbers of the marks.

    >>> places, numbers = mark_positions(np.arange(6), 2.5)
    >>> places.tolist(), numbers.tolist()
    ([0, 3, 5], [0, 1, 2])
    """
    number = np.floor(seq / every).astype(np.int64)
    places = np.flatnonzero(number > np.floor((seq - 1) / every))
    return places, number[places]


class MarkObserver:
    """Sink callback that records how late each mark was first seen (s)."""

    def __init__(self) -> None:
        self.delays: dict[int, float] = {}
        self.rejected = 0

    def __call__(self, stream: str, batch: pa.RecordBatch) -> None:
        if stream != "counts":
            self.rejected += batch.num_rows
            return
        now = time.time()
        for word in batch.column("word").filter(pc.starts_with(batch.column("word"), MARK)).to_pylist():
            _, number, due = word.split("!")
            self.delays.setdefault(int(number), now - float(due) / 1e6)


def durability(
    quick: bool,
    programs: Sequence[str],
    scale: float = 1.0,
    sizes: Sizes | None = None,
    *,
    rate: Sequence[float] = (),
    seconds: float | None = None,
) -> Iterator[Measure]:
    """Measure the availability of word count at two rates, in two queries of one session, and the memory growth.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        If programs are named and ``wordcount`` is not among them, nothing is measured.
    scale : float, default 1
        Factor of the rates.
    sizes : Sizes, optional
        By default those of the form.
    rate : sequence of float, > 0, optional
        Records per minute instead of those of ``sizes``; times the scale at least 6, one for each mark.
    seconds : float, > 0, optional
        Duration instead of that of ``sizes``.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = Sizes(tuple(rate) or sizes.rates, sizes.seconds if seconds is None else seconds)
    if programs and "wordcount" not in programs:
        return
    check_rates(sizes.rates, scale)
    with spark_session(2) as spark, ExitStack() as stack, ProcessTree(every="1s") as tree:
        running = {each: _start(spark, each * scale, sizes.seconds) for each in sizes.rates}
        for query, _ in running.values():
            stack.callback(query.stop)
        begun, until = time.time(), time.monotonic() + sizes.seconds
        while (left := until - time.monotonic()) > -LIMIT_S and not _done(running, sizes.seconds, left):
            time.sleep(0.1)
            for query, _ in running.values():
                query.poll()
        usage = tree.usage().between(begun + SETTLING_SHARE * sizes.seconds, begun + sizes.seconds)
        for each, (query, seen) in running.items():
            yield from _figures(f"streambench/durability/{format_plain(each * scale)}", query, seen, sizes.seconds)
    at, how, n = "streambench/durability/memory-slope", "memory of all processes, both queries", usage.times.size
    if n < 2:
        yield Measure(at, math.nan, "%/min", f"{how}; too few samples for a slope: {n} of 2")
        return
    grown = relative_slope(usage.times.tolist(), usage.memory.tolist())
    how += f", {np.mean(usage.memory) / 2**20:,.0f} MiB in the mean"
    yield Measure(at, grown, "%/min", how, MAX_GROWTH, at_most=True)


def check_rates(rates: Sequence[float] = FULL.rates, scale: float = 1.0) -> None:
    """Raise :class:`ConfigError` if a rate has fewer records than marks."""
    for each in rates:
        if each * scale * SLOT_S < 60:
            least = f"{60 / SLOT_S:g} records per minute, one for each mark"
            raise ConfigError(f"--rate times --scale must be at least {least}, got {format_plain(each * scale)}")


def format_plain(number: float) -> str:
    """Format a number with all digits and without an exponent.

    >>> format_plain(2_880_000.0), format_plain(1_234_567), format_plain(0.5)
    ('2880000', '1234567', '0.5')
    """
    return np.format_float_positional(number, trim="-")


def _start(spark: Any, per_minute: float, seconds: float) -> tuple[Any, MarkObserver]:
    per_second = per_minute / 60
    messages, every = math.ceil(per_minute * seconds / 60), max(1.0, per_minute * SLOT_S / 60)
    source = PacedSource(MarkedSource(streams.generate("searches", messages=messages), every), rate=per_second)
    seen = MarkObserver()
    sink = CallbackSink(seen)
    return program_flow("wordcount").start(spark, source, sinks=sink, trigger=f"{TRIGGER_S:g} seconds"), seen


def _slots(seconds: float) -> int:
    return max(1, int(seconds // SLOT_S))


def _done(running: dict[float, tuple[Any, MarkObserver]], seconds: float, left: float) -> bool:
    """Return whether all marks were seen after the time, or whether all queries ended before it with marks missing."""
    missing = [query.active for query, seen in running.values() if len(seen.delays) < _slots(seconds)]
    if left > 0:
        return bool(missing) and not any(query.active for query, _ in running.values())
    return not any(missing)


def _figures(at: str, query: Any, seen: MarkObserver, seconds: float) -> Iterator[Measure]:
    slots = _slots(seconds)
    delays = [seen.delays.get(number) for number in range(slots)]
    share = availability(delays, LIMIT_S)
    ended = "; the query ended early" if None in delays and not query.active else ""
    how = f"packed word count, {slots} marks in {seconds:g} s, to be seen within {LIMIT_S:g} s{ended}; {PAPER}"
    yield Measure(f"{at}/availability", share, "%", how, 100)
    known = tuple(1000 * delay for delay in delays if delay is not None)
    if known:
        yield Measure(f"{at}/latency", median(known), "ms", "from when a mark is due until it is seen", sample=known)
    read = max(query.summary.messages, 1)
    yield Measure(f"{at}/failed", 100 * seen.rejected / read, "%", f"of {read:,} records", 0, at_most=True)
    stores = [store for last in progress(query.streaming)[-1:] for store in last["stateOperators"]]
    if stores:
        size = sum(int(store["memoryUsedBytes"]) for store in stores)
        yield Measure(f"{at}/state", size, "bytes", "memory of Spark's state stores at the end, as reported by Spark")
