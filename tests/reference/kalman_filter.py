"""Scalar Kalman filter, one reading at a time, from the formula."""

import math


class Kalman:
    def __init__(self, q=0.125, r=0.32, p0=30.0, initial="zero", missing="predict", noise_per=None):
        self.noise_per, self.last = noise_per, {}
        self.q, self.r, self.p0, self.initial, self.missing = q, r, p0, initial, missing
        self.keys = {}

    def push(self, key, z, time=None):
        """Return estimate (None without one), variance and gain; ``time`` and ``noise_per`` are in one unit."""
        known = z is not None and not math.isnan(z)
        x, p = self.keys.get(key, (None, self.p0))
        if not known and (self.missing == "skip" or (x is None and self.initial == "first")):
            return None, p, None
        if self.noise_per is None:
            p += self.q
        else:
            p += self.q * max(time - self.last.get(key, time), 0) / self.noise_per
            self.last[key] = max(time, self.last.get(key, time))
        gain = None
        if known:
            if x is None:
                x = z if self.initial == "first" else 0.0
            gain = p / (p + self.r)
            x += gain * (z - x)
            p = (1 - gain) * p
        self.keys[key] = x, p
        return x, p, gain
