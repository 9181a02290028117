"""VoIP stream, one call at a time."""

from __future__ import annotations

import datetime as dt
import math

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Rates:
    """A decaying rate per second for each number, and the time of its last update."""

    def __init__(self, beta):
        self.beta = beta
        self.known = {}

    def at(self, number, t):
        if number not in self.known:
            return 0.0
        value, since = self.known[number]
        return value * self.beta ** max(0.0, t - since)

    def add(self, number, amount, t):
        since = max(self.known.get(number, (0.0, t))[1], t)
        value = self.at(number, t) + amount * -math.log(self.beta) * self.beta ** (since - t)
        self.known[number] = value, since
        return value


def parsed(line):
    """Return ``(caller, callee, time, seconds, established)`` of a line; ValueError if it is malformed."""
    outer = line.split(",")
    if len(outer) != 4:
        raise ValueError(line)
    caller, callee, time, inner = outer
    if ";" in caller + callee + time:
        raise ValueError(line)
    inner = inner.split(";")
    seconds = float(inner[3]) if len(inner) == 5 else math.nan
    if not (math.isfinite(seconds) and seconds >= 0 and caller and callee and inner[4] in ("true", "false")):
        raise ValueError(line)
    return caller, callee, dt.datetime.fromisoformat(time).replace(tzinfo=dt.UTC), seconds, inner[4] == "true"


def voip_stream(
    lines,
    *,
    decay=0.9672,
    decay24=0.9917,
    fofir_ramp=(2.0, 10.0),
    fofir_weight=2.0,
    url_ramp=(0.5, 1.0),
    url_weight=3.0,
    acd_ramp=(5.0, 10.0),
    acd_weight=3.0,
    acd_span=86400.0,
    acd_mode="long",
    ramp="linear",
    threshold=None,
):
    """Return ``(line, caller, time, score, fofir, url, acd)`` of each established call, and the malformed lines."""
    met, bad, found = set(), [], []
    established, received, fresh = Rates(decay), Rates(decay), Rates(decay)
    established24, talked24 = Rates(decay24), Rates(decay24)
    durations, mean = [], 0.0

    def score(ratio, ends):
        low, high = ends
        if ramp == "ratio":
            return min(1.0, ratio / high)
        return min(1.0, max(0.0, (ratio - low) / (high - low)))

    for number, line in enumerate(lines):
        try:
            caller, callee, time, seconds, answered = parsed(line)
        except ValueError:
            bad.append(number)
            continue
        new = (caller, callee) not in met
        met.add((caller, callee))
        durations.append(seconds)
        if len(durations) <= 10:
            mean = sum(durations) / len(durations)
        else:
            mean += 2 / (acd_span + 1) * (seconds - mean)
        if not answered:
            continue
        t = (time - EPOCH).total_seconds()
        received.add(callee, 1, t)
        out, came = established.add(caller, 1, t), received.at(caller, t)
        strangers = fresh.add(caller, 1, t) if new else fresh.at(caller, t)
        calls = established24.add(caller, 1, t)
        talk = talked24.add(caller, seconds, t) if new else talked24.at(caller, t)
        fofir = score(out / came, fofir_ramp) if came else 1.0
        url = score(strangers / out, url_ramp) if out else 0.0
        acd = 0.0
        if calls and mean:
            ratio = talk / calls / mean
            acd = 1 - min(1.0, ratio) if acd_mode == "short" else score(ratio, acd_ramp)
        total = fofir_weight * fofir + url_weight * url + acd_weight * acd
        if threshold is None or total >= threshold:
            found.append((number, caller, time, total, fofir, url, acd))
    return found, bad, mean
