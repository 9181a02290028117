"""Scalar Kalman filter, one reading at a time, from the formula."""

import math


class Kalman:
    def __init__(self, q=0.125, r=0.32, p0=30.0, x0=0.0):
        self.q, self.r, self.p0, self.x0 = q, r, p0, x0
        self.keys = {}

    def push(self, key, z):
        x, p = self.keys.get(key, (self.x0, self.p0))
        p += self.q
        gain = None
        if z is not None and not math.isnan(z):
            gain = p / (p + self.r)
            x += gain * (z - x)
            p = (1 - gain) * p
        self.keys[key] = x, p
        return x, p, gain
