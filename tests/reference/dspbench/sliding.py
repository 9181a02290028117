"""The slotted counter, the tracker of ticks and the time of ticks, one record at a time."""

from __future__ import annotations


class SlottedCounter:
    """Counts of keys over some slots, of which the first in the list is open."""

    def __init__(self, slots):
        self.slots = [{} for _ in range(slots)]

    def add(self, key, n=1):
        self.slots[0][key] = self.slots[0].get(key, 0) + n

    def totals(self):
        known = {key for slot in self.slots for key in slot}
        return {key: sum(slot.get(key, 0) for slot in self.slots) for key in known}

    def tick(self):
        """The totals of the keys that are known; then the oldest slot is cleared and opened."""
        found = self.totals()
        for slot in self.slots:
            for key in [key for key in slot if not found[key]]:
                del slot[key]
        # a key whose counts have left all slots is known once more, with nothing
        oldest = self.slots.pop()
        self.slots.insert(0, dict.fromkeys((key for key in oldest if found[key]), 0))
        return found


class Ticks:
    """Ticks at the first time plus multiples of a period, by the largest time so far."""

    def __init__(self, period):
        self.period, self.first, self.now = period, None, None

    def move(self, time):
        """The ticks up to a time, those that have been left out."""
        if self.first is None:
            self.first = self.now = time
        before = (self.now - self.first) // self.period
        self.now = max(self.now, time)
        return [self.first + n * self.period for n in range(before + 1, (self.now - self.first) // self.period + 1)]

    def last(self):
        """The tick behind the end."""
        return self.first + ((self.now - self.first) // self.period + 1) * self.period

    def length(self, tick, slots):
        """How far a window of so many slots reaches back from a tick."""
        return min(slots * self.period, tick - self.first)
