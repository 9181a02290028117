"""What the thesis on Neptune found, on nodes of 4 cores with a network of 1 Gbit/s and buffers of 1 MB; by message."""

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
    "Compared",
    "Spread",
]


class Spread(NamedTuple):
    """A mean with its standard deviation, and the 99th percentile where there is one."""

    mean: float
    sd: float
    p99: float = math.nan

    def __str__(self) -> str:
        return f"{self.mean:,.4g} ± {self.sd:,.4g}" if self.mean < 1000 else f"{self.mean:,.0f} ± {self.sd:,.0f}"


class Compared(NamedTuple):
    """A figure of Neptune and of Storm (without acknowledgements), and Welch's test of the two; each p < 0.0001.

    >>> print(THROUGHPUT[50])
    thesis 1,987,601 ± 267,583, Storm 200,523 ± 51,210, Welch's t = 65.84, df = 102.68
    """

    neptune: Spread
    storm: Spread
    t: float
    df: float

    def __str__(self) -> str:
        return f"thesis {self.neptune}, Storm {self.storm}, Welch's t = {self.t:g}, df = {self.df:g}"


#: Messages per second, by the size of messages.
THROUGHPUT = {
    50: Compared(Spread(1987600.95, 267582.82), Spread(200523.3, 51209.70), 65.84, 102.68),
    100: Compared(Spread(1172239.33, 51410.19), Spread(195943.15, 62955.95), 154.11, 206.19),
    200: Compared(Spread(586026.05, 7527.83), Spread(152759.19, 63654.30), 125.81, 392.67),
    400: Compared(Spread(293131.43, 2541.31), Spread(170864.27, 44226.59), 52.64, 375.83),
    1024: Compared(Spread(114496.22, 530.59), Spread(40328.75, 34353.70), 31.05, 207.21),
    4096: Compared(Spread(28620.50, 50.36), Spread(3090.77, 4438.46), 64.56, 126.04),
    10_240: Compared(Spread(11447.95, 8.62), Spread(648.05, 1403.28), 46.81, 37.00),
}
#: Latency in ms.
LATENCY = {
    50: Compared(Spread(65.58, 20.21, 109.02), Spread(11667.11, 5718.05, 22509.36), -28.40, 196.01),
    100: Compared(Spread(57.46, 6.13, 68.0), Spread(10140.63, 9743.56, 48508.8), -17.77, 295),
    200: Compared(Spread(58.82, 5.76, 70.0), Spread(44398.21, 17184.58, 71949.01), -48.89, 359),
    400: Compared(Spread(66.45, 4.78, 77.02), Spread(10833.43, 6108.73, 22437.16), -33.77, 367),
    1024: Compared(Spread(66.25, 4.08, 74.02), Spread(29484.76, 17307.34, 56146.61), -24.46, 207),
    4096: Compared(Spread(67.31, 4.87, 76.0), Spread(91973.57, 20939.42, 104507.46), -49.27, 126),
    10_240: Compared(Spread(66.44, 7.47, 87.82), Spread(201598.55, 53237.60, 225254.14), -23.03, 37),
}
#: Gbit per second; t and df are those of the throughput.
BANDWIDTH = {
    size: Compared(Spread(*neptune), Spread(*storm), THROUGHPUT[size].t, THROUGHPUT[size].df)
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
#: Share of the network that the relay takes, from and to, by messages of so many bytes and more.
LINK_SHARE, FULL_FROM = (0.932, 0.937), 200
#: Latency with small buffers, for messages of all sizes: below so many ms.
SMALL_BUFFER, SMALL_BUFFER_LATENCY = 16 << 10, 10.0
#: Messages of 50 bytes per second, of many senders at one receiver with 2 Gbit/s.
SENDERS = 4_700_000.0
#: Messages per second of as many relays as nodes, and of as many jobs that monitor equipment, all together.
NODES, JOBS, EQUIPMENT = 50, 100e6, 15e6
#: How many times Storm's throughput monitoring of equipment has, with how many jobs.
OVER_STORM, STORM_JOBS = 8.0, 32
#: What compression does to throughput, latency and bandwidth, by data.
COMPRESSION = {
    "equipment": "mostly no significant effect",
    "mixed": "nothing of such data",
    "random": "off significantly best, the data often grow",
}
#: The source's rate goes with this power of the time that the last stage takes per message.
EXPONENT = -1.0
