"""Readings of smart plugs in houses, as the smart grid of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Count, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_decimals, join_cells, random_words, uniforms

__all__ = ["MetersSource"]

#: Possible loads of an appliance that is on, in watts.
PEAKS = np.array([25, 35, 50, 70, 150, 300, 600, 800, 900, 1200])
#: Possible times that an appliance stays on or off, in seconds.
SPELLS = np.array([600, 900, 1800, 3600, 5400, 7200, 108_000])
#: Maximum deviation of a load from the usual one, in watts.
NOISE = 10.0
#: Joules of a kilowatt-hour.
KWH = 3_600_000
#: Households of a house and plugs of a household: at least, and at most.
HOUSEHOLDS, PLUGS = (2, 10), (5, 20)


class MetersSource(TextLineSource):
    """Readings in the format of the DEBS 2014 Grand Challenge.

    A line is ``id,timestamp,value,property,plug,household,house``. Every plug gives two at each time: its load in W
    (property 1) and its work so far in kWh (0). A house has 2 to 10 households, a household 5 to 20 plugs. The
    appliance at a plug draws 25 to 1,200 W, give or take 10, and is on or off by chance for 10 minutes to 30 hours at a
    time.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    houses : int, >= 1, default 10
    every : int, >= 1, default 30
        Seconds between two readings of a plug; 1 in the challenge, in which the day of 10 houses has 150 million lines.
    late : float, 0 to 1, default 0.0005
        Share of the lines whose time is that of the previous reading.
    dirt : bool, default True
        0.2 % of the lines are bad: they lack cells, or have no number for a value.

    Shapes and rates
    ----------------
    31 bytes a line; with 10 houses about 1,800 lines for each round of readings.

    Examples
    --------
    >>> source = MetersSource(messages=2, dirt=False)
    >>> [line.decode() for line in next(source.read({"start": 0, "end": 2}))["payload"].to_pylist()]
    ['0,1377986400,21.104,1,0,0,0', '1,1377986400,0.000,0,0,0,0']
    """

    stream: ClassVar[str] = "meters"
    domain: ClassVar[str] = "smart plugs in houses"
    line_time: ClassVar[LineTime | None] = LineTime(r"(?P<before>[^,]*,)(?P<time>\d+)(?P<after>,.*)", "s")
    start_ms = 1_377_986_400_000  # 2013-08-31 22:00:00

    houses: Count = 10
    every: Count = 30
    late: Share = 0.0005

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return self.every * 1000 / (2 * len(plugs(self.seed, self.houses)))

    def lines(self, numbers: Numbers) -> pa.Array:
        everything = plugs(self.seed, self.houses)
        step, within = np.divmod(numbers, 2 * len(everything))
        plug, is_work = np.divmod(within, 2)
        time = step * self.every
        spell, peak = (table[plug] for table in appliances(self.seed, len(everything)))
        turn, elapsed = np.divmod(time, spell)
        # spells are entirely on or off, so the number of earlier ones that were on gives the work
        before, on = self._spells(plug, turn)
        load = np.where(on, np.maximum(peak + NOISE * (2 * self.uniforms(3, numbers) - 1), 0.0), 0.0)
        work = peak * (before * spell + np.where(on, elapsed, 0)) / KWH
        late = (self.uniforms(4, numbers) < self.late) & (step > 0)
        names = [everything[plug, i] for i in (2, 1, 0)]
        head = join_cells(numbers, self.start_ms // 1000 + time - late * self.every)
        rest = join_cells(1 - is_work, *names)
        lines = join_cells(head, format_decimals(np.where(is_work, work, load), 3), rest)
        return self.with_dirt(numbers, lines, 0.002, [head, join_cells(head, "n/a", rest)])

    def _spells(self, plug: Numbers, turn: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the number of earlier spells of the plug that were on, and whether this one is."""
        size = 1 << max(4, int(turn.max(initial=0) + 1).bit_length())  # powers of two: rarely rebuilt
        table = spells(self.seed, self.houses, size)
        return table[plug, turn], table[plug, turn + 1] > table[plug, turn]


@functools.lru_cache(maxsize=8)
def plugs(seed: int, houses: int) -> Numbers:
    """Return the house, household and plug of each plug."""
    found = []
    for house in range(houses):
        households = _between(seed, 11, house, HOUSEHOLDS)
        for household in range(households):
            count = _between(seed, 12, house * HOUSEHOLDS[1] + household, PLUGS)
            found += [(house, household, plug) for plug in range(count)]
    return np.array(found)


@functools.lru_cache(maxsize=8)
def appliances(seed: int, n: int) -> tuple[Numbers, Numbers]:
    """Return the length of a spell and load of the appliance at each plug."""
    every = np.arange(n)
    lengths: Any = SPELLS[(random_words(seed, 1, every) % np.uint64(SPELLS.size)).astype(np.int64)]
    peaks: Any = PEAKS[(random_words(seed, 2, every) % np.uint64(PEAKS.size)).astype(np.int64)]
    return lengths, peaks


@functools.lru_cache(maxsize=2)
def spells(seed: int, houses: int, size: int) -> Numbers:
    """By plug, how many of its first n spells were on, for n = 0, 1 and so on."""
    n = len(plugs(seed, houses))
    on = uniforms(seed, 5, np.arange(n)[:, None] + np.arange(size) * n) < 0.5
    return np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(on, axis=1)], axis=1)


def _between(seed: int, use: int, number: int, ends: tuple[int, int]) -> int:
    return ends[0] + int(random_words(seed, use, np.array([number]))[0] % np.uint64(ends[1] - ends[0] + 1))
