"""The log of a web server, as the log processing of DSPBench reads it."""

from __future__ import annotations

import functools
import ipaddress
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Count, Positive, Share
from riot_ops.streams.text_lines import (
    Numbers,
    TextLineSource,
    join_cells,
    normals,
    random_words,
    uniforms,
    zipf_weights,
)
from riot_ops.tables.sample_networks import BLOCKS

__all__ = ["WeblogSource", "addresses"]

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
PAGES = 200
STATUSES = {"200": 0.807, "206": 0.018, "304": 0.116, "404": 0.052, "500": 0.007}
VERBS = {"GET": 0.97, "POST": 0.02, "HEAD": 0.01}
#: Share of the visitors with a private address.
PRIVATE = 0.01


class WeblogSource(TextLineSource):
    """Lines of a web server's log, in the Common Log Format.

    Visitors and pages have frequencies by Zipf's law. 93 % of the addresses are in the default table of networks: a
    sixteenth are of networks that it leaves out, and 1 % private. Of the answers 81 % are 200, 12 % 304 (without
    bytes), 5 % 404, 2 % 206, 1 % 500; sizes are lognormal, with a median of 5 kB. Lines are written when an answer has
    been sent and have the time of the request, so that few are late.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    visitors : int, >= 1, default 5,000
    rate : float, > 0, default 20
        Lines per second of stream time.
    late : float, 0 to 1, default 0.01
        Share of the lines whose time is up to 30 s earlier.
    dirt : bool, default True
        0.2 % of the lines are bad: blank, cut off, of a 31st of February, or with an invalid status.

    Shapes and rates
    ----------------
    79 bytes a line.

    Examples
    --------
    >>> source = WeblogSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'198.19.82.186 - - [10/Jun/1998:12:00:00 +0000] "GET /french/teams/66.html HTTP/1.0" 200 12104'
    """

    stream: ClassVar[str] = "weblog"
    domain: ClassVar[str] = "log of a web server"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<before>[^\[]*\[)(?P<time>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d)(?P<after>.*)",
        "%d/%b/%Y:%H:%M:%S",
    )
    start_ms = 897_480_000_000  # 1998-06-10 12:00

    visitors: Count = 5_000
    rate: Positive = 20.0
    late: Share = 0.01

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return 1000 / self.rate

    def lines(self, numbers: Numbers) -> pa.Array:
        visitor = self.choices(1, numbers, zipf_weights(self.visitors))
        page = self.choices(2, numbers, zipf_weights(PAGES))
        status = self.choices(3, numbers, list(STATUSES.values()))
        size = np.exp(8.5 + 1.2 * normals(self.seed, 4, numbers)).astype(np.int64)
        back = np.where(self.uniforms(5, numbers) < self.late, self.random_words(6, numbers).astype(np.int64) % 30, 0)
        seconds = self.times(numbers) // 1000 - back
        days, within = np.divmod(seconds, 86_400)
        every, place = np.unique(days, return_inverse=True)
        dates = [np.datetime64(int(day), "D").item() for day in every]
        named = pa.array([f"{date.day:02}/{MONTHS[date.month - 1]}/{date.year}" for date in dates], pa.string())

        hosts = addresses(self.visitors, self.seed).take(pa.array(visitor))
        verb = pa.array([*VERBS]).take(pa.array(self.choices(7, numbers, list(VERBS.values()))))
        answer = pa.array([*STATUSES]).take(pa.array(status))
        sizes = pc.if_else(pa.array(status == 2), "-", pa.array(size).cast(pa.string()))
        open_ = join_cells(hosts, " - - [", separator="")
        clock = join_cells(":", _clock().take(pa.array(within)), " +0000] ", separator="")
        asked = join_cells('"', verb, " ", _pages().take(pa.array(page)), ' HTTP/1.0"', separator="")
        dated = join_cells(open_, named.take(pa.array(place)), clock, asked, separator="")
        lines = join_cells(dated, answer, sizes, separator=" ")
        undated = join_cells(open_, "31/Feb/1998", clock, asked, " ", answer, " ", sizes, separator="")
        bad = [
            "",
            join_cells(open_, "10/Jun", separator=""),
            undated,
            join_cells(dated, "OK", sizes, separator=" "),
        ]
        return self.with_dirt(numbers, lines, 0.002, bad)


@functools.lru_cache(maxsize=4)
def addresses(visitors: int, seed: int) -> pa.Array:
    """Return the address of each visitor; most are in reserved networks."""
    numbers = np.arange(visitors)
    sizes = np.array([ipaddress.ip_network(block).num_addresses for block, _ in BLOCKS], np.uint64)
    firsts = np.array([int(ipaddress.ip_network(block)[0]) for block, _ in BLOCKS], np.uint64)
    # a fifth is in each of the small blocks, whose networks are also small
    block = (random_words(seed, 50, numbers) % np.uint64(len(BLOCKS) + 1)).astype(np.int64) % len(BLOCKS)
    chosen = firsts[block] + random_words(seed, 51, numbers) % sizes[block]
    private = np.uint64(10 << 24) + random_words(seed, 52, numbers) % np.uint64(256)
    found = np.where(uniforms(seed, 53, numbers) < PRIVATE, private, chosen)
    return pa.array([str(ipaddress.IPv4Address(int(address))) for address in found])


@functools.cache
def _clock() -> pa.Array:
    """Return the time of each second of a day."""
    return pa.array([f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}" for s in range(86_400)])


@functools.cache
def _pages() -> pa.Array:
    kinds = ("/english/news/{}.html", "/images/{}.gif", "/french/teams/{}.html", "/scores/{}")
    return pa.array(["/", *(kinds[i % 4].format(i) for i in range(1, PAGES))])
