"""Windows of local time: hours, days, weeks, months, quarters and years of a time zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.clock import NEVER, Ticks, to_microseconds
from riot_ops.core.lookback import Lookback
from riot_ops.kernels.stats.local_calendar import local_calendar
from riot_ops.kernels.stats.panes import NONE
from riot_ops.tasks.window.windowing.accumulators import Numbers
from riot_ops.tasks.window.windowing.stats import Stat
from riot_ops.tasks.window.windowing.time_windows import MAX_PANE, PaneTimes, TimeWindows
from riot_ops.windows import Calendar

__all__ = ["CalendarWindows"]

HOUR_US = 3_600_000_000
#: Offsets of time zones are multiples of it; before zones agreed on UTC, windows close at the next multiple.
QUARTER_US = HOUR_US // 4
#: Length of the shortest unit in hours, and of the longest one, where no day is skipped or repeated.
SHORTEST = {"hour": 0.5, "day": 24, "week": 168, "month": 672, "quarter": 2_160, "year": 8_760}
LONGEST = {"hour": 2, "day": 25, "week": 169, "month": 745, "quarter": 2_209, "year": 8_785}
#: Local time changes by no more, in hours.
ZONE_CHANGE = 26


class CalendarWindows(TimeWindows):
    """Windows of local time: a pane is a window, and its number that of the :class:`LocalCalendar`."""

    def __init__(
        self, stats: Sequence[Stat], emit: str | timedelta, frame: Calendar, allowed_lateness: timedelta
    ) -> None:
        self._set_emission(stats, emit)
        self.calendar = local_calendar(frame.unit, frame.tz)
        self.allowed_lateness = to_microseconds(allowed_lateness)
        self.every, self.panes, self.offset = 1, 1, 0
        self.period = QUARTER_US
        self.longest = (LONGEST[frame.unit] + ZONE_CHANGE) * HOUR_US
        self.retention = 2 * self.longest
        late = self.allowed_lateness / HOUR_US
        self.room = 2 + (int((late + ZONE_CHANGE) / SHORTEST[frame.unit]) + 1 if late else 0)

    def lookback(self) -> Lookback | None:
        return Lookback(span=timedelta(microseconds=self.longest + self.allowed_lateness))

    def _range(self, batch: Any) -> tuple[int, int]:
        return self.calendar.range(*self._time_limits(batch))

    def _pane_times(self, times: Numbers, present: npt.NDArray[np.bool_], ticks: Ticks) -> PaneTimes:
        now = ticks.at_rows(times.size)
        future = present & ((now == NEVER) | (times >= np.where(now == NEVER, 0, now) + ticks.resolution))
        usable = present & ~future
        numbers = np.zeros(times.size, np.int64)
        numbers[usable] = self.calendar.numbers(times[usable])
        return PaneTimes(numbers, usable, self._begun(self._closing(ticks.times)), 0, MAX_PANE, future)

    def _closing(self, now: Any) -> Any:
        """Return the time whose windows are closed at a stream time, or at each."""
        return (now - self.allowed_lateness) // self.period * self.period

    def _closed(self, now: int) -> int:
        return NONE if now == NEVER else int(self._begun(np.array([self._closing(now)]))[0])

    def _pane_time(self, now: int) -> int:
        return self._closed(now)

    def _begun(self, time: Any) -> Any:
        return self.calendar.numbers(time)

    def _spans(self, ends: Numbers) -> tuple[Numbers, Numbers]:
        return self.calendar.bounds(ends - 1)

    def _begins(self, panes: Numbers) -> Numbers:
        known = panes != NONE
        out = np.zeros_like(panes)
        out[known] = self.calendar.bounds(panes[known])[0]
        return out
