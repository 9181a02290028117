"""The message relay of three stages, source, relay and sink: in threads, and across processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from riot_bench.harness.confidence import confidence_interval
from riot_bench.harness.formatting import format_number
from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_bench.suites.neptune.messages import MessageSource, ReceivingSink, RelayResult
from riot_bench.suites.neptune.processes import CHUNK, ProcessRelay, measure_link_capacity
from riot_bench.suites.neptune.thesis import (
    BANDWIDTH,
    FULL_FROM,
    LATENCY,
    LINK_SHARE,
    SMALL_BUFFER,
    SMALL_BUFFER_LATENCY,
    THROUGHPUT,
    Comparison,
)
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import PacedSource

__all__ = ["local_relay", "median_of_runs", "process_relay", "relay_flow", "size_label", "with_published"]

SIZES = (50, 100, 200, 400, 1024, 4096, 10_240)
BUFFERS = tuple(1 << k for k in range(10, 21))  # 1 KiB to 1 MiB
#: Message sizes and buffers of the quick form.
QUICK_SIZES, QUICK_BUFFERS = (50, 400, 10_240), (1 << 10, 1 << 14, 1 << 17)
#: Rate of the paced relay, target of its 99th percentile (ms), and the share of the rate that it must keep.
PACED_RATE, PACED_P99, MIN_PACED_SHARE = 1_000_000, 10.0, 0.95
#: Target in messages of 50 bytes per second.
REACH = 2e6
SMALL = f"thesis below {SMALL_BUFFER_LATENCY:g} ms at 16 KB, for messages of all sizes"

Run = Callable[[MessageSource, Buffering], RelayResult]


def relay_flow(messages: MessageSource) -> Dataflow:
    """Create the dataflow of three stages: a source, a step that forwards, and a sink."""
    flow = Dataflow("relay")
    flow.sink("received", flow.source("messages", schema=messages.schema).to(t.NoOp(), id="relay"))
    return flow


def run_local(messages: Any, buffering: Buffering) -> RelayResult:
    """Run a relay in threads of this process."""
    sink, given = ReceivingSink(), getattr(messages, "source", messages)
    relay_flow(given).run(messages, sinks=sink, buffering=buffering)
    return sink.result(given.messages_read)


def size_label(size: int) -> str:
    """Format a size for the names of measures.

    >>> size_label(50), size_label(10240), size_label(1 << 20)
    ('50B', '10KB', '1MB')
    """
    for unit, one in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= one and size % one == 0:
            return f"{size // one}{unit}"
    return f"{size}B"


def local_relay(quick: bool) -> Iterator[Measure]:
    """Measure the relay in threads: all sizes and buffers, and the latency at a million messages per second."""
    run_local(MessageSource(50, seconds=0.2), Buffering())  # compiles
    yield from _sweep("local", run_local, quick, 0.4 if quick else 2.0)
    found = [
        run_local(PacedSource(MessageSource(50, total=PACED_RATE), rate=PACED_RATE), Buffering.named("latency"))
        for _ in range(2 if quick else 5)
    ]
    how = "50 B, 1,000,000 messages/s, buffering latency; from when each was due"
    at = "neptune/relay/local/50B/paced"
    p99 = median_of_runs(f"{at}/p99", [one.p99 for one in found], "ms", f"{how}; {SMALL}", PACED_P99, at_most=True)
    yield replace(p99, published=SMALL_BUFFER_LATENCY)
    yield median_of_runs(f"{at}/rate", [one.rate for one in found], "messages/s", how, MIN_PACED_SHARE * PACED_RATE)
    note = "lost, duplicated or out of order, in all runs"
    yield Measure(f"{at}/lost", sum(one.faults for one in found), "messages", note, 0, at_most=True)


def process_relay(quick: bool) -> Iterator[Measure]:
    """Measure the relay in another process, with source and sink in this one and sockets between them."""
    widths = measure_link_capacity(5)
    note = f"plain bytes between two processes, {CHUNK >> 20} MiB per send; a relayed message crosses twice"
    yield median_of_runs("neptune/relay/processes/capacity", widths, "Gbit/s", note)
    with ProcessRelay() as run:
        run(MessageSource(50, seconds=0.1), Buffering())  # compiles there
        yield from _sweep("processes", run, quick, 0.5 if quick else 2.0, median(widths))


def _sweep(name: str, run: Run, quick: bool, seconds: float, capacity: float | None = None) -> Iterator[Measure]:
    """Measure all sizes and buffers; ``capacity`` is that of the link in Gbit/s, if there is one."""
    repetitions = 3 if quick else 5
    lost = disorder = 0
    for size in QUICK_SIZES if quick else SIZES:
        at, how = f"neptune/relay/{name}/{size_label(size)}", f"{size_label(size)}, buffers of 1 MiB or 10 ms"
        whole, alone = Buffering(capacity=1 << 20, flush_after="10ms", codec=None), Buffering(capacity=0, codec=None)
        found, single = list[RelayResult](), list[RelayResult]()
        for _ in range(repetitions):  # alternating
            found.append(run(MessageSource(size, seconds=seconds), whole))
            single.append(run(MessageSource(size, seconds=seconds / 2), alone))
        lost += sum(abs(one.lost) for one in found + single)
        disorder += sum(one.disorder for one in found + single)
        yield from _figures(at, found, size, how)
        if capacity is not None:
            yield _link_share(f"{at}/share", found, size, capacity)
        yield median_of_runs(f"{at}/immediate", [one.rate for one in single], "messages/s", "each message alone")
        gains = [whole_run.rate / each.rate for whole_run, each in zip(found, single, strict=True)]
        yield median_of_runs(f"{at}/vs-immediate", gains, "ratio", "full buffers against each message alone")
        for room in () if quick and size != QUICK_SIZES[0] else QUICK_BUFFERS if quick else BUFFERS[:-1]:
            buffering = Buffering(capacity=room, flush_after="10ms", codec=None)
            some = [run(MessageSource(size, seconds=seconds), buffering) for _ in range(repetitions)]
            lost += sum(abs(one.lost) for one in some)
            disorder += sum(one.disorder for one in some)
            yield from _figures(f"{at}/{size_label(room)}", some, size, f"buffers of {size_label(room)} or 10 ms", room)
    note = "lost or duplicated, in all of these runs"
    yield Measure(f"neptune/relay/{name}/lost", lost, "messages", note, 0, at_most=True)
    yield Measure(f"neptune/relay/{name}/disorder", disorder, "messages", "in all of these runs", 0, at_most=True)


def _figures(at: str, found: Sequence[RelayResult], size: int, how: str, room: int | None = None) -> Iterator[Measure]:
    """Yield throughput, latency and bandwidth; the thesis has values for the default buffers (``room=None``)."""
    rates, main = [one.rate for one in found], room is None
    throughput, latency, bandwidth = (t[size] if main else None for t in (THROUGHPUT, LATENCY, BANDWIDTH))
    reach = REACH if main and at == "neptune/relay/local/50B" else None
    low, high = confidence_interval(rates, minimum=0.0)
    note = f"{how}; mean {fmean(rates):,.0f}, 95 % interval {low:,.0f} to {high:,.0f}"
    yield with_published(median_of_runs(at, rates, "messages/s", note, reach), throughput)
    mean = median_of_runs(f"{at}/latency/mean", [one.mean for one in found], "ms", how)
    if room == SMALL_BUFFER:
        mean = replace(mean, against=f"{how}; {SMALL}", published=SMALL_BUFFER_LATENCY)
    yield with_published(mean, latency)
    yield with_published(median_of_runs(f"{at}/latency/sd", [one.deviation for one in found], "ms", how), latency, "sd")
    yield with_published(median_of_runs(f"{at}/latency/p99", [one.p99 for one in found], "ms", how), latency, "p99")
    widths = [rate * size * 8 / 1e9 for rate in rates]
    yield with_published(median_of_runs(f"{at}/bandwidth", widths, "Gbit/s", how), bandwidth)


def _link_share(at: str, found: Sequence[RelayResult], size: int, capacity: float) -> Measure:
    """Return the messages' share of the link's capacity."""
    low, high = LINK_SHARE
    note = (
        f"bandwidth as a share of the link's capacity; thesis {100 * low:g} to {100 * high:g} % from {FULL_FROM} B on"
    )
    one = median_of_runs(at, [run.rate * size * 8 / 1e9 / capacity for run in found], "share", note)
    return replace(one, published=low if size >= FULL_FROM else None)


def with_published(one: Measure, theirs: Comparison | None, figure: str = "mean") -> Measure:
    """Add the thesis' value for Neptune to a measure, and the one for Storm to its description."""
    if theirs is None:
        return one
    storm = str(theirs) if figure == "mean" else f"thesis, Storm: {format_number(getattr(theirs.storm, figure))}"
    return replace(one, published=getattr(theirs.neptune, figure), against=f"{one.against}; {storm}")


def median_of_runs(
    name: str, values: Sequence[float], unit: str, how: str, reach: float | None = None, *, at_most: bool = False
) -> Measure:
    """Return the measure of several runs: their median and all values."""
    several = tuple(values) if len(values) > 1 else ()
    return Measure(name, median(values), unit, how, reach, at_most=at_most, values=several)
