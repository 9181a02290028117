"""Report of a probe: messages sent and records delivered, combined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError
from riot_ops.measure.metrics import Stability, jitter, quantiles, stability
from riot_ops.measure.processes import Usage

__all__ = ["ARRIVED", "COMMITTED", "NO_SEQ", "SENT", "Report", "Series"]

#: A batch that a source produced: its message numbers, when (s since the epoch) they were due and read, its
#: records (a message may have several), and when its split was made (NaN: unknown).
SENT = np.dtype(
    [
        ("source", "<i8"),
        ("first", "<i8"),
        ("last", "<i8"),
        ("messages", "<i8"),
        ("due", "<f8"),
        ("due_last", "<f8"),
        ("read", "<f8"),
        ("records", "<i8"),
        ("planned", "<f8"),
    ]
)
#: Records that arrived at a sink: a message number that represents ``weight`` records.
ARRIVED = np.dtype([("stream", "<i8"), ("seq", "<i8"), ("weight", "<f8"), ("time", "<f8")])
#: Arrivals of a writer that were committed.
COMMITTED = np.dtype([("time", "<f8"), ("writer", "S32")])

#: Message number of a record without one.
NO_SEQ = np.iinfo(np.int64).min

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A run by intervals.

    Attributes
    ----------
    interval_s : float
        Length of an interval.
    times : array
        Beginnings of the intervals, seconds since the first message was due.
    input_rate, output_rate : array
        Messages due, and records delivered, per second.
    latency : array
        Median latency (s) of the records delivered in the interval; NaN where there were none.
    queue : array
        Messages that were due and not read, at the end of the interval.
    """

    interval_s: float
    times: Floats
    input_rate: Floats
    output_rate: Floats
    latency: Floats
    queue: Floats


class Report:
    """The measures of one run.

    Attributes
    ----------
    inputs, outputs : int
        Messages read, and records delivered at all sinks, the rejected ones included.
    rows : dict of str to int
        Records delivered per stream.
    begin, end : float
        When the first and the last message was due, seconds since the epoch.
    usage : Usage or None
        CPU and memory over time.
    skew : dict of str to float
        Seconds by which clocks of other machines were at least ahead of the driver's; times are corrected by them.
    """

    def __init__(
        self,
        sent: npt.NDArray[np.void],
        arrived: npt.NDArray[np.void],
        sources: Sequence[str],
        streams: Sequence[str],
        upstream: Mapping[str, frozenset[str]],
        usage: Usage | None = None,
        expected: Mapping[str, float] | float = math.nan,
        skew: Mapping[str, float] | None = None,
        turns: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._turns = turns or [(0, 1)] * len(sources)
        self.skew: dict[str, float] = dict(skew or {})
        self._sent = _once(sent)
        self._arrived = arrived
        self.usage = usage
        self.inputs: int = int(self._sent["messages"].sum())
        self.outputs: int = round(float(arrived["weight"].sum()))
        counts = np.bincount(arrived["stream"], arrived["weight"], len(streams))
        self.rows: dict[str, int] = {name: round(n) for name, n in zip(streams, counts, strict=True) if n}
        self._expected = (
            [expected.get(name, math.nan) for name in sources] if isinstance(expected, Mapping) else expected
        )
        self.begin: float = float(self._sent["due"].min()) if sent.size else math.nan
        self.end: float = float(self._sent["due_last"].max()) if sent.size else math.nan
        self._latency = arrived["time"] - self._source_times(sources, streams, upstream)

    def _source_times(
        self, sources: Sequence[str], streams: Sequence[str], upstream: Mapping[str, frozenset[str]]
    ) -> Floats:
        """Return when the message that triggered each arrival was due; NaN if unknown.

        If messages of several sources that are never joined have this number, the last one due before the arrival
        counts.
        """
        arrived = self._arrived
        found = np.full(arrived.size, -math.inf)
        for number, name in enumerate(sources):
            own = self._sent[self._sent["source"] == number]
            below = np.array([name in upstream.get(s, ()) for s in streams], np.bool_)
            place, of = self._turns[number]
            its = arrived["seq"] % of == place % of
            rows = np.flatnonzero(below[arrived["stream"]] & its) if own.size else np.empty(0, np.int64)
            due = _due(own, arrived["seq"][rows])
            later = (due > found[rows]) & (due <= arrived["time"][rows])
            found[rows[later]] = due[later]
        found[np.isinf(found)] = math.nan
        return found

    def begin_at(self, seq: int) -> bool:
        """Count time from the moment when message ``seq`` was due; return False if it was not read."""
        due = self._sent["due"][self._sent["first"] >= seq]
        if due.size:
            self.begin = float(due.min())
        return bool(due.size)

    # -- whole run -----------------------------------------------------------------------------------

    def latency(self, *which: float, since_s: float = 0.0, until_s: float = math.inf) -> list[float]:
        """Quantiles of the latency in seconds, by message, of the records delivered in a part of the run."""
        values, weights = self.latencies(since_s, until_s)
        return quantiles(values, weights, which)

    def latencies(self, since_s: float = 0.0, until_s: float = math.inf) -> tuple[Floats, Floats]:
        """Return sampled latencies in seconds, and how many records each represents."""
        rows = self._between(since_s, until_s) & np.isfinite(self._latency)
        return self._latency[rows], np.asarray(self._arrived["weight"][rows])

    @property
    def duration(self) -> float:
        """Seconds in which messages were due."""
        return self.end - self.begin if self.inputs else 0.0

    @property
    def selectivity(self) -> float:
        """Records delivered per message read."""
        return self.outputs / self.inputs if self.inputs else math.nan

    @property
    def expected(self) -> float:
        """Records that should have been delivered per message read; NaN if not declared."""
        if isinstance(self._expected, float | int):
            return float(self._expected)
        records = np.bincount(self._sent["source"], self._sent["records"], len(self._expected))
        given = records > 0
        total = float((records[given] * np.array(self._expected)[given]).sum())
        return total / self.inputs if self.inputs else math.nan

    @property
    def settled_selectivity(self) -> float:
        """Records delivered per message of the second half of the messages, by number.

        Excludes the beginning, in which windows fill, records emitted only at the end of the input, and the
        messages after the last one that led to a record.
        """
        seq, weight = self._arrived["seq"], self._arrived["weight"]
        last = int(seq.max(initial=NO_SEQ))
        if last == NO_SEQ:
            return math.nan
        first = last // 2 + 1
        own = self._sent
        length = np.maximum(own["last"] - own["first"] + 1, 1)
        inside = np.clip(np.minimum(own["last"], last) - np.maximum(own["first"], first) + 1, 0, None)
        messages = float((own["messages"] * inside / length).sum())
        return float(weight[seq >= first].sum()) / messages if messages else math.nan

    def input_rate(self, since_s: float = 0.0, until_s: float = math.inf) -> float:
        """Messages per second that were due in a time of the run."""
        first, last = self.begin + since_s, self.begin + min(until_s, self.duration)
        return (
            float(np.diff(self._cumulative("due", np.array([first, last]))).sum()) / (last - first)
            if last > first
            else 0.0
        )

    def read_rate(self, since_s: float = 0.0, until_s: float = math.inf) -> float:
        """Messages per second that were read in a time of the run."""
        read = self._sent["read"]
        first, last = self.begin + since_s, min(self.begin + until_s, float(read.max(initial=-math.inf)))
        inside = (read > first) & (read <= last)
        return float(self._sent["messages"][inside].sum() / (last - first)) if last > first else 0.0

    # -- over time -----------------------------------------------------------------------------------

    def series(self, interval_s: float = 1.0, since_s: float = 0.0, until_s: float = math.inf) -> Series:
        """Return the run by intervals: whole ones within the time in which messages were due."""
        n = max(0, int((min(until_s, self.duration) - since_s) / interval_s + 1e-9))
        begin = self.begin if n else 0.0
        edges: Floats = begin + since_s + np.arange(n + 1, dtype=np.float64) * interval_s
        times, weights = self._arrived["time"], self._arrived["weight"]
        outputs, _ = np.histogram(times, edges, weights=weights) if n else (np.empty(0), None)
        place = np.searchsorted(edges, times, "right") - 1
        known = np.flatnonzero(np.isfinite(self._latency))
        known = known[np.argsort(place[known], kind="stable")]
        bounds = np.searchsorted(place[known], np.arange(n + 1))
        medians = np.full(n, math.nan)
        for i, (first, end) in enumerate(itertools.pairwise(bounds)):
            rows = known[first:end]
            medians[i] = quantiles(self._latency[rows], weights[rows], (0.5,))[0]
        due = self._cumulative("due", edges)
        return Series(
            interval_s,
            edges[:-1] - begin,
            np.diff(due) / interval_s,
            outputs / interval_s,
            medians,
            np.maximum(0.0, due - self._cumulative("read", edges))[1:],
        )

    def jitter(
        self,
        interval_s: float = 1.0,
        since_s: float = 0.0,
        until_s: float = math.inf,
        *,
        selectivity: float | None = None,
    ) -> Floats:
        """Return the jitter of each interval, see :func:`riot_ops.measure.metrics.jitter`.

        Parameters
        ----------
        selectivity : float, optional
            Records that should be delivered per message; default: :attr:`expected`. It never is what the run
            itself delivered, since a run that loses half of its records would be without jitter then.
        """
        sigma = self.expected if selectivity is None else selectivity
        if math.isnan(sigma) and self.inputs:
            raise ConfigError(
                "jitter is measured against the records that should be delivered per message, which the tasks of this "
                "dataflow do not declare: give selectivity=, to jitter() or Probe(), such as the settled_selectivity "
                "of a run at a lower rate"
            )
        run = self.series(interval_s, since_s, until_s)
        return jitter(run.output_rate, run.input_rate, sigma, self.input_rate(since_s, until_s))

    def stability(
        self,
        since_s: float = 0.0,
        until_s: float = math.inf,
        *,
        intervals: int = 20,
        tolerance: float = 0.02,
        slack_s: float = 0.05,
    ) -> Stability:
        """Whether the dataflow kept up, see :func:`riot_ops.measure.metrics.stability`."""
        span = min(until_s, self.duration) - since_s
        run = self.series(span / intervals if span > 0 else 1.0, since_s, until_s)
        rate = self.input_rate(since_s, until_s)
        return stability(run.times, run.latency, run.queue, rate or math.nan, tolerance=tolerance, slack_s=slack_s)

    def cpu(self, since_s: float = 0.0, until_s: float = math.inf) -> float:
        """Return the mean number of cores in use in a time of the run; NaN where none was sampled."""
        usage = None if self.usage is None else self.usage.between(self.begin + since_s, self.begin + until_s)
        return float(usage.cpu.mean()) if usage is not None and usage.cpu.size else math.nan

    def memory(self, since_s: float = 0.0, until_s: float = math.inf) -> float:
        """Return the mean memory in bytes in a time of the run; NaN where none was sampled."""
        usage = None if self.usage is None else self.usage.between(self.begin + since_s, self.begin + until_s)
        return float(usage.memory.mean()) if usage is not None and usage.memory.size else math.nan

    def _between(self, since_s: float, until_s: float) -> npt.NDArray[np.bool_]:
        times = self._arrived["time"]
        return np.asarray((times >= self.begin + since_s) & (times <= self.begin + until_s))

    def _cumulative(self, what: str, at: Floats) -> Floats:
        """Messages that were due, or read, up to some moments."""
        total = np.zeros(at.size)
        for number in np.unique(self._sent["source"]):
            own = self._sent[self._sent["source"] == number]
            ends = own["due_last" if what == "due" else "read"]
            starts = own[what]
            order = np.argsort(starts, kind="stable")
            done = np.cumsum(own["messages"][order])
            # a batch read at once is a step, one that was due over a time a ramp
            x = np.maximum.accumulate(np.stack([starts[order], ends[order]], 1).ravel())
            y = np.stack([done - own["messages"][order], done], 1).ravel()
            total += np.interp(at, x, y)
        return total


def _once(sent: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Drop repeated reads after a failure: the first read counts."""
    ordered = sent[np.argsort(sent["read"], kind="stable")]
    _, index = np.unique(ordered[["source", "first", "last"]], return_index=True)
    return np.asarray(ordered[np.sort(index)])


def _due(own: npt.NDArray[np.void], seq: npt.NDArray[np.int64]) -> Floats:
    """When messages were due, by number; NaN for those that were not sent."""
    if not own.size:
        return np.empty(0)
    own = own[np.argsort(own["first"], kind="stable")]
    place = np.searchsorted(own["first"], seq, "right") - 1
    batch = own[np.maximum(place, 0)]
    length = np.maximum(batch["last"] - batch["first"], 1)
    due = batch["due"] + (batch["due_last"] - batch["due"]) * ((seq - batch["first"]) / length)
    return np.where((place >= 0) & (seq <= batch["last"]), due, math.nan)
