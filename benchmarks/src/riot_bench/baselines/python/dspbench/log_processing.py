"""Log processing in plain Python."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["Atlas", "log_processing"]

_LINE = re.compile(rb'(\S+) \S+ \S+ \[([^\]]+)\] "([^"\\]+)" (\d\d\d) (-|\d+)(?: |$)')
#: Lines with quotes within the request; one after a backslash ends it if no other does.
_ODD_LINES = (
    re.compile(rb'(\S+) \S+ \S+ \[([^\]]+)\] "((?:[^\\]|\\.)+?)" (\d\d\d) (-|\d+)(?: |$)'),
    re.compile(rb'(\S+) \S+ \S+ \[([^\]]+)\] "(.+?)" (\d\d\d) (-|\d+)(?: |$)'),
)


class Atlas:
    """Countries and cities of addresses, from a table of networks (None: that of the library's streams)."""

    def __init__(self, path: str | None) -> None:
        if path is None:
            from riot_ops.tables.sample_networks import networks

            rows: Iterable[Iterable[str]] = networks()
        else:
            text = Path(path).read_text(encoding="utf-8-sig").splitlines()
            rows = [line.split(",") for line in text if line.strip() and not line.startswith("#")]
        self.known: dict[int, dict[int, tuple[str, str]]] = {}
        for network, _, country, city in rows:
            net = ipaddress.IPv4Network(network.strip())
            place = country.strip(), city.strip()
            self.known.setdefault(32 - net.prefixlen, {})[int(net[0]) >> (32 - net.prefixlen)] = place
        self.shifts = sorted(self.known)  # the smallest networks first
        self.find = functools.lru_cache(maxsize=1 << 16)(self._find)

    def _find(self, address: bytes | str) -> tuple[str, str] | None:
        text = address.decode("utf-8", "replace") if isinstance(address, bytes) else address
        try:
            number = int(ipaddress.IPv4Address(text))
        except ValueError:
            return None
        for shift in self.shifts:
            place = self.known[shift].get(number >> shift)
            if place is not None:
                return place
        return None


@functools.lru_cache(maxsize=4096)
def _minute(text: bytes, zone: bytes) -> datetime | None:
    try:
        return datetime.strptime(f"{text.decode()} {zone.decode()}", "%d/%b/%Y:%H:%M %z").astimezone(UTC)
    except ValueError:
        return None


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def log_processing(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    geo: str | None = None,
    window: int = 60,
    emit: str = "each",
    split_request: bool = False,
    keep: tuple[str, ...] = (),
) -> dict[str, list[tuple[Any, ...]]]:
    """``volume``: minute, count; ``status``: response, count; ``countries``: country, total, city, total.

    ``inputs`` has ``log``. ``emit="update"`` gives the counts of each key once, at the end; a dropped minute has the
    count
    that it was dropped with. Fields that ``keep`` and ``split_request`` add are left out.
    """
    atlas = Atlas(geo)
    minutes: dict[datetime, int] = {}
    statuses: dict[int, int] = {}
    countries: dict[str, int] = {}
    cities: dict[tuple[str, str], int] = {}
    volume = new_rows()
    status = new_rows()
    places = new_rows()
    for line in inputs["log"]:
        text = line.rstrip(b"\r\n")
        found = _LINE.match(text) or _ODD_LINES[0].match(text) or _ODD_LINES[1].match(text)
        if found is None or not (line.isascii() or _is_text(line)):
            continue
        address, when, _, answer, _ = found.groups()
        if len(when) != 26 or when[17:18] != b":" or not b"00" <= when[18:20] <= b"59":
            continue
        minute = _minute(when[:17], when[21:])
        if minute is None:
            continue
        count = minutes.get(minute)
        if count is None:
            if len(minutes) == window:
                del minutes[next(iter(minutes))]
            count = 0
        minutes[minute] = count = count + 1
        volume.append((minute, count))
        code = int(answer)
        statuses[code] = count = statuses.get(code, 0) + 1
        status.append((code, count))
        place = atlas.find(address)
        if place is None:
            continue
        country, city = place
        countries[country] = total = countries.get(country, 0) + 1
        cities[place] = count = cities.get(place, 0) + 1
        places.append((country, total, city, count))
    if emit == "update":
        volume = list({row[0]: row for row in volume}.values())
        status = list({row[0]: row for row in status}.values())
        places = list({(row[0], row[2]): row for row in places}.values())
    return {"volume": volume, "status": status, "countries": places}
