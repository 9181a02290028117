"""Features of flows by source, destination and window, one packet at a time."""

from __future__ import annotations

import statistics
from itertools import pairwise

WINDOW_US = 2_000_000


def flows(lines: list[str]) -> dict[tuple[str, str, int], dict[str, float]]:
    """Return the features and the largest label by source, destination and start of the window (microseconds)."""
    gathered: dict[tuple[str, str, int], list[list[int]]] = {}
    for line in lines:
        time, src, dst, *numbers = line.split(",")
        begin = int(time) - int(time) % WINDOW_US
        gathered.setdefault((src, dst, begin), []).append([int(time), *map(int, numbers)])
    return {key: features(packets) for key, packets in gathered.items()}


def features(packets: list[list[int]]) -> dict[str, float]:
    """Return the features of ``(time, sport, dport, proto, length, flags, ttl, label)`` packets in their order."""
    times, sports, dports, protos, lengths, flags, ttls, labels = map(list, zip(*packets, strict=True))
    n = len(packets)
    gaps = [(b - a) / 1e6 for a, b in pairwise(times)]
    duration = (max(times) - min(times)) / 1e6
    found = {
        "packets": n,
        "bytes": sum(lengths),
        "length_mean": statistics.fmean(lengths),
        "length_std": statistics.stdev(lengths) if n > 1 else 0.0,
        "length_min": min(lengths),
        "length_max": max(lengths),
        "gap_mean": statistics.fmean(gaps) if gaps else 0.0,
        "gap_std": statistics.stdev(gaps) if len(gaps) > 1 else 0.0,
        "duration": duration,
        "packet_rate": n / duration if duration else 0.0,
        "byte_rate": sum(lengths) / duration if duration else 0.0,
        "source_ports": len(set(sports)),
        "target_ports": len(set(dports)),
        "tcp_share": protos.count(6) / n,
        "udp_share": protos.count(17) / n,
        "icmp_share": protos.count(1) / n,
        "ttl_mean": statistics.fmean(ttls),
        "small_share": sum(length < 60 for length in lengths) / n,
        "label": max(labels),
    }
    names = ("fin", "syn", "rst", "psh", "ack", "urg")
    return found | {name: sum(one >> bit & 1 for one in flags) for bit, name in enumerate(names)}
