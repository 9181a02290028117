"""Threat detection in plain Python."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from math import exp, isfinite, tanh
from pathlib import Path
from typing import Any

from riot_ops.core.parameters import duration
from riot_ops.dataflows.streambench.threat import packaged_model, train_model

__all__ = ["threat"]

ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "identity": lambda z: z,
    "relu": lambda z: max(z, 0.0),
    "tanh": tanh,
    "logistic": lambda z: 1 / (1 + exp(-z)) if z > -700 else 0.0,
}
LATEST = 253_402_300_799  # the last second of the year 9999
BITS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32}


def threat(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    from_packets: bool = False,
    model: str | None = None,
    training_flows: int = 0,
    seed: int = 1,
    labelled: bool = True,
    window: str = "2s",
    allowed_lateness: str = "0s",
) -> dict[str, list[tuple[Any, ...]]]:
    """``threats``: source, destination, class, its index and probability.

    ``inputs`` has ``flows``, or ``packets`` without late records.
    """
    text = model or (train_model(training_flows, seed) if training_flows else packaged_model())
    net = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    length = round(duration(window).total_seconds() * 1e6)
    vectors = _packets(inputs["packets"], labelled, length) if from_packets else _flows(inputs["flows"], labelled, net)
    found = []
    for source, target, features in vectors:
        shares = _shares(net, features)
        best = max(range(len(shares)), key=shares.__getitem__)
        found.append((source, target, net["classes"][best], best, shares[best]))
    return {"threats": found}


def _flows(lines: Iterable[bytes], labels: bool, net: Any) -> Iterator[tuple[str, str, list[float]]]:
    n = len(net["inputs"])
    for line in lines:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
            if len(cells) < 3 + n + labels or (labels and len(cells) > 4 + n):
                continue
            time, *features = [float(cell) if i else int(cell) for i, cell in enumerate([cells[0], *cells[3 : 3 + n]])]
            label = float(cells[3 + n]) if labels else 0.0
        except ValueError:
            continue
        if time <= LATEST and isfinite(label) and all(map(isfinite, features)):
            yield cells[1], cells[2], features


def _packets(lines: Iterable[bytes], labels: bool, window: int) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the features of flows in the order of :data:`riot_ops.streams.streambench.flows.FEATURES`."""
    gathered: dict[tuple[str, str, int], list[list[int]]] = {}
    for line in lines:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
            if len(cells) < 9 + labels or (labels and len(cells) > 10):
                continue
            time, *numbers = [int(cells[i]) for i in (0, 3, 4, 5, 6, 7, 8)]
        except ValueError:
            continue
        gathered.setdefault((cells[1], cells[2], time // window), []).append([time, *numbers])
    for (source, target, _), packets in gathered.items():
        times, sports, dports, protos, lengths, flags, ttls = map(list, zip(*packets, strict=True))
        n, total, gaps = len(packets), sum(lengths), [(b - a) / 1e6 for a, b in pairwise(times)]
        lasting = (max(times) - min(times)) / 1e6
        yield source, target, [
            *(n, total, total / n, statistics.stdev(lengths) if n > 1 else 0.0, min(lengths), max(lengths)),
            *(statistics.fmean(gaps) if gaps else 0.0, statistics.stdev(gaps) if n > 2 else 0.0, lasting),
            *((n / lasting, total / lasting) if lasting else (0.0, 0.0)),
            *(len(set(sports)), len(set(dports)), *(protos.count(proto) / n for proto in (6, 17, 1))),
            *(sum(one & BITS[bit] != 0 for one in flags) for bit in ("syn", "ack", "fin", "rst", "psh", "urg")),
            *(sum(ttls) / n, sum(length < 60 for length in lengths) / n),
        ]  # fmt: skip


def _shares(net: Any, features: list[float]) -> list[float]:
    """Return the probability of each class."""
    values = [(x - mean) / scale for x, mean, scale in zip(features, net["mean"], net["scale"], strict=True)]
    act, last = ACTIVATIONS[net["activation"]], len(net["weights"]) - 1
    for layer, (weights, biases) in enumerate(zip(net["weights"], net["biases"], strict=True)):
        sums = [b + sum(v * w[j] for v, w in zip(values, weights, strict=True)) for j, b in enumerate(biases)]
        values = sums if layer == last else [act(z) for z in sums]
    if len(values) == 1:
        one = ACTIVATIONS["logistic"](values[0])
        return [1 - one, one]
    powers = [exp(z - max(values)) for z in values]
    return [p / sum(powers) for p in powers]
