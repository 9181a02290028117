"""VoIP stream in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["voip_stream"]


def voip_stream(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    decay: float = 0.9672,
    decay24: float = 0.9917,
    fofir_ramp: tuple[float, float] = (2.0, 10.0),
    fofir_weight: float = 2.0,
    url_ramp: tuple[float, float] = (0.5, 1.0),
    url_weight: float = 3.0,
    acd_ramp: tuple[float, float] = (5.0, 10.0),
    acd_weight: float = 3.0,
    acd_span: float = 86_400.0,
    acd_mode: str = "long",
    ramp: str = "linear",
    threshold: float | None = None,
) -> dict[str, list[tuple[Any, ...]]]:
    """``scores``: caller, time, score, FoFiR, URL, ACD. ``inputs`` has ``calls``, lines of call records."""
    fast, slow = -math.log(decay), -math.log(decay24)
    alpha = 2.0 / (acd_span + 1.0)
    pairs: set[tuple[str, str]] = set()
    # rate and time of its last update, by number
    outgoing: dict[str, tuple[float, float]] = {}
    received: dict[str, tuple[float, float]] = {}
    new_made: dict[str, tuple[float, float]] = {}
    made24: dict[str, tuple[float, float]] = {}
    talked24: dict[str, tuple[float, float]] = {}
    nobody = (0.0, -math.inf)
    average, count = 0.0, 0
    scores = new_rows()
    exp = math.exp

    def add(rates: dict[str, tuple[float, float]], number: str, amount: float, now: float, speed: float) -> float:
        rate, at = rates.get(number, nobody)
        if now > at:
            rate = rate * exp(speed * (at - now)) + amount * speed
            rates[number] = (rate, now)
        else:
            rate += amount * speed * exp(speed * (now - at))
            rates[number] = (rate, at)
        return rate

    def read(rates: dict[str, tuple[float, float]], number: str, now: float, speed: float) -> float:
        rate, at = rates.get(number, nobody)
        return rate * exp(speed * (at - now)) if now > at else rate

    def ramp_score(ratio: float, ends: tuple[float, float]) -> float:
        low, high = ends if ramp == "linear" else (0.0, ends[1])
        return min(1.0, max(0.0, (ratio - low) / (high - low)))

    for line in inputs["calls"]:
        try:
            text = line.decode().rstrip("\r\n")
            cells = text.replace(";", ",").split(",")
            if len(cells) != 8 or text.count(",") != 3 or text.split(",")[3].count(";") != 4:
                continue
            caller, callee = cells[0], cells[1]
            time = datetime.fromisoformat(cells[2].strip())
            datetime.fromisoformat(cells[5].strip())
            duration = float(cells[6])
        except ValueError:
            continue
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        established = cells[7].strip().lower()
        if not (0.0 <= duration < math.inf and caller and callee and established in ("true", "false", "1", "0")):
            continue
        now = time.timestamp()
        new = (caller, callee) not in pairs
        if new:
            pairs.add((caller, callee))
        count += 1
        average += (duration - average) * (1.0 / count if count <= 10 else alpha)
        if established in ("false", "0"):
            continue
        add(received, callee, 1.0, now, fast)
        ecr = add(outgoing, caller, 1.0, now, fast)
        rcr = read(received, caller, now, fast)
        encr = add(new_made, caller, 1.0, now, fast) if new else read(new_made, caller, now, fast)
        ecr24 = add(made24, caller, 1.0, now, slow)
        ct24 = add(talked24, caller, duration, now, slow) if new else read(talked24, caller, now, slow)

        fofir = ramp_score(ecr / rcr, fofir_ramp) if rcr else 1.0
        url = ramp_score(encr / ecr, url_ramp) if ecr else 0.0
        if not ecr24 or not average:
            acd = 0.0
        elif acd_mode == "short":
            acd = 1.0 - min(1.0, ct24 / ecr24 / average)
        else:
            acd = ramp_score(ct24 / ecr24 / average, acd_ramp)
        score = fofir_weight * fofir + url_weight * url + acd_weight * acd
        if threshold is None or score >= threshold:
            scores.append((caller, time, score, fofir, url, acd))
    return {"scores": scores}
