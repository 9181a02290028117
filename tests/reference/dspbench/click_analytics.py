"""Click analytics, one line at a time."""

from __future__ import annotations

import json

from tests.reference.dspbench import log_processing
from tests.reference.dspbench.log_processing import Located, place_of


def parse(line):
    """Return address, page and client of a line; None if it is malformed."""
    try:
        given = json.loads(line)
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    client = given.get("ip") if given.get("clientKey") is None else given["clientKey"]
    found = [given.get("ip"), given.get("url"), client]
    return tuple(found) if all(isinstance(value, str) for value in found) else None


def parse_log(line):
    """Return the same of a line of an access log."""
    record = log_processing.LINE.fullmatch(line)
    if log_processing.parse(line) is None or record[5] == "-":
        return None
    words = record[5].split(" ")[1:]
    url = " ".join(words[:-1] if words and words[-1].startswith("HTTP/") else words)
    return (record[1], url, record[1] if record[3] == "-" else record[3]) if url else None


def click_analytics(lines, table, parse=parse):
    """Return ``(visits, locations, bad)``, where each row starts with the number of its line."""
    visits, locations, bad = [], [], []
    seen, located, total = set(), Located(), 0
    for number, line in enumerate(lines):
        click = parse(line)
        if click is None:
            bad.append(number)
            continue
        address, *visit = click
        seen.add(tuple(visit))
        total += 1
        visits.append((number, total, len(seen)))
        place = place_of(address, table)
        if place is not None:
            locations.append((number, *located.count(*place)))
    return visits, locations, bad
