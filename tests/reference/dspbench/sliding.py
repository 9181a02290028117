"""Counts over slots, and the ticks that move them, one record at a time."""

from __future__ import annotations


class SlottedCounter:
    """Counts of keys over slots; the first slot in the list is the open one."""

    def __init__(self, slots):
        self.slots = [{} for _ in range(slots)]

    def add(self, key, n=1):
        self.slots[0][key] = self.slots[0].get(key, 0) + n

    def totals(self):
        known = {key for slot in self.slots for key in slot}
        return {key: sum(slot.get(key, 0) for slot in self.slots) for key in known}

    def tick(self):
        """Return the totals of all known keys; then clear the oldest slot and open it."""
        found = self.totals()
        for slot in self.slots:
            for key in [key for key in slot if not found[key]]:
                del slot[key]
        # a key without counts in any slot is reported once more, with 0
        oldest = self.slots.pop()
        self.slots.insert(0, dict.fromkeys((key for key in oldest if found[key]), 0))
        return found


class Ticks:
    """Ticks at the first time plus multiples of a period; the largest time so far moves them."""

    def __init__(self, period):
        self.period, self.first, self.now = period, None, None

    def move(self, time):
        """Return the ticks up to a time that have not been returned."""
        if self.first is None:
            self.first = self.now = time
        before = (self.now - self.first) // self.period
        self.now = max(self.now, time)
        return [self.first + n * self.period for n in range(before + 1, (self.now - self.first) // self.period + 1)]

    def last(self):
        """Return the tick after the end."""
        return self.first + ((self.now - self.first) // self.period + 1) * self.period

    def length(self, tick, slots):
        """Return how far a window of a number of slots reaches back from a tick."""
        return min(slots * self.period, tick - self.first)
