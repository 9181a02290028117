"""Packets of a network with attacks among them, for the detection of threats."""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.checks import check_count
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Flag, Share
from riot_ops.streams.streambench.flow_packets import WINDOW_US, classes_of, drawn, sizes_of
from riot_ops.streams.text_lines import Numbers, TextLineSource, choices, join_cells, random_words, zipf_weights

__all__ = ["TrafficSource", "hosts", "servers"]

#: Sources and destinations of flows; the first are the busiest.
HOSTS, SERVERS = 65_536, 256
#: Minimum mean number of packets of a flow, so that a window never lacks packets.
MIN_PACKETS = 8
#: Windows that are kept.
KEPT = 8


class TrafficSource(TextLineSource):
    """Packet headers: time, source, destination, their ports, protocol, length, flags, time to live, and the truth.

    Times are microseconds since 1970, and ascend. In each two seconds there are
    equally many packets, of flows from one host to another that begin and end there. 80 % of the flows are ordinary
    (0 in the last cell), 10 % denials of service (1), 10 % scans of ports (2).

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    rate : int, 1 to 400,000, default 10,000
        Packets per second of event time.
    overlap : float, 0 to 1, default 0.2
        How much attacks look like ordinary traffic: at 0 none does, at 1 all do. At 0.2 a network that has
        seen 7,000 flows is right for about 98 of 100.
    dirt : bool, default False
        0.5 % of the lines are bad: cut off, with an odd length, or without a real time.

    Shapes and rates
    ----------------
    63 bytes a line.

    References
    ----------
    .. [1] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016.

    Examples
    --------
    >>> source = TrafficSource(messages=1)
    >>> next(source.read({"start": 0, "end": 1}))["payload"][0].as_py()
    b'1577836800000015,10.0.151.219,172.16.0.0,26408,443,6,44,2,124,1'
    """

    stream: ClassVar[str] = "traffic"
    domain: ClassVar[str] = "packets of a network under attack"
    line_time: ClassVar[LineTime | None] = LineTime(r"(?P<time>\d+)(?P<after>,.*)", "us")

    rate: Annotated[int, functools.partial(check_count, 1, 400_000)] = 10_000
    overlap: Share = 0.2
    dirt: Flag = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._window = functools.lru_cache(KEPT)(self._made)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._window = functools.lru_cache(KEPT)(self._made)

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return 1000.0 / self.rate

    @property
    def per_window(self) -> int:
        """Packets in two seconds."""
        return self.rate * WINDOW_US // 1_000_000

    def lines(self, numbers: Numbers) -> pa.Array:
        lines = self._taken(numbers, 0)
        if not self.dirt:
            return lines
        cut = pc.utf8_slice_codeunits(lines, 0, 30)
        odd = pc.replace_substring_regex(lines, r",(\d+),(\d+),(\d+),(\d+)$", r",long,\2,\3,\4")
        timeless = join_cells("soon", pc.utf8_slice_codeunits(lines, 17))
        return self.with_dirt(numbers, lines, 0.005, [cut, odd, timeless])

    def truth(self, numbers: Numbers) -> npt.NDArray[np.int64]:
        """Return the class of the flow of each packet, as its place among normal, dos and scan."""
        return np.asarray(self._taken(numbers, 1))

    def _taken(self, numbers: Numbers, part: int) -> pa.Array:
        if not numbers.size:
            return pa.array([], pa.int64() if part else pa.string())
        window, place = np.divmod(numbers, self.per_window)
        runs = np.flatnonzero(np.diff(window, prepend=-1))
        pieces = [
            self._window(int(window[a]))[part].take(pa.array(place[a:b]))
            for a, b in zip(runs.tolist(), [*runs[1:].tolist(), numbers.size], strict=True)
        ]
        return pa.concat_arrays(pieces)

    def _made(self, window: int) -> tuple[pa.Array, pa.Array]:
        """Return the lines of a window, and the classes of their flows."""
        most = self.per_window
        flows = window * (most + 2 * MIN_PACKETS) + np.arange(most // MIN_PACKETS + 2 * MIN_PACKETS)
        sizes = sizes_of(self.seed, flows, self.overlap)
        sizes[-1] += max(0, most - int(sizes.sum()))
        before = np.cumsum(sizes) - sizes
        sizes = np.clip(most - before, 0, sizes)
        flows, sizes = flows[sizes > 0], sizes[sizes > 0]
        packets = drawn(self.seed, flows, sizes, self.overlap)
        order = np.argsort(packets.time, kind="stable")
        kind = classes_of(self.seed, flows)
        # hosts of a window differ, so that a pair of them has one flow
        turn = int(random_words(self.seed, 30, np.array([window]))[0] % np.uint64(HOSTS))
        source = hosts().take(pa.array((turn + np.arange(flows.size) * 40_503) % HOSTS))
        target = servers().take(pa.array(choices(self.seed, 31, flows, zipf_weights(SERVERS))))
        owner = pa.array(packets.flow[order])
        time = self.start_ms * 1000 + window * WINDOW_US + packets.time[order]
        cells = [column[order] for column in packets[2:]]
        label = pa.array(kind).take(owner)
        return join_cells(time, source.take(owner), target.take(owner), *cells, label), label


@functools.cache
def hosts() -> pa.Array:
    """Source addresses of flows."""
    return pa.array([f"10.0.{i >> 8}.{i & 255}" for i in range(HOSTS)])


@functools.cache
def servers() -> pa.Array:
    """Return the destination addresses of flows."""
    return pa.array([f"172.16.0.{i}" for i in range(SERVERS)])
