"""Equipment monitoring, one reading at a time."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

PAIRS = (("bm05", "bm08"), ("bm06", "bm09"), ("bm07", "bm10"))
STATES = [sensor for sensor, _ in PAIRS] + [valve for _, valve in PAIRS]
HOUR = 3_600_000_000_000


def ordered(readings, allowed_lateness=1_000_000_000):
    """Return the readings ``(ts, states)`` ordered by ts, without late ones; lateness is in microseconds."""
    newest, kept = None, []
    for place, (ts, states) in enumerate(readings):
        micros = ts // 1000
        newest = micros if newest is None else max(newest, micros)
        if micros + allowed_lateness // 1000 >= newest:
            kept.append((ts, place, states))
    return [(ts, states) for ts, _, states in sorted(kept)]


def delays(readings, max_pending=16):
    """Return ``(pair, ts, delay)`` rows, and the numbers of missed and unmatched changes."""
    last, queues = {}, {pair: deque() for pair in PAIRS}
    found, missed, unmatched = [], 0, 0
    for ts, states in readings:
        for name in STATES:
            changed = name in last and last[name] != states[name]
            last[name] = states[name]
            if not changed:
                continue
            pair = next(pair for pair in PAIRS if name in pair)
            queue = queues[pair]
            if name == pair[0]:
                if len(queue) == max_pending:
                    queue.popleft()
                    missed += 1
                queue.append((states[name], ts))
                continue
            match = next((one for one in queue if one[0] == states[name]), None)
            if match is None:
                unmatched += 1
            else:
                queue.remove(match)
                found.append(("-".join(pair), ts, ts - match[1]))
    return found, missed, unmatched


def monitor(found, window=24 * HOUR, growth=0.01, baseline="min"):
    """Return ``(pair, ts, count, mean, min, max, slope, alarm)`` for each delay."""
    held = {}
    for pair, ts, delay in found:
        old = [one for one in held.get(pair, []) if one[0] > ts - window]
        alarm = False
        if old:
            values = [value for _, value in old]
            base = {"min": min(values), "first": values[0], "mean": Fraction(sum(values), len(values))}[baseline]
            alarm = delay > (1 + growth) * base
        held[pair] = now = [*old, (ts, delay)]
        n, values = len(now), [value for _, value in now]
        xs = [Fraction(t - now[0][0], HOUR) for t, _ in now]
        below = n * sum(x * x for x in xs) - sum(xs) ** 2
        slope = None
        if below:
            slope = float((n * sum(x * y for x, y in zip(xs, values, strict=True)) - sum(xs) * sum(values)) / below)
        yield pair, ts, n, sum(values) / n, min(values), max(values), slope, alarm
