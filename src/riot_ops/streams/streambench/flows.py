"""Flows of a network as vectors of features, for the detection of threats."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Share
from riot_ops.streams.streambench.cyclic import CyclicSource
from riot_ops.streams.streambench.flow_packets import ICMP, TCP, UDP, Packets, classes_of, drawn, sizes_of
from riot_ops.streams.streambench.traffic import hosts, servers
from riot_ops.streams.text_lines import choices, format_decimals, join_cells, zipf_weights

__all__ = ["FEATURES", "FlowsSource", "features_of"]

#: Features of a flow in a window of two seconds.
FEATURES = (
    *("packets", "bytes", "length_mean", "length_std", "length_min", "length_max"),
    *("gap_mean", "gap_std", "duration", "packet_rate", "byte_rate", "source_ports", "target_ports"),
    *("tcp_share", "udp_share", "icmp_share", "syn", "ack", "fin", "rst", "psh", "urg", "ttl_mean", "small_share"),
)
#: Bits of the flags, in the order of the features.
FLAGS = {"syn": 2, "ack": 16, "fin": 1, "rst": 4, "psh": 8, "urg": 32}
#: Packets shorter than this are small.
SMALL = 60

Floats = npt.NDArray[np.float64]


class FlowsSource(CyclicSource):
    """Flows: begin of their window, source, destination, twenty-four features, and the truth.

    They resemble those of :class:`TrafficSource`, each over two seconds from one host to another: 80 % ordinary (0
    in the last cell), 10 % denials of service (1), 10 % scans of ports (2). The features are numbers of packets and
    bytes; mean, deviation, least and greatest length; mean and deviation of the seconds between packets; duration;
    packets and bytes per second of it; different ports of both sides; shares of TCP, UDP and ICMP; packets with the
    flags SYN, ACK, FIN, RST, PSH and URG; mean time to live; share of packets below 60 bytes. What needs two packets
    is 0 of one.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    records : int, >= 1, default 10,000
        Size of the seed set: line k is line k mod ``records`` of it.
    overlap : float, 0 to 1, default 0.2
        How much attacks look like ordinary traffic, see :class:`TrafficSource`.
    dirt : bool, default False
        0.5 % of the lines are bad: cut off, or with a feature that is no number.

    Shapes and rates
    ----------------
    205 bytes a line.

    References
    ----------
    .. [1] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016.

    Examples
    --------
    >>> source = FlowsSource(messages=1)
    >>> next(source.read({"start": 0, "end": 1}))["payload"][0].as_py()[:43]
    b'1577836800,10.0.0.0,172.16.0.38,3,2420,806.'
    """

    stream: ClassVar[str] = "flows"
    domain: ClassVar[str] = "flows of a network under attack"
    line_time: ClassVar[LineTime | None] = LineTime(r"(?P<time>\d+)(?P<after>,.*)", "s")

    overlap: Share = 0.2

    def seed_lines(self) -> pa.Array:
        x, label = self.vectors()
        numbers = np.arange(self.records)
        windows = self.start_ms / 1e3 + 2.0 * (numbers // 1_000)
        source = hosts().take(pa.array(numbers * 40_503 % len(hosts())))
        target = servers().take(pa.array(choices(self.seed, 31, numbers, zipf_weights(len(servers())))))
        whole = {name: np.equal(column, np.rint(column)).all() for name, column in zip(FEATURES, x.T, strict=True)}
        cells = [
            pa.array(column.astype(np.int64) if whole[name] else column)
            for name, column in zip(FEATURES, x.T, strict=True)
        ]
        head = join_cells(format_decimals(windows, 0), source, target)
        lines = join_cells(head, *cells, label)
        odd = join_cells(head, *cells[:7], "many", *cells[8:], label)
        return self.with_dirt(numbers, lines, 0.005, [head, odd])

    def vectors(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the features of the flows of the seed set, a row each, and their classes."""
        flows = np.arange(self.records)
        sizes = sizes_of(self.seed, flows, self.overlap)
        return features_of(drawn(self.seed, flows, sizes, self.overlap)), classes_of(self.seed, flows)


def features_of(packets: Packets) -> Floats:
    """Return a row of features for each flow."""
    owner = packets.flow
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    n = np.diff(np.append(first, owner.size)).astype(np.float64)

    def total(values: npt.NDArray[np.generic]) -> Floats:
        return np.add.reduceat(values.astype(np.float64), first)

    def spread(values: npt.NDArray[Any], mean: Floats, of: npt.NDArray[np.int64], count: Floats) -> Floats:
        """Sample deviation by group; 0 below two values."""
        squares = np.bincount(of, (values - mean[of]) ** 2, n.size)
        return np.sqrt(squares / np.maximum(count - 1, 1))

    def different(values: npt.NDArray[np.int64]) -> Floats:
        order = np.lexsort((values, owner))
        new = (np.diff(owner[order], prepend=-1) != 0) | (np.diff(values[order], prepend=-1) != 0)
        return np.add.reduceat(new.astype(np.float64), first)

    size = total(packets.length)
    later = np.flatnonzero(np.diff(owner, prepend=-1) == 0)
    gap = (packets.time[later] - packets.time[later - 1]) / 1e6
    gap_mean = np.bincount(owner[later], gap, n.size) / np.maximum(n - 1, 1)
    last = np.append(first[1:], owner.size) - 1
    duration = (packets.time[last] - packets.time[first]) / 1e6
    lasting = np.where(duration > 0, duration, np.inf)
    columns = {
        "packets": n,
        "bytes": size,
        "length_mean": size / n,
        "length_std": spread(packets.length, size / n, owner, n),
        "length_min": np.minimum.reduceat(packets.length, first),
        "length_max": np.maximum.reduceat(packets.length, first),
        "gap_mean": gap_mean,
        "gap_std": spread(gap, gap_mean, owner[later], n - 1),
        "duration": duration,
        "packet_rate": n / lasting,
        "byte_rate": size / lasting,
        "source_ports": different(packets.sport),
        "target_ports": different(packets.dport),
        **{f"{k}_share": total(packets.proto == v) / n for k, v in (("tcp", TCP), ("udp", UDP), ("icmp", ICMP))},
        **{name: total(packets.flags & bit != 0) for name, bit in FLAGS.items()},
        "ttl_mean": total(packets.ttl) / n,
        "small_share": total(packets.length < SMALL) / n,
    }
    return np.column_stack([columns[name] for name in FEATURES]).astype(np.float64)
