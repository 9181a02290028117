"""Readings of manufacturing equipment, as equipment monitoring reads them."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.parameters import as_timedelta
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.noise import normal
from riot_ops.streams.parameters import Flag, NonNegative, PositiveDuration, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells

__all__ = ["EquipmentSource"]

#: Time between two readings, and the least delay of a valve, in ns.
TICK, FLOOR = 10_000_000, 10_000_000
#: Readings for which the other fields stay unchanged.
STEADY = 1000
#: Number of fields before and after the states, without time, index and the first measurement.
BEFORE, AFTER = 9, 48
Changes = tuple[Numbers, Numbers, npt.NDArray[np.bool_]]
PAIRS = ("bm05-bm08", "bm06-bm09", "bm07-bm10")


class EquipmentSource(TextLineSource):
    r"""Readings of a machine with three sensors and the valves that follow them, at 100 Hz.

    A line has 66 cells with tabs between, in the order of the DEBS 2012 Grand Challenge: ``ts`` in ns, a counter, ten
    measurements, the states ``bm05`` to ``bm10``, and 48 measurements more. A sensor changes its state after a time
    that is exponential with a mean of ``holding``; its valve follows after ``200 ms (1 + growth t)``, t in hours,
    with a standard deviation of 5 ms, and not at all with a probability of 0.001. The measurements are whole numbers
    that change every ten seconds.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    holding : timedelta > 0 or text such as "10s", default "1min"
        Mean time between two changes of a sensor.
    growth : float >= 0, default 0.0
        Growth of a delay per hour, as a share of 200 ms.
    noise : bool, default False
        Whether the first measurement is random, which makes lines harder to compress.
    disorder : float, 0 to 1, default 0.01
        Share of pairs of lines that are swapped.
    dirt : bool, default True
        0.1 % of the lines are bad: with cells missing, or an invalid state.

    Shapes and rates
    ----------------
    About 300 bytes a line. Of the changes up to a line, tables are kept: 16 bytes for each.

    Examples
    --------
    >>> next(EquipmentSource(messages=2).read({"start": 0, "end": 2}))["payload"][1].as_py()[:40]
    b'1577836800010000000\t1\t10100\t1005\t1039\t10'
    """

    stream: ClassVar[str] = "equipment"
    domain: ClassVar[str] = "readings of manufacturing equipment"
    line_time: ClassVar[LineTime | None] = LineTime(r"(?P<time>\d+)(?P<after>\t.*)", "ns")
    gap_ms = TICK / 1e6

    holding: PositiveDuration = "1min"
    growth: NonNegative = 0.0
    noise: Flag = False
    disorder: Share = 0.01

    def changes(self, sensor: int, until: int) -> Changes:
        """When a sensor changes and its valve would follow, in ns from the first reading on, and whether it does.

        Covers all changes up to ``until``, and perhaps some more.
        """
        nothing = np.empty(0, np.int64)
        known: dict[int, Changes] = self.__dict__.setdefault("_changes", {})
        times, valve, follows = known.get(sensor, (nothing, nothing, np.empty(0, np.bool_)))
        while not times.size or times[-1] <= until:
            numbers = np.arange(times.size, 2 * times.size + 64)
            gaps = -np.log1p(-self.uniforms(10 + sensor, numbers)) * as_timedelta(self.holding).total_seconds() * 1e9
            start = int(times[-1]) if times.size else 0
            new = start + np.cumsum(gaps.astype(np.int64) + 1)
            spread = np.array([normal(h) for h in self.random_words(20 + sensor, numbers)])
            wait = 2e8 * (1 + self.growth * new / 3.6e12) + 5e6 * spread
            times = np.concatenate([times, new])
            valve = np.concatenate([valve, new + np.maximum(wait.astype(np.int64), FLOOR)])
            follows = np.concatenate([follows, self.uniforms(30 + sensor, numbers) >= 0.001])
            known[sensor] = times, valve, follows
        return times, valve, follows

    def lines(self, numbers: Numbers) -> pa.Array:
        if self.disorder:
            swapped = self.uniforms(1, numbers // 2) < self.disorder
            if self.messages is not None:
                swapped &= numbers // 2 * 2 + 1 < self.messages
            numbers = np.where(swapped, numbers ^ 1, numbers)
        states = np.zeros(numbers.size, np.int64)
        at = numbers * TICK
        until = int(at.max(initial=0))
        for sensor in range(len(PAIRS)):
            times, valve, follows = self.changes(sensor, until)
            states += (np.searchsorted(times, at, side="right") % 2) << sensor
            # the state of a valve is that of its sensor when it last followed
            order = np.argsort(valve, kind="stable")
            order = order[follows[order]]
            last = np.searchsorted(valve[order], at, side="right")
            states += np.append(0, (order + 1) % 2)[last] << (len(PAIRS) + sensor)
        steady = numbers // STEADY
        blocks, place = np.unique(steady, return_inverse=True)
        first = (self.random_words(2, numbers if self.noise else steady) % np.uint64(1000)).astype(np.int64)
        before, after = self._measurements(blocks, 0, BEFORE), self._measurements(blocks, BEFORE, AFTER)
        when = self.start_ms * 1_000_000 + at
        parts = [first + 10_000, before.take(pa.array(place)), _states().take(pa.array(states))]
        rest = after.take(pa.array(place))
        lines = join_cells(when, numbers, *parts, rest, separator="\t")
        short = join_cells(when, numbers, *parts, separator="\t")
        odd = join_cells(when, numbers, *parts[:2], "x\t0\t0\t0\t0\t0", rest, separator="\t")
        return self.with_dirt(numbers, lines, 0.001, [short, odd])

    def _measurements(self, blocks: Numbers, start: int, n: int) -> pa.Array:
        """Make ``n`` fields of blocks of readings, as text."""
        fields = []
        for f in range(start, start + n):
            level = 1000 + 37 * f
            fields.append(level + (self.random_words(40 + f, blocks) % np.uint64(7)).astype(np.int64))
        return join_cells(*fields, separator="\t")


@functools.cache
def _states() -> pa.Array:
    """Return the six states as text, by their bits."""
    every = np.arange(64)
    return join_cells(*((every >> bit) & 1 for bit in range(6)), separator="\t")
