"""The Yahoo streaming benchmark in plain Python."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from riot_bench.baselines.python.rows import new_rows
from riot_ops.core.parameters import duration

__all__ = ["yahoo_streaming"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The last millisecond that a datetime can hold.
_LAST = 253_402_300_799_999


def _read(path: str | None) -> dict[str, str]:
    """Read the campaign of each advertisement."""
    if path is None:
        return {str(ad): str(ad // 10) for ad in range(1000)}
    with open(path, newline="", encoding="utf-8-sig") as file:
        return {row["ad_id"]: row["campaign_id"] for row in csv.DictReader(file)}


def _ms(given: str | timedelta) -> int:
    span = duration(given) if isinstance(given, str) else given
    return span // timedelta(milliseconds=1)


def yahoo_streaming(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    ads: str | None = None,
    window: str | timedelta = "10s",
    allowed_lateness: str | timedelta = "0s",
    event_type: str = "view",
) -> dict[str, list[tuple[Any, ...]]]:
    """``campaigns``: start of the window, campaign_id, count. ``inputs`` has ``events``, lines of JSON."""
    campaign_of = _read(ads)
    size, lag = _ms(window), _ms(allowed_lateness)
    counts: dict[int, dict[str, int]] = {}
    found = new_rows()
    now = next_close = -math.inf
    loads = orjson.loads

    def close(before: float) -> None:
        """Emit the windows that end up to a time."""
        for start in sorted(start for start in counts if start + size <= before):
            opened = _EPOCH + timedelta(milliseconds=start)
            found.extend((opened, campaign, count) for campaign, count in counts.pop(start).items())

    for line in inputs["events"]:
        try:
            event = loads(line)
            ad, kind, time = event["ad_id"], event["event_type"], event["event_time"]
            time = int(time) if type(time) is str else time
        except (ValueError, KeyError, TypeError):
            continue
        if type(time) is not int or time > _LAST or ad is None or kind is None:
            continue
        if time > now:
            now = time
            if now - lag >= next_close:
                close(now - lag)
                next_close = (now - lag) // size * size + size
        if kind != event_type:
            continue
        campaign = campaign_of.get(ad if type(ad) is str else str(ad))
        if campaign is None:
            continue
        start = time // size * size
        if start + size <= now - lag:
            continue  # its window is closed
        counted = counts.get(start)
        if counted is None:
            counted = counts[start] = {}
        counted[campaign] = counted.get(campaign, 0) + 1
    close(math.inf)
    return {"campaigns": found}
