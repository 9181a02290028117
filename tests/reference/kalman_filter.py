"""Scalar Kalman filter, one reading at a time, from the formula."""

import math


class Kalman:
    def __init__(self, q=0.125, r=0.32, p0=30.0, initial="zero", missing="predict"):
        self.q, self.r, self.p0, self.initial, self.missing = q, r, p0, initial, missing
        self.keys = {}

    def push(self, key, z):
        """Return estimate (None without one), variance and gain."""
        known = z is not None and not math.isnan(z)
        x, p = self.keys.get(key, (None, self.p0))
        if not known and (self.missing == "skip" or (x is None and self.initial == "first")):
            return None, p, None
        p += self.q
        gain = None
        if known:
            if x is None:
                x = z if self.initial == "first" else 0.0
            gain = p / (p + self.r)
            x += gain * (z - x)
            p = (1 - gain) * p
        self.keys[key] = x, p
        return x, p, gain
