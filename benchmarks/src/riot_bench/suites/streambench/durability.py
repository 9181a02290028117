"""StreamBench's suite of durability: word count at steady rates for long, with marks that tell whether it is up."""

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

from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import progress, spark_session
from riot_bench.suites.streambench.formulas import availability, slope
from riot_bench.suites.streambench.runs import flow_of
from riot_ops import streams
from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Source, Split, WrappedSource
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.processes import ProcessTree
from riot_ops.ingest.pace import Paced

__all__ = ["Marked", "Seen", "Sizes", "check_rates", "durability"]

#: A mark begins with this, behind which are its number and when it was due (µs since the epoch).
MARK = "mark!"
#: Seconds between marks, between micro-batches, and until a mark must be seen.
SLOT_S, TRIGGER_S = 10.0, 1.0
LIMIT_S = max(3 * TRIGGER_S, 30.0)
#: Growth of memory that is a leak, % per minute, and the share of the time in which it settles.
LEAK, SETTLING = 1.0, 0.25


@dataclass(frozen=True)
class Sizes:
    """Records per minute of each query, all of them at once, and for how long (s)."""

    rates: tuple[float, ...]
    seconds: float


FULL = Sizes((10_000, 200_000), 1800.0)
QUICK = Sizes((10_000, 200_000), 120.0)


class Marked(WrappedSource):
    """Lines some of which are marks: one word with its number, and when it was due.

    Parameters
    ----------
    every : float, >= 1
        Lines from one mark to the next; where they are no whole number, a mark is the first line behind its place.
    """

    def __init__(self, source: Source, every: float) -> None:
        super().__init__(source)
        self.every = every

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        due, first = split.get("due"), None
        for batch in super().read(split):
            seq = int_column(batch.column("seq"))
            first = int(seq[0]) if first is None and seq.size else first
            places, numbers = marks_of(seq, self.every)
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


def marks_of(seq: Any, every: float) -> tuple[Any, Any]:
    """At which places of the numbers of lines there are marks, and the numbers of these.

    >>> places, numbers = marks_of(np.arange(6), 2.5)
    >>> places.tolist(), numbers.tolist()
    ([0, 3, 5], [0, 1, 2])
    """
    number = np.floor(seq / every).astype(np.int64)
    places = np.flatnonzero(number > np.floor((seq - 1) / every))
    return places, number[places]


class Seen:
    """Takes counts of words and notes when each mark was seen first, and how late (s)."""

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
    """Availability of word count at two rates, in two queries of one session, and how memory grows meanwhile.

    Parameters
    ----------
    programs : sequence of str
        Where some are named, nothing is done without ``wordcount``.
    scale : float, default 1
        Times the rates.
    rate : sequence of float, > 0, optional
        Records per minute, in place of those of the form; times the scale they are at least 6, one for each mark.
    seconds : float, > 0, optional
        For how long, in place of the time of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = Sizes(tuple(rate) or sizes.rates, sizes.seconds if seconds is None else seconds)
    if programs and "wordcount" not in programs:
        return
    check_rates(sizes.rates, scale)
    with spark_session(2) as spark, ExitStack() as stack, ProcessTree(every_s=1.0) as tree:
        running = {each: _start(spark, each * scale, sizes.seconds) for each in sizes.rates}
        for query, _ in running.values():
            stack.callback(query.stop)
        begun, until = time.time(), time.monotonic() + sizes.seconds
        while (left := until - time.monotonic()) > -LIMIT_S and not _done(running, sizes.seconds, left):
            time.sleep(0.1)
            for query, _ in running.values():
                query.poll()
        usage = tree.usage().between(begun + SETTLING * sizes.seconds, begun + sizes.seconds)
        for each, (query, seen) in running.items():
            yield from _figures(f"streambench/durability/{plain(each * scale)}", query, seen, sizes.seconds)
    at, how, n = "streambench/durability/memory-slope", "memory of all processes, both queries", usage.times.size
    if n < 2:
        yield Measure(at, math.nan, "%/min", f"{how}; too few samples for a slope: {n} of 2")
        return
    grown = slope(usage.times.tolist(), usage.memory.tolist())
    how += f", {np.mean(usage.memory) / 2**20:,.0f} MiB in the mean"
    yield Measure(at, grown, "%/min", how, LEAK, at_most=True)


def check_rates(rates: Sequence[float] = FULL.rates, scale: float = 1.0) -> None:
    """Raise where a rate has no record for some mark."""
    for each in rates:
        if each * scale * SLOT_S < 60:
            least = f"{60 / SLOT_S:g} records per minute, one for each mark"
            raise ConfigError(f"--rate times --scale must be at least {least}, got {plain(each * scale)}")


def plain(number: float) -> str:
    """A number with all of its digits, and without an exponent.

    >>> plain(2_880_000.0), plain(1_234_567), plain(0.5)
    ('2880000', '1234567', '0.5')
    """
    return np.format_float_positional(number, trim="-")


def _start(spark: Any, per_minute: float, seconds: float) -> tuple[Any, Seen]:
    per_second = per_minute / 60
    messages, every = math.ceil(per_minute * seconds / 60), max(1.0, per_minute * SLOT_S / 60)
    source = Paced(Marked(streams.generate("searches", messages=messages), every), rate=per_second)
    seen = Seen()
    sink = CallbackSink(seen)
    return flow_of("wordcount").start(spark, source, sinks=sink, trigger=f"{TRIGGER_S:g} seconds"), seen


def _slots(seconds: float) -> int:
    return max(1, int(seconds // SLOT_S))


def _done(running: dict[float, tuple[Any, Seen]], seconds: float, left: float) -> bool:
    """Whether no mark is to come behind the time, or before it marks are missing and nothing runs any more."""
    missing = [query.active for query, seen in running.values() if len(seen.delays) < _slots(seconds)]
    if left > 0:
        return bool(missing) and not any(query.active for query, _ in running.values())
    return not any(missing)


def _figures(at: str, query: Any, seen: Seen, seconds: float) -> Iterator[Measure]:
    slots = _slots(seconds)
    delays = [seen.delays.get(number) for number in range(slots)]
    share = availability(delays, LIMIT_S)
    ended = "; the query ended before" if None in delays and not query.active else ""
    how = f"packed word count, {slots} marks in {seconds:g} s, each to be seen within {LIMIT_S:g} s{ended}"
    yield Measure(f"{at}/availability", share, "%", how, 100)
    known = tuple(1000 * delay for delay in delays if delay is not None)
    if known:
        yield Measure(f"{at}/latency", median(known), "ms", "from when a mark was due until it was seen", sample=known)
    read = max(query.summary.messages, 1)
    yield Measure(f"{at}/failed", 100 * seen.rejected / read, "%", f"of {read:,} records", 0, at_most=True)
    stores = [store for last in progress(query.streaming)[-1:] for store in last["stateOperators"]]
    if stores:
        size = sum(int(store["memoryUsedBytes"]) for store in stores)
        yield Measure(f"{at}/state", size, "bytes", "memory of Spark's stores of state at the end, as Spark tells it")
