"""Machine outlier, one reading at a time."""

from __future__ import annotations

import itertools
import math


def readings(lines, google):
    """Return ``(line, time in µs, machine, cpu, memory)`` of each valid line, and the rejected lines by reason."""
    good, bad, newest = [], [], -math.inf
    for number, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) != (19 if google else 9):
            bad.append((number, "wrong_cells"))
            continue
        at, machine, cpu, memory = (cells[i] for i in ((0, 4, 5, 6) if google else (1, 0, 2, 3)))
        if not (at and machine and cpu and memory):
            bad.append((number, "missing"))
            continue
        try:
            one = number, int(at) * (1 if google else 1_000_000), machine, float(cpu), float(memory)
        except ValueError:
            bad.append((number, "bad_time" if not at.isdigit() else "bad_number"))
            continue
        if one[1] < newest:
            bad.append((number, "late"))
            continue
        newest = one[1]
        good.append(one)
    return good, bad


def scored(good, scales):
    """Return ``(line, time, machine, score)``, ordered by time."""
    for _, group in itertools.groupby(good, lambda r: r[1]):
        batch = list(group)
        points = [(cpu / scales[0], memory / scales[1]) for *_, cpu, memory in batch]
        centre = [sum(axis) / len(points) for axis in zip(*points, strict=True)]
        yield [(*r[:3], 1 + math.dist(p, centre)) for r, p in zip(batch, points, strict=True)]


def windowed(batches, window):
    """Add the sum of the latest scores of each machine."""
    history = {}
    for batch in batches:
        out = []
        for number, at, machine, score in batch:
            history.setdefault(machine, []).append(score)
            out.append((number, at, machine, sum(history[machine][-window:]), score))
        yield out


def decayed(batches, decay):
    totals, last, clear = {}, {}, False
    for batch in batches:
        if clear:
            totals, clear = dict.fromkeys(totals, 0.0), False
        for _, _, machine, score in batch:
            totals[machine] = totals.get(machine, 0.0) * math.exp(-decay) + score
            last[machine] = score
            clear = clear or totals[machine] > 0.5 / (1 - math.exp(-decay))
        yield [(batch[-1][0], batch[-1][1], machine, total, last[machine]) for machine, total in totals.items()]


def largest(totals, top):
    """Return the places of the largest totals; of equal ones the first."""
    return sorted(range(len(totals)), key=lambda i: (-totals[i], i))[:top]


def machine_outlier(lines, *, google=False, scales=(100, 100), window=10, decay=None, top=None, partial=True):
    """Return ``(line, time, machine, stream score, score, abnormal)`` of each result, and the rejected lines by reason."""
    good, bad = readings(lines, google)
    batches = list(scored(good, scales))
    if not partial:  # each operator drops the batch that is open at the end
        batches = batches[:-1]
    sums = list(windowed(batches, window) if decay is None else decayed(batches, decay))
    found = []
    for batch in sums if partial else sums[:-1]:
        totals = sorted(total for *_, total, _ in batch)
        middle, low, least = totals[len(totals) // 2], totals[0], min(score for *_, score in batch)
        best = largest([total for *_, total, _ in batch], top)
        for i, (*place, total, score) in enumerate(batch):
            if top is not None:
                found.append((*place, total, score, i in best))
            elif total > 2 * middle - low and total > low + 2 * math.sqrt(2) and score > least + 0.1:
                found.append((*place, total, score, True))
    return found, bad
