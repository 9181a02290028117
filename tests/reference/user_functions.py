"""Keyed user functions, one record at a time over a dict of states."""

from __future__ import annotations

import copy
from typing import Any


def keyed(fn: Any, initial: Any, by: tuple[str, ...], events: list[dict[str, Any]]) -> tuple[list[Any], list[int]]:
    """Return the results with their numbers, and the events that failed."""
    states: dict[tuple[Any, ...], Any] = {}
    out, failed = [], []
    for number, event in enumerate(events):
        key = tuple(event[name] for name in by)
        state = copy.deepcopy(states.get(key, initial))
        try:
            state, results = fn(state, dict(event))
            results = [results] if isinstance(results, dict) else list(results or ())
        except Exception:
            failed.append(number)
            continue
        states[key] = copy.deepcopy(state)
        place = "ordinal_2" if "ordinal" in event else "ordinal"
        out += [
            {**{n: event[n] for n in ("seq", "ordinal", "event_time") if n in event}, **result, place: i}
            for i, result in enumerate(results)
        ]
    return out, failed
