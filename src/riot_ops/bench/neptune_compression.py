"""Compression off, selective and total, over links, on readings of equipment against random bytes of their length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from riot_ops.bench.confidence import tukey_kramer
from riot_ops.bench.measure import Measure, median
from riot_ops.bench.neptune_messages import FRAME, Messages, Relayed
from riot_ops.bench.neptune_processes import OverProcesses
from riot_ops.bench.neptune_published import COMPRESSION
from riot_ops.core.buffering import Buffering
from riot_ops.streams.dspbench.equipment import EquipmentSource

__all__ = ["MODES", "compression"]

#: The four settings; the thesis tried these coefficients.
MODES = {
    "off": Buffering(capacity=1 << 20, flush_ms=10, codec=None),
    "selective-0.2": Buffering(capacity=1 << 20, flush_ms=10, ratio=0.2),
    "selective-0.5": Buffering(capacity=1 << 20, flush_ms=10, ratio=0.5),
    "total": Buffering(capacity=1 << 20, flush_ms=10),
}
LINES, SEED, ALPHA = 20_000, 1, 0.05


def compression(quick: bool) -> Iterator[Measure]:
    """All settings in turns, several times."""
    lines = EquipmentSource(messages=LINES, seed=SEED, dirt=False).lines(np.arange(LINES)).to_pylist()
    random = np.random.default_rng(SEED)
    data = {"equipment": lines, "random": [random.bytes(len(line)) for line in lines]}
    size = FRAME + round(sum(map(len, lines)) / len(lines))
    repetitions, seconds = (3, 0.4) if quick else (6, 2.0)
    with OverProcesses() as run:
        for name, fillers in data.items():
            messages = Messages(size, seconds=0.1, fillers=fillers)
            run(messages, MODES["total"])  # warm
            found: dict[str, list[tuple[Relayed, float]]] = {mode: [] for mode in MODES}
            for _ in range(repetitions):
                for mode, buffering in MODES.items():
                    relayed, sent = run.counted(Messages(size, seconds=seconds, fillers=fillers), buffering)
                    found[mode].append((relayed, sent / relayed.messages))
            yield from _measures(name, size, found)


def _measures(data: str, size: int, found: dict[str, list[tuple[Relayed, float]]]) -> Iterator[Measure]:
    at, how = f"neptune/compression/{data}", f"over processes, messages of about {size} B, buffers of 1 MiB or 10 ms"
    groups = {
        "throughput": ("messages/s", {m: [r.rate for r, _ in runs] for m, runs in found.items()}),
        "latency": ("ms", {m: [r.mean for r, _ in runs] for m, runs in found.items()}),
        "bandwidth": ("Gbit/s", {m: [r.rate * b * 8 / 1e9 for r, b in runs] for m, runs in found.items()}),
    }
    for mode, runs in found.items():
        for figure, (unit, values) in groups.items():
            yield _of(f"{at}/{mode}/{figure}", values[mode], unit, how)
        yield _of(f"{at}/{mode}/bytes", [b for _, b in runs], "bytes/message", "on the link, header included")
    for figure, (_, values) in groups.items():
        for (a, b), tested in tukey_kramer(values).items():
            told = f"Tukey–Kramer over the four settings: {a} less {b} is {tested.statistic:,.4g}; alpha {ALPHA:g}"
            yield Measure(f"{at}/{figure}/{a}-against-{b}/p", tested.p, "p", f"{told}; thesis: {COMPRESSION[data]}")
    lost = sum(r.lost + r.disorder for runs in found.values() for r, _ in runs)
    yield Measure(f"{at}/lost", lost, "messages", "lost or out of order, in all runs", 0, at_most=True)


def _of(name: str, values: Sequence[float], unit: str, how: str) -> Measure:
    return Measure(name, median(values), unit, how, values=tuple(values))
