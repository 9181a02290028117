"""Click analytics in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import orjson

from riot_bench.baselines.python.dspbench.log_processing import Atlas
from riot_bench.baselines.python.rows import new_rows

__all__ = ["click_analytics"]


def click_analytics(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    geo: str | None = None,
    capacity: int | None = None,
    ttl: str | timedelta | None = None,
    emit: str = "each",
) -> dict[str, list[tuple[Any, ...]]]:
    """``visits``: total_count, total_unique; ``locations``: country, total, city, total. ``inputs`` has ``clicks``.

    Visits are remembered exactly and forever, whatever the capacity, since clicks in files have no time.
    ``emit="update"`` gives the totals and the counts of each place once, at the end.
    """
    atlas = Atlas(geo)
    seen: set[tuple[str, str]] = set()
    countries: dict[str, int] = {}
    cities: dict[tuple[str, str], int] = {}
    visits = new_rows()
    locations = new_rows()
    total = 0
    for line in inputs["clicks"]:
        try:
            click = orjson.loads(line)
            address, url, client = click["ip"], click["url"], click.get("clientKey")
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
        if address is None or url is None:
            continue
        seen.add((str(url), str(address if client is None else client)))
        total += 1
        visits.append((total, len(seen)))
        place = atlas.find(str(address))
        if place is not None:
            country = place[0]
            countries[country] = n = countries.get(country, 0) + 1
            cities[place] = count = cities.get(place, 0) + 1
            locations.append((country, n, place[1], count))
    if emit == "update":
        visits = visits[-1:]
        locations = list({(row[0], row[2]): row for row in locations}.values())
    return {"visits": visits, "locations": locations}
