"""Ads analytics, one event at a time."""

from __future__ import annotations

import re

from tests.reference.dspbench.sliding import SlottedCounter

MOST = 2**31 - 1


def parse(line, kind):
    """Return query, advertisement and number of clicks or impressions of a record; None if it is malformed."""
    cells = line.split("\t")
    wanted = [cells[i] for i in (7, 3, 0, 1)] if len(cells) == 12 else [""]
    if not all(re.fullmatch(r"[-+]?\d+", cell) and abs(int(cell)) < 2**63 for cell in wanted):
        return None
    query, ad, *counts = map(int, wanted)
    return (query, ad, counts[kind == "impressions"]) if all(0 <= n <= MOST for n in counts) else None


def ads_analytics(clicks, impressions, *, tick_every=None, slots=5, every=2, each=False):
    """Return rows of tick (s), query, ad, rate, impressions, clicks and reach; malformed lines; orphans."""
    ctr, bad, orphans = [], 0, 0
    counters = {"clicks": SlottedCounter(slots), "impressions": SlottedCounter(slots)}
    ticks = 0

    def put_out(clicks, impressions, pairs):
        nonlocal orphans
        for pair in sorted(pairs):
            n, m = clicks.get(pair, 0), impressions.get(pair, 0)
            if n and not m:
                orphans += 1
            else:
                reach = () if each else (min(ticks, slots) * every,)
                ctr.append((ticks * every, *pair, n / m if n else 0.0, m, n, *reach))

    for number in range(max(len(clicks), len(impressions))):
        if tick_every and number and number % tick_every == 0:
            ticks += 1
            found = {kind: counter.tick() for kind, counter in counters.items()}
            put_out(found["clicks"], found["impressions"], {*found["clicks"], *found["impressions"]})
        for kind, lines in (("clicks", clicks), ("impressions", impressions)):
            if number >= len(lines):
                continue
            record = parse(lines[number], kind)
            if record is None:
                bad += 1
                continue
            *pair, n = record
            for _ in range(n):
                counters[kind].add(tuple(pair))
            if each and n:
                put_out(counters["clicks"].totals(), counters["impressions"].totals(), [tuple(pair)])
    if not each and (clicks or impressions):
        ticks += 1
        found = {kind: counter.totals() for kind, counter in counters.items()}
        put_out(found["clicks"], found["impressions"], {*found["clicks"], *found["impressions"]})
    return ctr, bad, orphans
