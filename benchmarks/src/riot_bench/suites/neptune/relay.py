"""The relay of three stages, source, relay and sink: in threads, and over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from riot_bench.harness.confidence import interval, welch
from riot_bench.harness.measure import Measure, median
from riot_bench.suites.neptune.messages import Messages, Received, Relayed
from riot_bench.suites.neptune.processes import CHUNK, OverProcesses, capacity
from riot_bench.suites.neptune.published import (
    BANDWIDTH,
    FULL_FROM,
    LATENCY,
    LINK_SHARE,
    SMALL_BUFFER,
    SMALL_BUFFER_LATENCY,
    THROUGHPUT,
    Compared,
)
from riot_bench.suites.riotbench.tables import short
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import Paced

__all__ = ["beside", "label", "local", "of_runs", "processes", "relay_flow"]

SIZES = (50, 100, 200, 400, 1024, 4096, 10_240)
BUFFERS = tuple(1 << k for k in range(10, 21))  # 1 KiB to 1 MiB
#: What the experiments do in the quick form: sizes of messages, buffers, repetitions, seconds of each.
QUICK_SIZES, QUICK_BUFFERS = (50, 400, 10_240), (1 << 10, 1 << 14, 1 << 17)
#: Messages per second of the latency that is asked for, what it should be (ms), and the share of them that has to come.
PACE, PACED_P99, PACED_SHARE = 1_000_000, 10.0, 0.95
#: Messages per second of a relay of 50 bytes.
REACH = 2e6
SMALL = f"thesis below {SMALL_BUFFER_LATENCY:g} ms at 16 KB, for messages of all sizes"

Run = Callable[[Messages, Buffering], Relayed]


def relay_flow(messages: Messages) -> Dataflow:
    """Three stages: a source, a step that hands on, a sink."""
    flow = Dataflow("relay")
    flow.sink("received", flow.source("messages", schema=messages.schema).to(t.NoOp(), id="relay"))
    return flow


def in_process(messages: Any, buffering: Buffering) -> Relayed:
    """One relay in threads of this process."""
    sink, given = Received(), getattr(messages, "source", messages)
    relay_flow(given).run(messages, sinks=sink, buffering=buffering)
    return sink.relayed(given.given)


def label(size: int) -> str:
    """A size as the measures name it.

    >>> label(50), label(10240), label(1 << 20)
    ('50B', '10KB', '1MB')
    """
    for unit, one in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= one and size % one == 0:
            return f"{size // one}{unit}"
    return f"{size}B"


def local(quick: bool) -> Iterator[Measure]:
    """In threads: all sizes and buffers, and the latency at a million messages per second."""
    in_process(Messages(50, seconds=0.2), Buffering())  # compiles
    yield from _sweep("local", in_process, quick, 0.4 if quick else 2.0)
    found = [
        in_process(Paced(Messages(50, total=PACE), rate=PACE), Buffering.named("latency"))
        for _ in range(2 if quick else 5)
    ]
    how = "50 B, 1,000,000 messages/s, buffering latency; from when each was due"
    at = "neptune/relay/local/50B/paced"
    p99 = of_runs(f"{at}/p99", [one.p99 for one in found], "ms", f"{how}; {SMALL}", PACED_P99, at_most=True)
    yield replace(p99, published=SMALL_BUFFER_LATENCY)
    yield of_runs(f"{at}/rate", [one.rate for one in found], "messages/s", how, PACED_SHARE * PACE)
    told = "lost, doubled or out of order, in all runs"
    yield Measure(f"{at}/lost", sum(one.faults for one in found), "messages", told, 0, at_most=True)


def processes(quick: bool) -> Iterator[Measure]:
    """Source and sink in this process, the relay in another one, links of sockets between them."""
    widths = capacity(5)
    told = f"plain bytes between two processes, {CHUNK >> 20} MiB at once; a message of the relay crosses twice"
    yield of_runs("neptune/relay/processes/capacity", widths, "Gbit/s", told)
    with OverProcesses() as run:
        run(Messages(50, seconds=0.1), Buffering())  # compiles there
        yield from _sweep("processes", run, quick, 0.5 if quick else 2.0, median(widths))


def _sweep(name: str, run: Run, quick: bool, seconds: float, most: float | None = None) -> Iterator[Measure]:
    """All sizes and buffers; ``most``: Gbit/s of the link, where there is one."""
    repetitions = 3 if quick else 5
    lost = disorder = 0
    for size in QUICK_SIZES if quick else SIZES:
        at, how = f"neptune/relay/{name}/{label(size)}", f"{label(size)}, buffers of 1 MiB or 10 ms"
        whole, alone = Buffering(capacity=1 << 20, flush_ms=10, codec=None), Buffering(capacity=0, codec=None)
        found, single = list[Relayed](), list[Relayed]()
        for _ in range(repetitions):  # in turns
            found.append(run(Messages(size, seconds=seconds), whole))
            single.append(run(Messages(size, seconds=seconds / 2), alone))
        lost += sum(abs(one.lost) for one in found + single)
        disorder += sum(one.disorder for one in found + single)
        yield from _figures(at, found, size, how)
        if most is not None:
            yield _share(f"{at}/share", found, size, most)
        yield of_runs(f"{at}/immediate", [one.rate for one in single], "messages/s", "each message alone")
        tested = welch([one.rate for one in found], [one.rate for one in single])
        told = f"Welch, H0: no faster than each message alone; t = {tested.statistic:.2f}, df = {tested.df:.2f}"
        yield Measure(f"{at}/welch-p", tested.p, "p", told, 0.05, at_most=True)
        for room in () if quick and size != QUICK_SIZES[0] else QUICK_BUFFERS if quick else BUFFERS[:-1]:
            buffering = Buffering(capacity=room, flush_ms=10, codec=None)
            some = [run(Messages(size, seconds=seconds), buffering) for _ in range(repetitions)]
            lost += sum(abs(one.lost) for one in some)
            disorder += sum(one.disorder for one in some)
            yield from _figures(f"{at}/{label(room)}", some, size, f"buffers of {label(room)} or 10 ms", room)
    told = "lost or doubled, in all of these runs"
    yield Measure(f"neptune/relay/{name}/lost", lost, "messages", told, 0, at_most=True)
    yield Measure(f"neptune/relay/{name}/disorder", disorder, "messages", "in all of these runs", 0, at_most=True)


def _figures(at: str, found: Sequence[Relayed], size: int, how: str, room: int | None = None) -> Iterator[Measure]:
    """Throughput, latency and bandwidth; without the size of buffers those that the thesis tells of for the size."""
    rates, main = [one.rate for one in found], room is None
    throughput, latency, bandwidth = (t[size] if main else None for t in (THROUGHPUT, LATENCY, BANDWIDTH))
    reach = REACH if main and at == "neptune/relay/local/50B" else None
    low, high = interval(rates, least=0.0)
    told = f"{how}; mean {fmean(rates):,.0f}, its interval of 95 % {low:,.0f} to {high:,.0f}"
    yield beside(of_runs(at, rates, "messages/s", told, reach), throughput)
    mean = of_runs(f"{at}/latency/mean", [one.mean for one in found], "ms", how)
    if room == SMALL_BUFFER:
        mean = replace(mean, against=f"{how}; {SMALL}", published=SMALL_BUFFER_LATENCY)
    yield beside(mean, latency)
    yield beside(of_runs(f"{at}/latency/sd", [one.deviation for one in found], "ms", how), latency, "sd")
    yield beside(of_runs(f"{at}/latency/p99", [one.p99 for one in found], "ms", how), latency, "p99")
    widths = [rate * size * 8 / 1e9 for rate in rates]
    yield beside(of_runs(f"{at}/bandwidth", widths, "Gbit/s", how), bandwidth)


def _share(at: str, found: Sequence[Relayed], size: int, most: float) -> Measure:
    """How much of what the link can take the messages are."""
    low, high = LINK_SHARE
    told = f"bandwidth over the capacity of a link; thesis {100 * low:g} to {100 * high:g} % from {FULL_FROM} B on"
    one = of_runs(at, [run.rate * size * 8 / 1e9 / most for run in found], "share", told)
    return replace(one, published=low if size >= FULL_FROM else None)


def beside(one: Measure, theirs: Compared | None, figure: str = "mean") -> Measure:
    """A measure with what the thesis found of Neptune, and in words of Storm."""
    if theirs is None:
        return one
    storm = str(theirs) if figure == "mean" else f"thesis, Storm: {short(getattr(theirs.storm, figure))}"
    return replace(one, published=getattr(theirs.neptune, figure), against=f"{one.against}; {storm}")


def of_runs(
    name: str, values: Sequence[float], unit: str, how: str, reach: float | None = None, *, at_most: bool = False
) -> Measure:
    """The median of several runs, and all of them."""
    several = tuple(values) if len(values) > 1 else ()
    return Measure(name, median(values), unit, how, reach, at_most=at_most, values=several)
