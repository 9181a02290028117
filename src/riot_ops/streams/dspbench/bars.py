"""Daily prices of stocks, as the bargain index of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.ingest.line_time import LineTime
from riot_ops.kernels.jit import kernel
from riot_ops.streams.noise import derive_key, ornstein_uhlenbeck, ornstein_uhlenbeck_table
from riot_ops.streams.parameters import Count
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_decimals, format_times, join_cells, normals

__all__ = ["BarsSource"]

HEADER = "Symbol,Date,Open,High,Low,Close,Adj Close,Volume"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Deviation of the logarithm of a price, and its correlation over a day: it changes by 2 % a day.
SWING, STAYS = 0.45, 0.999
#: Mean time between trading days.
DAY_MS = 86_400_000 * 7 / 5


@kernel
def _walks(key: Any, stocks: Any, days: Any, table: Any, out: Any) -> None:
    for i in range(stocks.size):
        out[i] = ornstein_uhlenbeck(derive_key(key, stocks[i]), days[i], table)


class BarsSource(TextLineSource):
    """Bars of stocks: symbol, date, open, high, low, close and adjusted close, volume, and an empty cell.

    Each trading day, Monday to Friday, all stocks have a line. The logarithm of a price moves at random by 2 % a day,
    and back to the stock's own level within years (an Ornstein-Uhlenbeck process, since each line is a function of its
    number). A day opens with the close of the one before. Volumes are lognormal, in hundreds.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    stocks : int, >= 1, default 100
    dirt : bool, default True
        The first line is a header; 0.4 % of the others have ``null`` in place of numbers, as the original has for some
        days, or lack cells.

    Shapes and rates
    ----------------
    77 bytes a line.

    Examples
    --------
    >>> source = BarsSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'AAB,2018-01-01,8.622589,8.692766,8.346787,8.400571,8.400571,99400,'
    """

    stream: ClassVar[str] = "bars"
    domain: ClassVar[str] = "daily prices of stocks"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<before>[^,]*,)(?P<time>\d{4}-\d\d-\d\d)(?P<after>,.*)",
        "%Y-%m-%d",
    )
    start_ms = 1_514_764_800_000  # Monday, 2018-01-01

    stocks: Count = 100

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return DAY_MS / self.stocks

    def lines(self, numbers: Numbers) -> pa.Array:
        day, stock = np.divmod(numbers, self.stocks)
        level = 10.0 * np.exp(0.5 * normals(self.seed, 1, stock))
        opened, closed = (level * np.exp(SWING * self._walk(stock, day + later)) for later in (0, 1))
        high = np.maximum(opened, closed) * (1 + 0.01 * self.uniforms(2, numbers))
        low = np.minimum(opened, closed) * (1 - 0.01 * self.uniforms(3, numbers))
        volume = 100 * (1 + np.floor(np.exp(6 + 1.2 * normals(self.seed, 4, numbers)))).astype(np.int64)
        date = format_times(self.start_ms // 86_400_000 + day // 5 * 7 + day % 5, "D")
        last = format_decimals(closed, 6)
        names = _symbols(self.stocks).take(pa.array(stock))
        head = join_cells(names, date)
        lines = join_cells(head, *(format_decimals(v, 6) for v in (opened, high, low)), last, last, volume, "")
        empty = join_cells(head, "null,null,null,null,null,null,")
        lines = self.with_dirt(numbers, lines, 0.004, [empty, empty, empty, join_cells(head, last)])
        return pa.compute.if_else(pa.array(numbers == 0), HEADER, lines) if self.dirt else lines

    def _walk(self, stocks: Numbers, days: Numbers) -> npt.NDArray[np.float64]:
        out = np.empty(stocks.size)
        _walks(np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF), stocks, days, _table(), out)
        return out


@functools.cache
def _table() -> npt.NDArray[np.float64]:
    return ornstein_uhlenbeck_table(STAYS)


@functools.lru_cache(maxsize=4)
def _symbols(stocks: int) -> pa.Array:
    """Symbols of three letters or more: AAA, AAB and so on."""
    width = 3
    while len(LETTERS) ** width < stocks:
        width += 1
    places = np.arange(stocks)[:, None] // len(LETTERS) ** np.arange(width - 1, -1, -1) % len(LETTERS)
    return pa.array(["".join(row) for row in np.array(list(LETTERS))[places]])
