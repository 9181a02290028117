"""Random packets of flows of three classes, shared by the streams of packets and of flow vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.streams.text_lines import Numbers, choices, normals, random_words, uniforms

__all__ = ["CLASSES", "ICMP", "MIX", "TCP", "UDP", "WINDOW_US", "Packets", "classes_of", "drawn", "sizes_of"]

CLASSES = ("normal", "dos", "scan")
#: Shares of the classes among flows.
MIX = (0.8, 0.1, 0.1)
#: Maximum duration of a flow: a window.
WINDOW_US = 2_000_000

NORMAL, DOS, SCAN = range(3)
#: Packets of a flow by class: logarithm of the median, its deviation, and the maximum.
LOG_PACKETS, LOG_SPREAD, MAX_PACKETS = np.log([12.0, 45.0, 18.0]), np.array([0.8, 0.5, 0.6]), 400
#: Packets of a flow are numbered from its number times this on.
STRIDE = 1 << 16
TCP, UDP, ICMP = 6, 17, 1
SERVICES = np.array([80, 443, 53, 22, 25, 8080, 123, 993])
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
#: Flags of ordinary packets and of those of a scan with their weights.
ORDINARY = np.array([ACK, PSH | ACK, SYN, FIN | ACK, RST, ACK | URG]), (52, 30, 8, 7, 2, 1)
PROBING = np.array([SYN, RST, RST | ACK, FIN]), (48, 30, 20, 2)


class Packets(NamedTuple):
    """Packets, as columns; those of a flow are adjacent, by time."""

    #: Index of the packet's flow among those requested.
    flow: Numbers
    #: Microseconds since the window began.
    time: Numbers
    sport: Numbers
    dport: Numbers
    proto: Numbers
    length: Numbers
    flags: Numbers
    ttl: Numbers


def classes_of(seed: int, flows: Numbers) -> Numbers:
    """Return the place of each flow's class among :data:`CLASSES`."""
    return choices(seed, 1, flows, MIX)


def sizes_of(seed: int, flows: Numbers, overlap: float) -> Numbers:
    """Return how many packets each flow has."""
    kind, hidden = classes_of(seed, flows), _hidden(seed, flows, overlap)
    median = LOG_PACKETS[kind] + hidden * (LOG_PACKETS[NORMAL] - LOG_PACKETS[kind])
    sizes: Numbers = np.exp(median + LOG_SPREAD[kind] * normals(seed, 3, flows)).round().astype(np.int64)
    return np.clip(sizes, 1, MAX_PACKETS)


def _hidden(seed: int, flows: Numbers, overlap: float) -> npt.NDArray[np.float64]:
    """Return how much an attack looks like ordinary traffic, from 0 to 1; ``overlap`` is its mean."""
    if overlap in (0, 1):
        return np.full(flows.size, float(overlap))
    return np.power(uniforms(seed, 2, flows), 1 / overlap - 1)


def drawn(seed: int, flows: Numbers, sizes: Numbers, overlap: float) -> Packets:
    """Draw the packets of flows, ``sizes`` of each.

    Ordinary flows lead from a few ports of a host to a service of another, in bursts; most are TCP. A denial of service
    is a flood of SYN packets from ports of any number, or of UDP packets of one length. A scan probes many ports, and
    is answered by RST. The hidden share of an attack has ordinary packets.
    """
    owner = np.repeat(np.arange(flows.size), sizes)
    place = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    flow = flows[owner]
    number = flow * STRIDE + place

    def one(use: int, of: Numbers = number) -> npt.NDArray[np.float64]:
        return uniforms(seed, use, of)

    kind = classes_of(seed, flows)[owner]
    hidden = _hidden(seed, flows, overlap)[owner]
    kind = np.where(one(4) < hidden, NORMAL, kind)
    flood_udp = one(5, flow) < 0.4

    proto = np.array([TCP, UDP, ICMP])[choices(seed, 6, flow, (75, 20, 5))]
    proto = np.where(kind == SCAN, TCP, np.where(kind == DOS, np.where(flood_udp, UDP, TCP), proto))

    port = 32_768 + (random_words(seed, 7, flow * 4 + (number % 3)) % np.uint64(28_000)).astype(np.int64)
    random_port = 1_024 + (random_words(seed, 8, number) % np.uint64(64_000)).astype(np.int64)
    sport = np.where((kind == DOS) & ~flood_udp, random_port, port)
    service = SERVICES[choices(seed, 9, flow, (30, 40, 12, 4, 4, 5, 3, 2))]
    probed = 1 + (random_words(seed, 10, flow) % np.uint64(1_000)).astype(np.int64) + place
    dport = np.where(kind == SCAN, probed, service)

    bulk = np.clip(820 + 420 * normals(seed, 11, number), 60, 1500)
    ordinary = np.where(one(12) < 0.4, 52, bulk)
    ordinary = np.where(proto == UDP, np.clip(280 + 140 * normals(seed, 13, number), 28, 1500), ordinary)
    ordinary = np.where(proto == ICMP, 84, ordinary)
    short = 40 + 4 * np.floor(one(14) * 4)
    flooding = np.where(flood_udp, 200 + np.floor(one(15, flow) * 1_100), short)
    length = np.select([kind == SCAN, kind == DOS], [short, flooding], ordinary).astype(np.int64)

    flags = ORDINARY[0][choices(seed, 16, number, ORDINARY[1])]
    flags = np.where((place == 0) & (kind == NORMAL), SYN, flags)
    probing = PROBING[0][choices(seed, 17, number, PROBING[1])]
    flooded = np.where(one(18) < 0.93, SYN, ACK)
    flags = np.where(proto == TCP, np.select([kind == SCAN, kind == DOS], [probing, flooded], flags), 0)

    base = np.array([64, 128, 255])[choices(seed, 19, flow, (60, 35, 5))]
    ttl = base - 3 - (random_words(seed, 20, flow) % np.uint64(22)).astype(np.int64)
    ttl = np.where((kind == DOS) & (one(21) < 0.5), 32 + np.floor(one(22) * 200).astype(np.int64), ttl)

    begin = 0.6 * one(23, flow)
    burst = begin + (1 - begin) * one(24) ** 2.5
    even = (place + one(24)) / np.repeat(sizes, sizes)
    when = np.where(kind == NORMAL, burst, even)
    time = np.minimum((when * WINDOW_US).astype(np.int64), WINDOW_US - 1)
    order = np.lexsort((place, time, owner))
    return Packets(owner, *(column[order] for column in (time, sport, dport, proto, length, flags, ttl)))
