"""Smart grid, one reading at a time."""

from __future__ import annotations

import statistics

DAY = 86_400


def readings(lines):
    """Return ``(line, time, value, property, (house, household, plug))`` of valid lines, and rejected lines by reason."""
    good, bad, newest = [], [], None
    for number, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) != 7:
            bad.append((number, "wrong_cells"))
            continue
        if not all(cells[1:]):
            bad.append((number, "missing"))
            continue
        try:
            time, kind, plug, household, house = (int(cells[i]) for i in (1, 3, 4, 5, 6))
            value = float(cells[2])
        except ValueError:
            bad.append((number, "bad_time" if not cells[1].isdigit() else "bad_number"))
            continue
        if newest is not None and time < newest:
            bad.append((number, "late"))
            continue
        newest = time
        good.append((number, time, value, kind, (house, household, plug)))
    return good, bad


def outliers(good, window, *, partial=True):
    """Return ``(time, house, percentage)`` of each change, and the global median of each time."""
    loads = [r for r in good if r[3] == 1]
    times = sorted({r[1] for r in loads})
    found, medians, last = [], {}, {}
    for t in times if partial else times[:-1]:
        within = [r for r in loads if t - window < r[1] <= t]
        medians[t] = statistics.median(r[2] for r in within)
        plugs = {}
        for *_, value, _, plug in within:
            plugs.setdefault(plug, []).append(value)
        for house in sorted({plug[0] for plug in plugs}):
            mine = [statistics.median(values) for plug, values in plugs.items() if plug[0] == house]
            share = 100 * sum(m > medians[t] for m in mine) / len(mine)
            if last.get(house) != share:
                last[house] = share
                found.append((t, house, share))
    return found, medians


def predictions(good, length, every, *, partial=True):
    """Return ``(tick, start of the slice, house, household, plug, load)``; houses have no household and plug."""
    if not good:
        return []
    origin, end = good[0][1], good[-1][1]
    means = {}
    for _, time, value, kind, plug in good:
        if kind == 1:
            means.setdefault((plug, (time - origin) // length), []).append((time, value))
    day = DAY // length
    found = []
    tick = origin + every
    while tick < end or (partial and tick == end):
        i = (tick - origin) // length
        now = {p: [v for t, v in values if t <= tick] for (p, j), values in means.items() if j == i}
        now = {p: sum(values) / len(values) for p, values in now.items() if values}
        before = [{p: sum(v for _, v in values) / len(values) for (p, j), values in means.items() if j == k}
                  for k in range((i + 2) % day, i, day)]  # fmt: skip
        for plug in sorted(now):
            found.append((tick, plug, now[plug], [one[plug] for one in before if plug in one]))
        for house in sorted({plug[0] for plug in now}):

            def total(one, house=house):
                return sum(v for plug, v in one.items() if plug[0] == house)

            past = [total(one) for one in before if any(plug[0] == house for plug in one)]
            found.append((tick, (house, None, None), total(now), past))
        tick += every
    return [
        (tick, origin + ((tick - origin) // length + 2) * length, *plug,
         (mean + statistics.median(past)) / 2 if past else mean)
        for tick, plug, mean, past in found
    ]  # fmt: skip
