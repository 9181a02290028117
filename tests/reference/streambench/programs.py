"""The programs of StreamBench, one line at a time; a result is ``(number of the line, fields…)``."""

from __future__ import annotations

import math
import re
import struct

FIELDS = ["month_id", "packet_size", "v4_pkts", "v6_pkts", "v4_bytes", "v6_bytes", "tcp_pkts", "udp_pkts", "icmp_pkts"]
MASK = 2**64 - 1


def xxh64(data, seed):
    """Return XXH64 of eight bytes, from its specification."""
    prime = [11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261]

    def turned(x, n):
        return ((x << n) | (x >> (64 - n))) & MASK

    [lane] = struct.unpack("<Q", data)
    h = (seed + prime[4] + 8) & MASK
    h ^= turned(lane * prime[1] & MASK, 31) * prime[0] & MASK
    h = (turned(h, 27) * prime[0] + prime[3]) & MASK
    h = (h ^ (h >> 33)) * prime[1] & MASK
    h = (h ^ (h >> 29)) * prime[2] & MASK
    return h ^ (h >> 32)


def identity(lines):
    yield from enumerate(lines)


def sample(lines, *, share=0.1, seed=0):
    begin = xxh64(struct.pack("<q", seed), 42)
    for number, line in enumerate(lines):
        if xxh64(struct.pack("<q", number), begin) / 2**64 < share:
            yield number, line


def projection(lines, *, column=1):
    for number, line in enumerate(lines):
        found = line.split("\t")
        yield number, found[column] if len(found) > column else ""


def grep(lines, *, text="ihiza", invert=False):
    for number, line in enumerate(lines):
        if bool(re.search(re.escape(text), line)) != invert:
            yield number, line


def wordcount(lines):
    totals = {}
    for number, line in enumerate(lines):
        for word in filter(None, re.split("[ \t\n\r\v\f]+", line)):
            totals[word] = totals.get(word, 0) + 1
            yield number, word, totals[word]


def distinct(lines, *, column=0):
    seen = []
    for number, value in projection(lines, column=column):
        if value not in seen:
            seen.append(value)
            yield number, value, len(seen)


def statistics(lines, *, field="v4_pkts"):
    values = []
    for number, line in enumerate(lines):
        found = line.split(",")[FIELDS.index(field) :]
        if line.count(",") == 16 and re.fullmatch(r" *[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)? *", found[0], re.IGNORECASE):
            values.append(float(found[0]))
            total = math.fsum(values)
            yield number, len(values), min(values), max(values), total, total / len(values)
