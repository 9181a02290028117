"""The Yahoo streaming benchmark, one line at a time."""

from __future__ import annotations

import json
import re

LARGEST = 253402300799999


def parse(line):
    """Return advertisement, type and time in ms of a line; None if it is malformed."""
    try:
        given = json.loads(line)
    except ValueError:
        return None
    values = [given.get(name) if isinstance(given, dict) else None for name in ("ad_id", "event_type", "event_time")]
    if not (isinstance(values[0], str) and isinstance(values[1], str)):
        return None
    if isinstance(values[2], bool) or not re.fullmatch(r"-?\d{1,15}", str(values[2])) or int(values[2]) > LARGEST:
        return None
    return values[0], values[1], int(values[2])


def yahoo_streaming(lines, ads, window=10_000, allowed_lateness=0, event_type="view"):
    """Return rows of window start (ms), campaign and count in order, and the numbers of malformed and late lines."""
    counts, bad, now = {}, [], None
    for number, line in enumerate(lines):
        event = parse(line)
        if event is None:
            bad.append(number)
            continue
        ad, kind, time = event
        now = time if now is None else max(now, time)
        if kind != event_type or ad not in ads:
            continue
        start = time // window * window
        if start + window <= (now - allowed_lateness) // window * window:
            bad.append(number)
        else:
            counts[start, ads[ad]] = counts.get((start, ads[ad]), 0) + 1
    return sorted((start, campaign, n) for (start, campaign), n in counts.items()), bad
