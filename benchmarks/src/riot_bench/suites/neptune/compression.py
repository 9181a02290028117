"""Compression off, selective and total over links, on equipment readings, random bytes and a mix of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from riot_bench.harness.confidence import tukey_kramer
from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_bench.suites.neptune.messages import FRAME, MessageSource, RelayResult
from riot_bench.suites.neptune.processes import ProcessRelay
from riot_bench.suites.neptune.thesis import COMPRESSION
from riot_ops.core.buffering import Buffering
from riot_ops.streams.dspbench.equipment import EquipmentSource

__all__ = ["MODES", "compression", "payloads"]

#: The four settings; the thesis tried these coefficients.
MODES = {
    "off": Buffering(capacity=1 << 20, flush_after="10ms", codec=None),
    "selective-0.2": Buffering(capacity=1 << 20, flush_after="10ms", ratio=0.2),
    "selective-0.5": Buffering(capacity=1 << 20, flush_after="10ms", ratio=0.5),
    "total": Buffering(capacity=1 << 20, flush_after="10ms"),
}
LINES, SEED, ALPHA = 20_000, 1, 0.05
#: Share of random bytes in the mixed data, which compresses to a ratio between the two coefficients.
NOISE = 0.3


#: Ratio of the throughputs by data, where the thesis found no effect.
NO_EFFECT = {"equipment": 1.0}


class CompressionRun(NamedTuple):
    """A run: received messages, bytes per message on the first link, and the share of compressed blocks."""

    result: RelayResult
    bytes: float
    compressed: float


def payloads() -> dict[str, list[bytes]]:
    """Generate equipment readings, the same with random bytes at the begin, and random bytes of the same lengths."""
    source = EquipmentSource(messages=LINES, seed=SEED, dirt=False)
    lines = [line.encode() for line in source.lines(np.arange(LINES)).to_pylist()]
    chance = np.random.default_rng(SEED)
    random = [chance.bytes(len(line)) for line in lines]
    ends = [round(NOISE * len(line)) for line in lines]
    mixed = [other[:end] + line[end:] for line, other, end in zip(lines, random, ends, strict=True)]
    return {"equipment": lines, "mixed": mixed, "random": random}


def compression(quick: bool) -> Iterator[Measure]:
    """Measure all settings, alternating, several times."""
    data = payloads()
    size = FRAME + round(sum(map(len, data["equipment"])) / LINES)
    repetitions, seconds = (3, 0.25) if quick else (6, 2.0)
    with ProcessRelay() as run:
        for name, fillers in data.items():
            messages = MessageSource(size, seconds=0.1, fillers=fillers)
            run(messages, MODES["total"])  # warm-up
            found: dict[str, list[CompressionRun]] = {mode: [] for mode in MODES}
            for _ in range(repetitions):
                for mode, buffering in MODES.items():
                    relayed, link = run.counted(MessageSource(size, seconds=seconds, fillers=fillers), buffering)
                    found[mode].append(CompressionRun(relayed, link.bytes / link.sent, link.compressed / link.frames))
            yield from _measures(name, size, found)


def _measures(data: str, size: int, found: dict[str, list[CompressionRun]]) -> Iterator[Measure]:
    at, how = f"neptune/compression/{data}", f"over processes, messages of about {size} B, buffers of 1 MiB or 10 ms"
    groups = {
        "throughput": ("messages/s", {m: [run.result.rate for run in runs] for m, runs in found.items()}),
        "latency": ("ms", {m: [run.result.mean for run in runs] for m, runs in found.items()}),
        "bandwidth": (
            "Gbit/s",
            {m: [run.result.rate * run.bytes * 8 / 1e9 for run in runs] for m, runs in found.items()},
        ),
    }
    for mode, runs in found.items():
        for figure, (unit, values) in groups.items():
            yield _median_measure(f"{at}/{mode}/{figure}", values[mode], unit, how)
        yield _median_measure(
            f"{at}/{mode}/bytes", [run.bytes for run in runs], "bytes/message", "on the link, with headers"
        )
        yield _median_measure(
            f"{at}/{mode}/compressed", [run.compressed for run in runs], "share", "of the blocks on the link"
        )
    rates = groups["throughput"][1]
    for mode in list(MODES)[1:]:
        gains = [a / b for a, b in zip(rates[mode], rates["off"], strict=True)]
        one = _median_measure(f"{at}/{mode}/vs-off", gains, "ratio", f"throughput; thesis: {COMPRESSION[data]}")
        yield replace(one, published=NO_EFFECT.get(data))
    for figure, (_, values) in groups.items():
        for (a, b), tested in tukey_kramer(values).items():
            note = f"Tukey–Kramer over the four settings: {a} minus {b} is {tested.statistic:,.4g}; alpha {ALPHA:g}"
            yield Measure(f"{at}/{figure}/{a}-against-{b}/p", tested.p, "p", f"{note}; thesis: {COMPRESSION[data]}")
    lost = sum(run.result.faults for runs in found.values() for run in runs)
    yield Measure(f"{at}/lost", lost, "messages", "lost, duplicated or out of order, in all runs", 0, at_most=True)


def _median_measure(name: str, values: Sequence[float], unit: str, how: str) -> Measure:
    return Measure(name, median(values), unit, how, values=tuple(values))
