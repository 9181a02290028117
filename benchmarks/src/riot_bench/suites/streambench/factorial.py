"""Factorial experiment over trigger, records of a micro-batch and partitions: main effects and Pareto front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import NumberedLines
from riot_bench.suites.streambench.formulas import pareto_front
from riot_bench.suites.streambench.runs import run_packed
from riot_ops.core.errors import ConfigError

__all__ = ["Combination", "factorial", "main_effect"]

Point = tuple[float, float]


@dataclass(frozen=True)
class Combination:
    """A setting of each factor: seconds between micro-batches (0: without a pause), their records, and partitions.

    >>> str(Combination(0.5, 100_000, 2))
    '0.5s-100000-2'
    """

    trigger: float
    records: int
    partitions: int

    def __str__(self) -> str:
        return f"{self.trigger:g}s-{self.records}-{self.partitions}"


def main_effect(points: Mapping[Combination, Point], factor: str, place: int) -> float:
    """Return by how many % a figure is higher with the highest setting of a factor than with the lowest.

    It is the geometric mean over all combinations of the other factors.

    Parameters
    ----------
    points : mapping of Combination to Point
    factor : str
        ``trigger``, ``records`` or ``partitions``.
    place : int
        Index of the figure in a point.

    Examples
    --------
    >>> rates = {(0.0, 1): 10.0, (0.0, 4): 20.0, (1.0, 1): 5.0, (1.0, 4): 40.0}
    >>> points = {Combination(t, 100, p): (rate, 1.0) for (t, p), rate in rates.items()}
    >>> round(main_effect(points, "partitions", 0)), round(main_effect(points, "trigger", 0))
    (300, 0)
    """
    settings = [getattr(one, factor) for one in points]
    sums = {setting: 0.0 for setting in (min(settings), max(settings))}
    if len(sums) < 2:
        raise ConfigError(f"{factor} must have at least two settings, got {settings[0]}")
    for one, point in points.items():
        if getattr(one, factor) in sums:
            sums[getattr(one, factor)] += math.log(point[place])
    least, most = sums.values()
    return 100 * (math.exp((most - least) * len({*settings}) / len(points)) - 1)


def factorial(
    spark: Any,
    name: str,
    data: NumberedLines,
    triggers: Sequence[float],
    records: Sequence[int],
    partitions: Sequence[int],
    limit_s: float,
) -> Iterator[Measure]:
    """Measure all combinations for a packed program over existing lines.

    Throughput is from the begin of the second micro-batch to the end of the last. Latency is the time from fetching a
    record to the end of its micro-batch.
    """
    points: dict[Combination, Point] = {}
    for one in itertools.starmap(Combination, itertools.product(triggers, records, partitions)):
        options = {"trigger": f"{one.trigger:g} seconds"} if one.trigger else {}
        run = run_packed(spark, name, data, limit_s, max_records=one.records, partitions=one.partitions, **options)
        points[one] = run.lines * len(run.spent) / run.span_s, 1000 * float(np.percentile(run.spent, 95))
        late = one.trigger and sum(run.spent) / len(run.spent) > one.trigger
        marks = "; saturated" * run.saturated + "; a micro-batch takes longer than the trigger" * bool(late)
        how = f"packed {name}, {len(run.spent)} micro-batches; trigger, records per micro-batch, partitions{marks}"
        at = f"streambench/knobs/factorial/{name}/{one}"
        yield Measure(f"{at}/throughput", points[one][0], "records/s", how)
        yield Measure(f"{at}/latency-p95", points[one][1], "ms", how)
    at = f"streambench/knobs/factorial/{name}"
    for factor, place in itertools.product(("trigger", "records", "partitions"), (0, 1)):
        settings = sorted({getattr(one, factor) for one in points})
        how = f"{settings[-1]:g} against {settings[0]:g}, mean over {len(points)} combinations"
        found = main_effect(points, factor, place)
        yield Measure(f"{at}/effect-{factor}-{('throughput', 'latency')[place]}", found, "%", how)
    best = pareto_front({str(one): point for one, point in points.items()})
    yield Measure(
        f"{at}/pareto", len(best), "combinations", f"Pareto front of throughput and latency: {', '.join(best)}"
    )
