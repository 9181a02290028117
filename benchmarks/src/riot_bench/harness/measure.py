"""Measures of benchmarks: value, unit, comparison, repetitions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from riot_bench.harness.timing import median

#: A bound of at most this allows for rounding only.
ROUNDING = 1e-9

__all__ = ["Measure"]


@dataclass(frozen=True)
class Measure:
    """A measured value.

    Attributes
    ----------
    measure : str
        Name, such as ``keyed/vs-per-key/1000``; the first part is the suite.
    value : float
    unit : str
        ``ratio``, ``rows/s``, ``messages/s``, ``ms``, ``bytes/key`` …
    against : str
        What the value is compared with, or how it was measured.
    reach : float or None
        Target; None for a value that only informs.
    machine : str
        Machine and versions, see :func:`~riot_bench.harness.machine.describe_machine`.
    at_most : bool
        Whether the value should be at most the target instead of at least.
    values : tuple of float
        The value of each of several runs; ``value`` is their median, or their worst if the measure is strict.
    sample : tuple of float
        The value of each part of a single run, such as its micro-batches, in order.
    lower_bound : bool
        Whether the true value is this or more, for example because a run was stopped.
    load : tuple of (float, float)
        For each run, the machine's load average over a minute (:func:`os.getloadavg`) before it began and when the
        value was known. The latter includes the threads of the benchmark.
    published : float or None
        Value in the paper, on its machines; None if the paper has none.

    Examples
    --------
    >>> Measure("stats/x", 1.62345, "ratio", "y", 1.5, load=((0.1, 1.2),)).to_json()
    '{"measure": "stats/x", "value": 1.623, "values": [1.623], "unit": "ratio", "against": "y", "reach": 1.5, \
"at_most": false, "published": null, "load": [[0.1, 1.2]], "machine": ""}'
    """

    measure: str
    value: float
    unit: str
    against: str = ""
    reach: float | None = None
    machine: str = ""
    at_most: bool = False
    values: tuple[float, ...] = ()
    load: tuple[tuple[float, float], ...] = ()
    published: float | None = None
    sample: tuple[float, ...] = ()
    lower_bound: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the value meets the target; None without a target, or if a lower bound leaves it open."""
        if self.reach is None:
            return None
        met = self.value <= self.reach if self.at_most else self.value >= self.reach
        return None if self.lower_bound and met == self.at_most else met

    @property
    def strict(self) -> bool:
        """Whether every run must meet the target: truths, counts that must be 0, and shares that must be 100 %.

        >>> [Measure("x", 0.0, unit, reach=reach, at_most=at_most).strict for unit, reach, at_most in (
        ...     ("truth", 1, False), ("messages", 0, True), ("%", 100, False), ("%", 90, False), ("ms", 5, True))]
        [True, True, True, False, False]
        """
        if self.reach is None:
            return False
        if self.at_most:
            return self.reach <= ROUNDING
        return self.unit == "truth" or (self.unit == "%" and self.reach >= 100)

    @property
    def runs(self) -> tuple[float, ...]:
        """The value of each run."""
        return self.values or (self.value,)

    @property
    def measured(self) -> tuple[float, ...]:
        """The value of each run that has one.

        >>> Measure("x", 2.0, "s", values=(1.0, math.nan, 3.0)).measured
        (1.0, 3.0)
        """
        return tuple(v for v in self.runs if math.isfinite(v))

    @classmethod
    def of_runs(cls, runs: Sequence[Measure]) -> Measure:
        """Combine the measures of several runs: the median and all values; all else is that of the last run.

        A strict measure takes its worst run, since a median would hide runs that miss the target. The samples of single
        runs are dropped; for two runs, their repetitions become the sample. The result is a lower bound if any run's
        is.

        >>> found = Measure.of_runs([Measure("x", v, "ms", load=((0.0, 1.0),)) for v in (3.0, 9.0, 4.0)])
        >>> found.value, found.values, len(found.load)
        (4.0, (3.0, 9.0, 4.0), 3)
        >>> lost = Measure.of_runs([Measure("x", v, "messages", reach=0, at_most=True) for v in (0.0, 812.0, 0.0)])
        >>> lost.value, lost.met
        (812.0, False)
        >>> Measure.of_runs([Measure("x", v, "s", reach=20, at_most=True) for v in (0.2, math.nan, math.inf)]).met
        False
        """
        # several values of one run share its conditions: they do not count as runs
        whole = len(runs) > 1 and not runs[-1].strict
        values = tuple(run.value for run in runs) if whole else tuple(v for run in runs for v in run.runs)
        # a missing value misses the target as far as possible
        never = math.inf if runs[-1].at_most else -math.inf
        known = [v if math.isfinite(v) else never for v in values if runs[-1].reach is not None or math.isfinite(v)]
        load = tuple(pair for run in runs for pair in run.load)
        one: Callable[[list[float]], float] = median
        if runs[-1].strict:
            one = max if runs[-1].at_most else min
        value = one(known) if known else math.nan
        sample = runs[-1].sample if len(values) == 1 else ()
        if whole and len(runs) == 2:
            sample = tuple(v for run in runs for v in run.values)
        return replace(
            runs[-1],
            value=value if math.isfinite(value) else math.nan,
            values=values if len(values) > 1 else (),
            load=load,
            sample=sample,
            lower_bound=any(run.lower_bound for run in runs),
        )

    @classmethod
    def from_json(cls, line: str) -> Measure:
        """Parse a line from :meth:`to_json`; null becomes NaN.

        >>> one = Measure("x", 2.0, "ms", "y", 1.5, "z", values=(1.0, 2.0, 3.0), load=((0.5, 1.0),), lower_bound=True)
        >>> Measure.from_json(one.to_json()) == one
        True
        """
        found = json.loads(line)

        def several(values: Iterable[float | None]) -> tuple[float, ...]:
            return tuple(math.nan if v is None else float(v) for v in values)

        values = several(found["values"])
        return cls(
            found["measure"],
            math.nan if found["value"] is None else float(found["value"]),
            found["unit"],
            found["against"],
            found["reach"],
            found["machine"],
            found["at_most"],
            values if len(values) > 1 else (),
            tuple((a, b) for a, b in found["load"]),
            found["published"],
            several(found.get("sample", ())),
            found.get("lower_bound", False),
        )

    def to_json(self) -> str:
        """Format as one line of JSON; values have four digits, NaN becomes null.

        ``sample`` and ``lower_bound`` are present only if they are set.
        """

        def plain(value: float) -> float | None:
            return float(f"{value:.4g}") if math.isfinite(value) else None

        return json.dumps(
            {
                "measure": self.measure,
                "value": plain(self.value),
                "values": [plain(v) for v in self.runs],
                "unit": self.unit,
                "against": self.against,
                "reach": self.reach,
                "at_most": self.at_most,
                "published": self.published,
                "load": self.load,
                "machine": self.machine,
                **({"sample": [plain(v) for v in self.sample]} if self.sample else {}),
                **({"lower_bound": True} if self.lower_bound else {}),
            },
            ensure_ascii=False,
        )
