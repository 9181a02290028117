"""Latency and progress of a running dataflow; jitter, and whether a rate can be kept up."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.display import WIDTH, html_display, html_table, wrapped

__all__ = ["Latency", "Stability", "Summary", "growth", "jitter", "quantiles", "stability"]

POINTS = 8
#: Blocks of latency that are kept one by one; beyond that, neighbours by latency are merged, so that a run that lasts
#: does not take more and more memory.
MAX_BLOCKS = 8192
#: Blocks of which a running dataflow shows the latency.
NEWEST_BLOCKS = 256
#: Records that a step must have read before it is warned about during a run; at the end fewer suffice.
MIN_ROWS_TO_WARN = 1000

_log = logging.getLogger("riot_ops")


class Latency:
    """Time from the source to the sink, per record, kept per block of records.

    The records of a block arrived between a first and a last moment; they count as evenly spread
    in between. Beyond 16,384 blocks, blocks of similar latency are merged.
    """

    def __init__(self) -> None:
        self._merged: list[tuple[float, float, int]] = []
        self._blocks: list[tuple[float, float, int]] = []

    def add(self, first_us: float, last_us: float, now_us: float, rows: int) -> None:
        """Count the records of a block that reached the sink now."""
        if rows:
            self._blocks.append((now_us - last_us, now_us - first_us, rows))
            self._merge()

    def extend(self, blocks: list[Any]) -> None:
        """Add blocks that :meth:`blocks` returned in another process."""
        self._blocks.extend((float(a), float(b), int(n)) for a, b, n in blocks)
        self._merge()

    def _merge(self) -> None:
        if len(self._blocks) <= MAX_BLOCKS:
            return
        found, self._blocks = sorted([*self._merged, *self._blocks[:-1]]), self._blocks[-1:]
        while len(found) > MAX_BLOCKS:
            pairs = itertools.zip_longest(found[::2], found[1::2])
            found = [one if two is None else (one[0], max(one[1], two[1]), one[2] + two[2]) for one, two in pairs]
        self._merged = found

    def blocks(self) -> list[tuple[float, float, int]]:
        """Return the blocks, as (lowest latency, highest latency, rows); the last is that of the last records."""
        return [*self._merged, *self._blocks]

    def last_s(self) -> float:
        """Return the highest latency of the last block in seconds; NaN without one."""
        return self._blocks[-1][1] / 1e6 if self._blocks else math.nan

    def quantiles(self, *which: float, newest: int | None = None) -> list[float]:
        """Return the latencies in seconds that these shares of the records stay below; ``newest``: of so many blocks.

        >>> latency = Latency()
        >>> latency.add(first_us=0, last_us=0, now_us=2_000_000, rows=5)
        >>> latency.quantiles(0.5, 0.99)
        [2.0, 2.0]
        """
        if not self._blocks:
            return [float("nan")] * len(which)
        blocks = np.array(self.blocks() if newest is None else self._blocks[-newest:])
        steps = (np.arange(POINTS) + 0.5) / POINTS
        points = (blocks[:, :1] + (blocks[:, 1:2] - blocks[:, :1]) * steps).ravel()
        return quantiles(points / 1e6, np.repeat(blocks[:, 2] / POINTS, POINTS), which)

    def __repr__(self) -> str:
        if not self._blocks:
            return "Latency(no records)"
        middle, high, most = (_format_duration(value) for value in self.quantiles(0.5, 0.99, 1.0))
        return f"Latency(median {middle}, 99 % {high}, max {most})"


@dataclass
class Summary:
    """Counts and latency of a run.

    Attributes
    ----------
    messages : int
        Records read from the sources.
    rows : dict of str to int
        Records per output stream by name, the errors last.
    reasons : dict of str to int
        Rejected records per ``task: reason``.
    steps : dict of str to (int, int)
        Records that each step read and rejected. A record that was partly
        accepted, such as a message with one bad reading, does not count as rejected.
    seconds : float
        Time from the start to the end.
    batches : int
        Batches (micro-batches) run.
    buffered : int
        In process: the most bytes that waited between the sources and the steps.
    state_keys : int
        Keys with state after the last commit, over all steps; on Spark in the buckets of the last micro-batch that had
        records.

    Examples
    --------
    >>> summary = Summary()
    >>> summary.count({"errors": 3}, {"parse: malformed": 3}, {"parse": (4, 3)})
    >>> summary.warnings()
    ["the step 'parse' rejected 3 of 4 records (malformed 3): see the stream errors"]
    >>> Summary(messages=2000, rows={"avg": 1150, "errors": 2}, reasons={"parse: malformed": 2}, seconds=0.25)
    2,000 messages in 0.25 s (8,000/s)
      avg     1,150
      errors      2  parse: malformed 2
    """

    messages: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    seconds: float = 0.0
    batches: int = 0
    buffered: int = 0
    state_keys: int = 0
    latency: Latency = field(default_factory=Latency)
    _warned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @property
    def late(self) -> int:
        """Records that were rejected because they came too late."""
        return sum(n for reason, n in self.reasons.items() if reason.endswith(": late"))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-able data; see ``docs/howto/operate.md``.

        >>> Summary(messages=4, rows={"avg": 3}, seconds=0.5).to_dict()["messages_per_second"]
        8.0
        """
        lag = self.latency.last_s()
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        quantiles = zip(shares, self.latency.quantiles(*shares.values(), newest=NEWEST_BLOCKS), strict=True)
        return {
            "messages": self.messages,
            "messages_per_second": round(self.throughput, 3),
            "records": dict(self.rows),
            "rejected": self.errors,
            "late": self.late,
            "reasons": dict(self.reasons),
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "steps": {name: {"read": read, "rejected": rejected} for name, (read, rejected) in self.steps.items()},
            "lag_seconds": None if math.isnan(lag) else round(lag, 3),
            "latency_seconds": {name: None if math.isnan(at) else round(at, 6) for name, at in quantiles},
            "state_keys": self.state_keys,
            "buffered_bytes": self.buffered,
        }

    def count(self, rows: Mapping[str, int], reasons: Mapping[str, int], steps: Mapping[str, tuple[int, int]]) -> None:
        """Add the counts of a batch."""
        if not rows.keys() <= self.rows.keys():  # streams arise in any order
            names = sorted(self.rows.keys() | rows.keys(), key=lambda name: (name == "errors", name))
            self.rows = {name: self.rows.get(name, 0) for name in names}
        for name, n in rows.items():
            self.rows[name] += n
        for name, n in reasons.items():
            self.reasons[name] = self.reasons.get(name, 0) + n
        for name, (taken, rejected) in steps.items():
            t, r = self.steps.get(name, (0, 0))
            self.steps[name] = t + taken, r + rejected

    def warnings(self) -> list[str]:
        """Warnings about steps that rejected more than half of the records they read."""
        return [self._warning(step) for step, (taken, rejected) in self.steps.items() if 2 * rejected > taken]

    def warn(self, *, ended: bool) -> None:
        """Log each warning once; during the run, only those of steps that have read many records."""
        for step, (taken, rejected) in self.steps.items():
            if 2 * rejected > taken and (ended or taken >= MIN_ROWS_TO_WARN) and step not in self._warned:
                self._warned.add(step)
                _log.warning("%s", self._warning(step))

    def _warning(self, step: str) -> str:
        taken, rejected = self.steps[step]
        found = {name.removeprefix(f"{step}: "): n for name, n in self.reasons.items() if name.startswith(f"{step}: ")}
        reasons = ", ".join(f"{name} {n:,}" for name, n in sorted(found.items(), key=lambda item: -item[1]))
        return f"the step {step!r} rejected {rejected:,} of {taken:,} records ({reasons}): see the stream errors"

    def _repr_html_(self) -> str:
        return html_display(*self.html_parts())

    def html_parts(self) -> list[str]:
        """Return the parts of its display in a notebook."""
        title, *_ = repr(self).splitlines()
        reasons = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))
        return [
            title,
            html_table([[name, f"{n:,}"] for name, n in self.rows.items()], ["stream", "records"], numbers=[1]),
            html_table([[name, f"{n:,}"] for name, n in reasons], ["rejected for", "records"], numbers=[1])
            if reasons
            else "",
            repr(self.latency) if self.latency.blocks() else "",
        ]

    def __repr__(self) -> str:
        speed = f" ({self.throughput:,.0f}/s)" if self.throughput else ""
        lines = [f"{self.messages:,} messages in {_format_duration(self.seconds)}{speed}"]
        names = [*sorted(name for name in self.rows if name != "errors"), *(["errors"] if self.errors else [])]
        wide, long = (max(map(len, texts), default=0) for texts in (names, [f"{n:,}" for n in self.rows.values()]))
        for name in names:
            lines.append(f"  {name:{wide}}  {self.rows[name]:{long},}")
        if self.errors:
            found = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))
            lines[-1] += "  " + ", ".join(f"{reason} {n:,}" for reason, n in found)
        if self.latency.blocks():
            lines.append(f"  {self.latency!r}")
        return "\n".join(part for line in lines for part in (wrapped(line, "    ") if len(line) > WIDTH else [line]))

    @property
    def errors(self) -> int:
        """Number of rejected records."""
        return self.rows.get("errors", 0)

    @property
    def throughput(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0


def _format_duration(seconds: float) -> str:
    """Format a time for display.

    >>> _format_duration(0.00042), _format_duration(0.0173), _format_duration(2.5), _format_duration(754.0)
    ('0.42 ms', '17 ms', '2.5 s', '754 s')
    """
    if seconds < 0.1:
        return f"{seconds * 1e3:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


def quantiles(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], which: Sequence[float]) -> list[float]:
    """Return the lowest values that these shares of the weight do not exceed; NaN without values.

    >>> quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), (0.25, 0.5, 0.75, 1.0))
    [1.0, 2.0, 2.0, 3.0]
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    if not reached.size or reached[-1] <= 0:
        return [math.nan] * len(which)
    # a sum of weights that is a little too large must not push a quantile to the next value
    index = np.searchsorted(reached * (1 + 1e-12), np.asarray(which) * reached[-1])
    return [float(values[order[min(i, order.size - 1)]]) for i in index]


def jitter(
    output_rate: npt.NDArray[np.float64],
    input_rate: npt.NDArray[np.float64],
    selectivity: float,
    mean_input_rate: float | None = None,
) -> npt.NDArray[np.float64]:
    """Compute how far the output of each interval is from what its input should give; ideally 0.

    ``J_t = (out_t - s in_t) / (s in)``, with the rates of the interval above, and the long-term mean
    input rate below.

    Parameters
    ----------
    output_rate, input_rate : arrays of float, records per second
        Rates in each interval.
    selectivity : float
        Outputs per input, s.
    mean_input_rate : float, optional
        By default the mean of ``input_rate``.

    References
    ----------
    .. [1] A. Shukla, Y. Simmhan, *Benchmarking Distributed Stream Processing Platforms for IoT
       Applications*, TPCTC 2016, section 4.

    Examples
    --------
    >>> jitter(np.array([50.0, 40.0, 60.0]), np.array([100.0, 100.0, 100.0]), 0.5).tolist()
    [0.0, -0.2, 0.2]
    """
    mean = float(np.mean(input_rate)) if mean_input_rate is None else mean_input_rate
    if not selectivity * mean > 0:
        return np.full(len(output_rate), math.nan)
    return np.asarray((output_rate - selectivity * input_rate) / (selectivity * mean))


def growth(times: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> float:
    """Return the slope of a series, per unit of time: the median of the slopes between all pairs of points.

    Outliers do not move it. NaN is skipped; with fewer than two points the slope is NaN.

    References
    ----------
    .. [1] P. K. Sen, *Estimates of the Regression Coefficient Based on Kendall's Tau*, JASA 1968.

    Examples
    --------
    >>> growth(np.arange(5.0), np.array([1.0, 3.0, 90.0, 7.0, 9.0]))
    2.0
    """
    known = np.isfinite(values)
    x, y = times[known], values[known]
    i, j = np.triu_indices(x.size, 1)
    apart = x[j] != x[i]
    if not apart.any():
        return math.nan
    return float(np.median((y[j] - y[i])[apart] / (x[j] - x[i])[apart]))


@dataclass(frozen=True)
class Stability:
    """Whether a dataflow keeps up with its input.

    Attributes
    ----------
    stable : bool
    latency_growth : float
        Seconds that the latency grows per second; NaN where nothing was delivered.
    queue_growth : float
        Share of the input that stays in the queue.
    """

    stable: bool
    latency_growth: float
    queue_growth: float


def stability(
    times: npt.NDArray[np.float64],
    latency: npt.NDArray[np.float64],
    queue: npt.NDArray[np.float64],
    rate: float,
    *,
    tolerance: float = 0.02,
    slack_s: float = 0.05,
) -> Stability:
    """Check that neither the latency of messages nor the input queue grows.

    If messages arrive faster than they are processed, both grow by the share of the input that is
    not processed: at 5 % above capacity the latency of each second's messages is 0.05 s more.

    Parameters
    ----------
    times, latency, queue : arrays of float
        Moments (s), latency of the messages that arrived around then (s, NaN where there were none), and
        messages that waited.
    rate : float, messages per second
        Input rate.
    tolerance : float, default 0.02
        Growth that counts as none.
    slack_s : float, default 0.05
        A growth that amounts to no more than this over the whole time counts as none, as does a queue
        that holds the messages of that many seconds: both are usual in a system that works in batches.

    Examples
    --------
    >>> t = np.arange(10.0)
    >>> stability(t, 0.02 + 0 * t, 100 + 0 * t, rate=1000).stable
    True
    >>> stability(t, 0.02 + 0.1 * t, 100 * t, rate=1000)
    Stability(stable=False, latency_growth=0.1, queue_growth=0.1)
    """
    least = slack_s / max(float(np.ptp(times)), 1e-9) if times.size else math.inf
    allowed = max(tolerance, least)
    by_latency = growth(times, latency)
    by_queue = growth(times, queue / rate)
    # a missing growth counts as stable only if anything was measured
    stable = not by_latency > allowed and not by_queue > allowed and math.isfinite(by_queue)
    return Stability(stable, by_latency, by_queue)
