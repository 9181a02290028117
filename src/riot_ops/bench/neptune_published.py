"""What the thesis on Neptune found, on 80 nodes with a network of 1 Gbit/s and buffers of 1 MB; by size of messages."""

from __future__ import annotations

__all__ = ["BANDWIDTH", "LATENCY", "SENDERS", "THROUGHPUT"]

#: Messages per second.
THROUGHPUT = {
    50: 1987600.95,
    100: 1172239.33,
    200: 586026.05,
    400: 293131.43,
    1024: 114496.22,
    4096: 28620.50,
    10_240: 11447.95,
}
#: Mean, standard deviation and 99 % of the latency, in ms.
LATENCY = {
    50: (65.58, 20.21, 109.02),
    100: (57.46, 6.13, 68.0),
    200: (58.82, 5.76, 70.0),
    400: (66.45, 4.78, 77.02),
    1024: (66.25, 4.08, 74.02),
    4096: (67.31, 4.87, 76.0),
    10_240: (66.44, 7.47, 87.82),
}
#: Gbit per second.
BANDWIDTH = {50: 0.80, 100: 0.94, 200: 0.94, 400: 0.94, 1024: 0.94, 4096: 0.94, 10_240: 0.94}
#: Messages of 50 bytes per second, of many senders at one receiver with 2 Gbit/s.
SENDERS = 4_700_000.0
