"""Results of the thesis on Neptune, on nodes of 4 cores with a 1 Gbit/s network and buffers of 1 MB."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "BANDWIDTH",
    "COMPRESSION",
    "EQUIPMENT",
    "EXPONENT",
    "FULL_FROM",
    "JOBS",
    "LATENCY",
    "LINK_SHARE",
    "NODES",
    "OVER_STORM",
    "SENDERS",
    "SMALL_BUFFER",
    "SMALL_BUFFER_LATENCY",
    "STORM_JOBS",
    "THROUGHPUT",
    "Comparison",
    "Statistics",
]


class Statistics(NamedTuple):
    """Mean, standard deviation and, if known, 99th percentile."""

    mean: float
    sd: float
    p99: float = math.nan

    def __str__(self) -> str:
        return f"{self.mean:,.4g} ± {self.sd:,.4g}" if self.mean < 1000 else f"{self.mean:,.0f} ± {self.sd:,.0f}"


class Comparison(NamedTuple):
    """A figure of Neptune and of Storm (without acknowledgements) with Welch's test; each p < 0.0001.

    >>> print(THROUGHPUT[50])
    thesis 1,987,601 ± 267,583, Storm 200,523 ± 51,210, Welch's t = 65.84, df = 102.68
    """

    neptune: Statistics
    storm: Statistics
    t: float
    df: float

    def __str__(self) -> str:
        return f"thesis {self.neptune}, Storm {self.storm}, Welch's t = {self.t:g}, df = {self.df:g}"


#: Messages per second by message size.
THROUGHPUT = {
    50: Comparison(Statistics(1987600.95, 267582.82), Statistics(200523.3, 51209.70), 65.84, 102.68),
    100: Comparison(Statistics(1172239.33, 51410.19), Statistics(195943.15, 62955.95), 154.11, 206.19),
    200: Comparison(Statistics(586026.05, 7527.83), Statistics(152759.19, 63654.30), 125.81, 392.67),
    400: Comparison(Statistics(293131.43, 2541.31), Statistics(170864.27, 44226.59), 52.64, 375.83),
    1024: Comparison(Statistics(114496.22, 530.59), Statistics(40328.75, 34353.70), 31.05, 207.21),
    4096: Comparison(Statistics(28620.50, 50.36), Statistics(3090.77, 4438.46), 64.56, 126.04),
    10_240: Comparison(Statistics(11447.95, 8.62), Statistics(648.05, 1403.28), 46.81, 37.00),
}
#: Latency in ms by message size.
LATENCY = {
    50: Comparison(Statistics(65.58, 20.21, 109.02), Statistics(11667.11, 5718.05, 22509.36), -28.40, 196.01),
    100: Comparison(Statistics(57.46, 6.13, 68.0), Statistics(10140.63, 9743.56, 48508.8), -17.77, 295),
    200: Comparison(Statistics(58.82, 5.76, 70.0), Statistics(44398.21, 17184.58, 71949.01), -48.89, 359),
    400: Comparison(Statistics(66.45, 4.78, 77.02), Statistics(10833.43, 6108.73, 22437.16), -33.77, 367),
    1024: Comparison(Statistics(66.25, 4.08, 74.02), Statistics(29484.76, 17307.34, 56146.61), -24.46, 207),
    4096: Comparison(Statistics(67.31, 4.87, 76.0), Statistics(91973.57, 20939.42, 104507.46), -49.27, 126),
    10_240: Comparison(Statistics(66.44, 7.47, 87.82), Statistics(201598.55, 53237.60, 225254.14), -23.03, 37),
}
#: Gbit/s by message size; t and df are those of the throughput.
BANDWIDTH = {
    size: Comparison(Statistics(*neptune), Statistics(*storm), THROUGHPUT[size].t, THROUGHPUT[size].df)
    for size, neptune, storm in (
        (50, (0.80, 0.11), (0.08, 0.03)),
        (100, (0.94, 0.04), (0.16, 0.05)),
        (200, (0.94, 0.01), (0.24, 0.10)),
        (400, (0.94, 0.01), (0.55, 0.14)),
        (1024, (0.94, 0.00), (0.33, 0.28)),
        (4096, (0.94, 0.00), (0.10, 0.15)),
        (10_240, (0.94, 0.00), (0.05, 0.12)),
    )
}
#: Range of the relay's share of the network, and the message size from which it holds.
LINK_SHARE, FULL_FROM = (0.932, 0.937), 200
#: A small buffer in bytes, and the bound of the latency in ms with it, for messages of all sizes.
SMALL_BUFFER, SMALL_BUFFER_LATENCY = 16 << 10, 10.0
#: Messages of 50 bytes per second from many senders to one receiver with 2 Gbit/s.
SENDERS = 4_700_000.0
#: Number of nodes, and the total messages per second of as many relays and of as many equipment monitoring jobs.
NODES, JOBS, EQUIPMENT = 50, 100e6, 15e6
#: Ratio of the throughput of equipment monitoring to Storm's, and the number of jobs.
OVER_STORM, STORM_JOBS = 8.0, 32
#: Effect of compression on throughput, latency and bandwidth, by data.
COMPRESSION = {
    "equipment": "mostly no significant effect",
    "mixed": "no such data",
    "random": "off is significantly best, as the data often grow",
}
#: Exponent of the last stage's time per message in the source's rate.
EXPONENT = -1.0
