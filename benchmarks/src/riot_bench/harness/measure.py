"""What a benchmark finds, and how it is timed and shown."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from riot_ops.kernels.jit import Kernel

#: What must be no more than this may be off by rounding alone.
ROUNDING = 1e-9

__all__ = [
    "KernelTimes",
    "Measure",
    "kernel_times",
    "load",
    "machine",
    "median",
    "one_core",
    "seconds",
    "span",
    "table",
]


@dataclass(frozen=True)
class Measure:
    """One figure.

    Attributes
    ----------
    measure : str
        Name, such as ``keyed/vs-per-key/1000``; the first part is the suite.
    value : float
    unit : str
        ``ratio``, ``rows/s``, ``messages/s``, ``ms``, ``bytes/key`` …
    against : str
        What it is compared with, or how it came about.
    reach : float or None
        What it should reach; None for a figure that only informs.
    machine : str
        See :func:`machine`.
    at_most : bool
        Whether the value should stay below the reach instead of above.
    values : tuple of float
        The value in each run, where there were several; ``value`` is their median, or the worst of them where the
        measure is strict.
    sample : tuple of float
        The value in each part of a single run, such as its micro-batches, in their order.
    lower_bound : bool
        Whether all that is known is that it is so much or more, as where something was stopped.
    load : tuple of (float, float)
        Of each run: the machine's load average over a minute (:func:`os.getloadavg`) before it began, and
        when the figure was found. The latter counts the threads of the benchmark itself.
    published : float or None
        What the paper found, on its machines; None where it says nothing.

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
        """Whether the value reaches what it should; None where nothing is asked, or a lower bound leaves it open."""
        if self.reach is None:
            return None
        met = self.value <= self.reach if self.at_most else self.value >= self.reach
        return None if self.lower_bound and met == self.at_most else met

    @property
    def strict(self) -> bool:
        """Whether it must hold in each run: truths, what must be nothing, and shares that must be the whole.

        >>> [Measure("x", 0.0, unit, reach=reach, at_most=most).strict for unit, reach, most in (
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
        """The value in each run."""
        return self.values or (self.value,)

    @property
    def known(self) -> tuple[float, ...]:
        """The value in each run in which it came about.

        >>> Measure("x", 2.0, "s", values=(1.0, math.nan, 3.0)).known
        (1.0, 3.0)
        """
        return tuple(v for v in self.runs if math.isfinite(v))

    @classmethod
    def of_runs(cls, runs: Sequence[Measure]) -> Measure:
        """One figure of several runs: the median, and all values; what else there is to say is the last run's.

        Of what is strict the worst counts: a median would hide the runs in which it does not hold. What parts of one
        run came to says nothing of several, but of two: their repetitions are then told as such parts. The figure is
        a lower bound where that of any run is.

        >>> found = Measure.of_runs([Measure("x", v, "ms", load=((0.0, 1.0),)) for v in (3.0, 9.0, 4.0)])
        >>> found.value, found.values, len(found.load)
        (4.0, (3.0, 9.0, 4.0), 3)
        >>> lost = Measure.of_runs([Measure("x", v, "messages", reach=0, at_most=True) for v in (0.0, 812.0, 0.0)])
        >>> lost.value, lost.met
        (812.0, False)
        >>> Measure.of_runs([Measure("x", v, "s", reach=20, at_most=True) for v in (0.2, math.nan, math.inf)]).met
        False
        """
        # several values of one run have its circumstances in common, and are not as many runs
        whole = len(runs) > 1 and not runs[-1].strict
        values = tuple(run.value for run in runs) if whole else tuple(v for run in runs for v in run.runs)
        # what did not come about is as far from what is asked as can be
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
        """What :meth:`to_json` wrote; null is NaN.

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
        """One line of JSON; values have four digits, and are null where there are none.

        A sample is there where there is one, and a lower bound where it is one.
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


def machine() -> str:
    """Processor, cores, memory and versions.

    >>> "Python" in machine()
    True
    """
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError):
        memory = "unknown memory"
    versions = [f"Python {platform.python_version()}"]
    for package in ("pyspark", "numba"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory}, {', '.join(versions)}"


def load() -> float:
    """The machine's load average over the last minute; 0 where the system does not tell it.

    >>> load() >= 0
    True
    """
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return 0.0


def median(values: Iterable[float]) -> float:
    """The median.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return statistics.median(values)


def seconds(function: Callable[[], Any], repetitions: int, warm: int = 1) -> float:
    """Median wall time of a call, after calls that do not count.

    >>> seconds(lambda: None, 3) < 1
    True
    """
    times = []
    for i in range(warm + repetitions):
        start = time.perf_counter()
        function()
        if i >= warm:
            times.append(time.perf_counter() - start)
    return median(times)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread, and the threads that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class KernelTimes:
    """Seconds spent in kernels, by module and name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @property
    def total(self) -> float:
        return sum(self.spent.values())

    def shares(self, of: float) -> str:
        """The largest shares of a time, in words."""
        largest = sorted(self.spent.items(), key=lambda item: -item[1])[:3]
        rest = max(0.0, of - self.total)
        return ", ".join(
            [
                *(f"{name.rsplit('.', 1)[-1]} {100 * t / of:.0f} %" for name, t in largest),
                f"outside kernels {100 * rest / of:.0f} %",
            ]
        )


@contextmanager
def kernel_times() -> Iterator[KernelTimes]:
    """Time every call of a kernel from Python (kernels that call each other count as one).

    >>> from riot_ops import tasks
    >>> with kernel_times() as times:
    ...     _ = tasks.KalmanFilter().session().push({"value": 1.0})
    >>> "kalman_filter.kalman" in times.spent
    True
    """
    times = KernelTimes()
    call = Kernel.__call__

    def timed(self: Kernel[Any, Any], *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(self, *args, **kwargs)
        finally:
            name = f"{self.python.__module__.rsplit('.', 1)[-1]}.{self.python.__name__.strip('_')}"
            times.spent[name] = times.spent.get(name, 0.0) + time.perf_counter() - start

    Kernel.__call__ = timed  # type: ignore[method-assign]
    try:
        yield times
    finally:
        Kernel.__call__ = call  # type: ignore[method-assign]


def table(measures: Iterable[Measure]) -> Any:
    """A table for the terminal; the value is the median where there were several runs, or parts of one.

    Of what must hold in each run it is the worst, and marked as such.
    """
    from rich.markup import escape
    from rich.table import Table

    found = list(measures)
    several = any(len(m.values or m.sample) > 1 for m in found)
    shown = Table(show_edge=False)
    shown.add_column("measure")
    titles = [("median" if several else "value", "right"), ("unit", "left"), ("reach", "right"), ("met", "left")]
    if several:
        titles.insert(1, ("range", "right"))
    for title, side in titles:
        shown.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for m in found:
        reach = "" if m.reach is None else f"{'<=' if m.at_most else '>='} {_number(m.reach)}"
        met = "" if m.met is None else "[green]yes[/]" if m.met else "[red]no[/]"
        name = f"[bold]{escape(m.measure)}[/]" + (f"\n[dim]{escape(m.against)}[/]" if m.against else "")
        worst = m.strict and len(m.runs) > 1
        value = "worst " * worst + ">= " * (m.lower_bound and math.isfinite(m.value)) + _number(m.value)
        cells = [name, value, *([span(m.values or m.sample)] if several else []), m.unit, reach, met]
        shown.add_row(*cells)
    return shown


def span(values: Sequence[float]) -> str:
    """Least and greatest value.

    >>> span([3.0, 1.25, 2.0]), span([1.0]), span([math.nan, 4.0, 5.0])
    ('1.25–3', '', '4–5')
    """
    known = [v for v in values if math.isfinite(v)]
    return f"{_number(min(known))}–{_number(max(known))}" if len(known) > 1 else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
