"""Call records of telephones, as the VoIP stream of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import as_timedelta
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import NonNegativeDuration, Positive, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_times, join_cells, random_words

__all__ = ["CallsSource"]

#: Contacts of a caller.
CONTACTS = 5
#: Minimum and maximum seconds of a call, of people and of telemarketers.
TALKS, PITCHES = (20, 300), (3, 25)


class CallsSource(TextLineSource):
    """Calls: caller, callee, time, and all of it again in one cell, with seconds, and whether it was answered.

    Every person has five contacts and calls only these, for 20 to 300 seconds. Telemarketers call a new number each
    time, of a person without outgoing calls, for 3 to 25 seconds. A number has eleven digits and begins with 1.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    population : int, >= 2, default 1000
        Callers, telemarketers among them.
    telemarketers : int, >= 0 and below the population, default 10
        Number of telemarketers among them.
    share : float, 0 to 1, default 0.2
        Share of the calls that telemarketers make.
    failed : float, 0 to 1, default 0.05
        Share of the calls that are not answered.
    rate : float, > 0, default 10
        Calls per second.
    max_delay : timedelta >= 0 or text such as "10s", default "1min"
        Maximum delay of a call after its turn, so that times do not ascend.
    dirt : bool, default True
        0.5 % of the lines are bad: cut off, without a real time, or with something else where it says how long the
        call lasted, or whether it was answered.

    Shapes and rates
    ----------------
    94 bytes a line.

    Examples
    --------
    >>> source = CallsSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()[24:]
    b'2020-01-01T00:00:23,12497616900;17895546603;2020-01-01T00:00:23;146;true'
    """

    stream: ClassVar[str] = "calls"
    domain: ClassVar[str] = "records of telephone calls"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<before>[^,]*,[^,]*,)(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
        r"(?P<between>,[^;]*;[^;]*;)(?P<time_again>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<after>.*)",
        "%Y-%m-%dT%H:%M:%S",
    )

    population: Annotated[int, functools.partial(check_count, 2)] = 1000
    telemarketers: Annotated[int, functools.partial(check_count, 0)] = 10
    share: Share = 0.2
    failed: Share = 0.05
    rate: Positive = 10.0
    max_delay: NonNegativeDuration = "1min"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.telemarketers >= self.population:
            raise ConfigError(
                f"telemarketers must be fewer than the population {self.population}, got {self.telemarketers}"
            )

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return 1000.0 / self.rate

    def lines(self, numbers: Numbers) -> pa.Array:
        selling = (self.uniforms(1, numbers) < self.share) & (self.telemarketers > 0)
        caller = self._below(2, numbers, np.where(selling, self.telemarketers, self.population - self.telemarketers))
        caller += np.where(selling, 0, self.telemarketers)
        # a contact is one of all others
        contact = caller * CONTACTS + self._below(3, numbers, CONTACTS)
        friend = (caller + 1 + self._below(4, contact, self.population - 1)) % self.population
        book = _book(self.population, self.seed)
        callee = np.where(selling, _telephone(self.random_words(5, numbers)), book[friend])
        least, most = (np.where(selling, pitch, talk) for pitch, talk in zip(PITCHES, TALKS, strict=True))
        seconds = least + self._below(6, numbers, most - least + 1)
        wait = self.uniforms(7, numbers) * as_timedelta(self.max_delay).total_seconds() * 1000
        time = format_times((self.start_ms + numbers * self.gap_ms + wait).astype(np.int64) // 1000, "s")
        answered = pa.array(["true", "false"]).take(pa.array((self.uniforms(8, numbers) < self.failed).astype(np.int8)))
        call = [pa.array(book[caller]).cast(pa.string()), pa.array(callee).cast(pa.string()), time]
        head = join_cells(*call)
        lines = _joined(head, *call, seconds, answered)
        bad = [head, _joined(head, *call, "soon", answered), _joined(head, *call, seconds, "maybe")]
        timeless = join_cells(*call[:2], "2020-02-30T09:00:00")
        bad.append(_joined(timeless, *call[:2], "2020-02-30T09:00:00", seconds, answered))
        return self.with_dirt(numbers, lines, 0.005, bad)

    def _below(self, use: int, numbers: Numbers, limit: Numbers | int) -> npt.NDArray[np.int64]:
        """Whole numbers from 0 to a limit."""
        return np.floor(self.uniforms(use, numbers) * limit).astype(np.int64)


def _joined(head: pa.Array, *parts: pa.Array | str) -> pa.Array:
    return join_cells(head, join_cells(*parts, separator=";"))


def _telephone(drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return 10**10 + (drawn % np.uint64(10**10)).astype(np.int64)


@functools.lru_cache(maxsize=4)
def _book(population: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the number of each caller."""
    return _telephone(random_words(seed, 9, np.arange(population)))
