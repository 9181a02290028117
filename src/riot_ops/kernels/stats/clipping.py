"""Means of the latest values without outliers (sigma clipping)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["run_clipped"]


@kernel
def _rebuild_front(s: Any, ring: Any, head: Any, size: Any, means: Any, squares: Any) -> None:
    """Compute, for each value of a key's ring, mean and squared deviations of that value and all later ones."""
    mean = 0.0
    square = 0.0
    for n in range(1, size + 1):
        j = (head[s] + size - n) % ring.shape[1]
        delta = ring[s, j] - mean
        mean += delta / n
        square += delta * (ring[s, j] - mean)
        means[s, j] = mean
        squares[s, j] = square


@kernel
def run_clipped(
    slots: Any, values: Any, sigma: Any, whole: Any,
    ring: Any, head: Any, size: Any, front: Any, means: Any, squares: Any, mean: Any, square: Any, average: Any,
    averages: Any, counts: Any,
) -> None:  # fmt: skip
    """Compute the average after each value, and the number of values it covers.

    The ring is a queue of two stacks. For each of its ``front`` oldest values, ``means`` and ``squares`` cover that
    value and the later ones of the front; ``mean`` and ``square`` cover all newer values. Nothing is ever subtracted,
    so that no error accumulates.
    """
    room = ring.shape[1]
    for i in range(values.size):
        s = slots[i]
        v = values[i]
        averages[i] = np.nan
        counts[i] = size[s]
        if np.isnan(v):
            if size[s] > 0:
                averages[i] = average[s]
            continue
        if whole:
            v = np.trunc(v)
        n = size[s]
        f = front[s]
        back = n - f
        # mean and squares of the queue
        m = mean[s]
        q = square[s]
        if f > 0:
            delta = m - means[s, head[s]]
            if back == 0:
                m = means[s, head[s]]
                q = squares[s, head[s]]
            else:
                m = means[s, head[s]] + delta * back / n
                q += squares[s, head[s]] + delta * delta * f * back / n
        now = m + (v - m) / (n + 1) if n > 0 else v
        if whole:
            now = np.trunc((np.rint(m * n) + v) / (n + 1))
        taken = n < 2
        if not taken:
            a = average[s]
            spread = math.sqrt((q + n * (m - a) * (m - a) + (v - a) * (v - a)) / n)
            taken = abs(v - now) <= sigma * spread
        if taken:
            if n == room:
                if f == 0:
                    _rebuild_front(s, ring, head, size[s], means, squares)
                    f = n
                    back = 0
                    mean[s] = 0.0
                    square[s] = 0.0
                head[s] = head[s] + 1 if head[s] + 1 < room else 0
                f -= 1
                n -= 1
            ring[s, (head[s] + n) % room] = v
            back += 1
            delta = v - mean[s]
            mean[s] += delta / back
            square[s] += delta * (v - mean[s])
            size[s] = n + 1
            front[s] = f
            average[s] = now
        averages[i] = average[s]
        counts[i] = size[s]
