"""Log processing, one line at a time."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

LINE = re.compile(r'(\S+) (\S+) (\S+) \[([^]]+)\] "((?:[^\\]|\\.)+?)" (\d{3}) (\d+|-)(?: .*)?')
WHEN = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def when(text):
    """Return the time of a line; ValueError if it has none."""
    found = WHEN.fullmatch(text)
    if not found or found[2] not in MONTHS:
        raise ValueError(text)
    day, month, year, hour, minute, second, sign, hours, minutes = found.groups()
    zone = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    numbers = [int(year), MONTHS.index(month) + 1, *map(int, (day, hour, minute, second))]
    return datetime(*numbers, tzinfo=timezone(zone)).astimezone(UTC)


def parse(line):
    """Return address, time, request, status and bytes of a line; None if it is malformed."""
    found = LINE.fullmatch(line)
    if not found:
        return None
    try:
        return found[1], when(found[4]), found[5], int(found[6]), 0 if found[7] == "-" else int(found[7])
    except ValueError:
        return None


def place_of(address, table):
    """Return country and city of the smallest network that contains the address."""
    try:
        address = ipaddress.ip_address(address)
    except ValueError:
        return None
    inside = [row for row in table if address in ipaddress.ip_network(row[0])]
    return max(inside, key=lambda row: ipaddress.ip_network(row[0]).prefixlen)[2:] if inside else None


class Located:
    """Return running counts by country and city."""

    def __init__(self):
        self.countries, self.cities = Counter(), Counter()

    def count(self, country, city):
        self.countries[country] += 1
        self.cities[country, city] += 1
        return country, self.countries[country], city, self.cities[country, city]


def log_processing(lines, table, window=60):
    """Return ``(volume, status, countries, bad)``, where each row starts with the number of its line."""
    volume, status, countries, bad = [], [], [], []
    minutes, codes, located = {}, Counter(), Located()
    for number, line in enumerate(lines):
        record = parse(line)
        if record is None:
            bad.append(number)
            continue
        address, time, _, code, _ = record
        minute = time.replace(second=0)
        if minute not in minutes and len(minutes) == window:
            del minutes[next(iter(minutes))]
        minutes[minute] = minutes.get(minute, 0) + 1
        volume.append((number, minute, minutes[minute]))
        codes[code] += 1
        status.append((number, code, codes[code]))
        place = place_of(address, table)
        if place is not None:
            countries.append((number, *located.count(*place)))
    return volume, status, countries, bad
