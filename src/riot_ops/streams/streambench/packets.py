"""Statistics of packets, as the program of StreamBench on numbers reads them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.streams.parameters import Count
from riot_ops.streams.streambench.cyclic import CyclicSource
from riot_ops.streams.text_lines import format_decimals, join_cells, normals

__all__ = ["FIELDS", "PacketsSource"]

#: The cells of a line.
FIELDS = (
    *("month_id", "packet_size", "v4_pkts", "v6_pkts", "v4_bytes", "v6_bytes"),
    *("tcp_pkts", "udp_pkts", "icmp_pkts", "other_pkts", "tcp_bytes", "udp_bytes", "flows"),
    *("frac_pkts", "frac_bytes", "cum_frac_pkts", "cum_frac_bytes"),
)
#: The months from September 2013 to May 2014, how many sizes each has, and between which they lie.
MONTHS = np.array([201309, 201310, 201311, 201312, 201401, 201402, 201403, 201404, 201405])
SIZES, MIN_SIZE, MAX_SIZE = 1_327, 20, 1_500
#: Sizes that are frequent, with the logarithm of how much so, and how wide the peak is.
PEAKS = ((40, 2.4, 6.0), (576, 1.8, 20.0), (1500, 2.6, 8.0))
#: The logarithm of the packets of a size, its deviation, and the most, so that sums have twelve digits.
LOG_PACKETS, LOG_SPREAD, LOG_MAX = 24.35, 0.8, 26.8
#: Shares of all packets: of version 6, of protocols; packets of a flow.
V6, UDP, ICMP, OTHER, PER_FLOW = 0.06, 0.2, 0.02, 0.01, 14.0


class PacketsSource(CyclicSource):
    """How many packets of each size a link has carried in each of nine months: seventeen numbers between commas.

    They are the month, the size, packets and bytes by version of the protocol, packets by protocol, bytes of two of
    them, flows, and shares of all packets and bytes of the month, of this size and of all up to it. Counts are
    log-normal around a curve with peaks at 40, 576 and 1500 bytes.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    records : int, >= 1, default 11,942
        Size of the seed set: line k is line k mod ``records`` of it. Nine months of 1,327 sizes have one more; after
        those the months repeat, with other counts.
    dirt : bool, default False
        0.5 % of the lines are bad: blank, cut off, or with a count that is not a number.

    Shapes and rates
    ----------------
    199 bytes a line, 200 with the line break.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> source = PacketsSource(messages=1)
    >>> next(source.read({"start": 0, "end": 1}))["payload"][0].as_py()[:55]
    b'201309,20,13758507999,340494943,275170159980,6809898860'
    """

    stream: ClassVar[str] = "packets"
    domain: ClassVar[str] = "packets of a link by their size"
    start_ms = 1_377_993_600_000  # 2013-09-01

    records: Count = 11_942

    def seed_lines(self) -> pa.Array:
        months = -(-self.records // SIZES)
        numbers = np.arange(months * SIZES)
        month = MONTHS[numbers // SIZES % MONTHS.size]
        possible = MAX_SIZE - MIN_SIZE + 1
        order = np.argsort(self.uniforms(1, np.arange(months * possible)).reshape(months, possible), axis=1)
        sizes = MIN_SIZE + np.sort(order[:, :SIZES], axis=1).ravel()

        level = LOG_PACKETS + sum(high * np.exp(-(((sizes - at) / width) ** 2)) for at, high, width in PEAKS)
        packets = np.exp(np.minimum(level + LOG_SPREAD * normals(self.seed, 2, numbers), LOG_MAX))

        def some(share: float, use: int) -> npt.NDArray[np.int64]:
            """Return a share of the packets, log-normal around this."""
            return np.floor(packets * share * np.exp(0.4 * normals(self.seed, use, numbers))).astype(np.int64)

        v6, udp, icmp, other = some(V6, 3), some(UDP, 4), some(ICMP, 5), some(OTHER, 6)
        tcp = np.floor(packets).astype(np.int64)
        v4 = tcp + udp + icmp + other
        flows = some(1 / PER_FLOW, 7)
        total = (v4 + v6).reshape(months, SIZES).astype(np.float64)
        shares = []
        for amount in (total, total * sizes.reshape(months, SIZES)):
            part = amount / amount.sum(axis=1, keepdims=True)
            shares.append((format_decimals(part.ravel(), 10), format_decimals(np.cumsum(part, axis=1).ravel(), 10)))
        (frac_packets, cum_packets), (frac_bytes, cum_bytes) = shares
        head = (month, sizes, v4, v6, v4 * sizes, v6 * sizes)
        rest = (
            tcp,
            udp,
            icmp,
            other,
            tcp * sizes,
            udp * sizes,
            flows,
            frac_packets,
            frac_bytes,
            cum_packets,
            cum_bytes,
        )
        lines = join_cells(*head, *rest)
        odd = join_cells(*head[:2], "n/a", *head[3:], *rest)
        return self.with_dirt(numbers, lines, 0.005, ["", join_cells(*head[:2]), odd]).slice(0, self.records)
