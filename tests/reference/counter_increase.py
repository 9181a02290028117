"""Increments of counters in whole numbers and fractions, one reading after the other."""

from __future__ import annotations

from fractions import Fraction


class Counter:
    """``per`` and times are in one unit."""

    def __init__(self, modulus=None, per=None):
        self.modulus, self.per, self.keys = modulus, per, {}

    def push(self, key, value, time=None):
        """Return the increase, None where it is unknown, or the reason for a rejection."""
        if value is None:
            return None
        if self.modulus is not None and not 0 <= value < self.modulus:
            return "out_of_range"
        last, before = self.keys.get(key, (None, None))
        if self.per is not None and last is not None and time <= before:
            return None if time == before else "late"
        self.keys[key] = value, time
        if last is None:
            return None
        grown = Fraction(value) - Fraction(last)
        if grown < 0:
            grown = Fraction(value) if self.modulus is None else grown + self.modulus
        return float(grown if self.per is None else grown * self.per / (time - before))
