"""Readings of motes in a building, as the spike detection of DSPBench reads them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Count, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_decimals, format_times, join_cells, normals

__all__ = ["MotesSource"]

#: Seconds between two readings of a mote, and how many a day has.
EPOCH = 31
DAY = 86_400 / EPOCH
#: The readings of an epoch arrive within this many seconds, in no order.
WITHIN = 1.0
#: Share of the temperature that a spike adds or subtracts.
SPIKE = 0.2


class MotesSource(TextLineSource):
    """Readings in the format of the Intel Berkeley lab.

    A line has eight cells between blanks: date, time, epoch, mote, temperature (°C), humidity (%), light (lux) and
    voltage.
    Every mote reports once in 31 seconds, all of an epoch within one second, so that times do not ascend. A mote's
    temperature has a level of 18 to 24 °C, a slight swing over the day and noise of 0.1 °C; few readings are 20 % too
    high or too low, which is a spike.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    motes : int, >= 1, default 54
    spikes : float, 0 to 1, default 0.01
        Share of the readings that are spikes.
    dirt : bool, default True
        1 % of the lines are bad: half of them are cut off after the mote, as many are in the original; of others the
        temperature or the mote is invalid. One line in fifty has a time without fraction.

    Shapes and rates
    ----------------
    62 bytes a line; with 54 motes a line each 574 ms.

    Examples
    --------
    >>> source = MotesSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'2004-03-01 00:00:31.352867 0 2 21.8607 39.6007 285.46 2.57963'
    """

    stream: ClassVar[str] = "motes"
    domain: ClassVar[str] = "motes in a building"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<after>.*)",
        "%Y-%m-%d %H:%M:%S",
    )
    start_ms = 1_078_099_231_000  # 2004-03-01 00:00:31

    motes: Count = 54
    spikes: Share = 0.01

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return EPOCH * 1000 / self.motes

    def lines(self, numbers: Numbers) -> pa.Array:
        epoch, mote = np.divmod(numbers, self.motes)
        swing = np.sin(2 * np.pi * (epoch / DAY + self.uniforms(1, mote)))
        warmth = swing + normals(self.seed, 2, numbers)
        temperature = 18 + 6 * self.uniforms(3, mote) + 0.1 * warmth
        chance = self.uniforms(4, numbers)
        temperature *= np.where(chance >= self.spikes, 1.0, np.where(chance < self.spikes / 2, 1 - SPIKE, 1 + SPIKE))
        humidity = 40 - 2 * warmth + normals(self.seed, 5, numbers)
        light = np.maximum(0.0, 150 + 150 * swing + 20 * normals(self.seed, 6, numbers))
        voltage = 2.7 - 0.3 * self.uniforms(7, mote) + 0.005 * normals(self.seed, 8, numbers)
        within = (self.uniforms(9, numbers) * WITHIN * 1e6).astype(np.int64)
        time = format_times(self.start_ms * 1000 + epoch * EPOCH * 1_000_000 + within, "us", " ")
        if self.dirt:
            time = pc.if_else(pa.array(self.uniforms(10, numbers) < 0.02), pc.utf8_slice_codeunits(time, 0, 19), time)
        head = [time, epoch, mote + 1]
        rest = [format_decimals(humidity, 4), format_decimals(light, 2), format_decimals(voltage, 5)]
        short = join_cells(*head, separator=" ")
        lines = join_cells(short, format_decimals(temperature, 4), *rest, separator=" ")
        worded = join_cells(short, "nil", *rest, separator=" ")
        timeless = pc.replace_substring_regex(lines, r"^\S+", "2004-02-30")
        return self.with_dirt(numbers, lines, 0.01, [short, short, worded, timeless])
