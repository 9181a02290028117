"""Bargain index in plain Python."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["bargain_index"]

_PERIOD: dict[str, Callable[[datetime], Any]] = {
    "minute": lambda at: (at.date(), at.hour, at.minute),
    "hour": lambda at: (at.date(), at.hour),
    "day": lambda at: at.date(),
    "week": lambda at: at.isocalendar()[:2],
    "month": lambda at: (at.year, at.month),
}


class _LastTrades:
    """Averages over the last trades of a stock."""

    def __init__(self, max_trades: int) -> None:
        self.max_trades = max_trades
        self.trades: deque[tuple[float, float]] = deque()
        self.money = self.volume = 0.0

    def add(self, price: float, volume: float, at: datetime) -> float | None:
        if len(self.trades) == self.max_trades:
            money, oldest = self.trades.popleft()
            self.money -= money
            self.volume -= oldest
        self.trades.append((price * volume, volume))
        self.money += price * volume
        self.volume += volume
        return self.money / self.volume if self.volume > 0 else None


class _Period:
    """Averages over the trades of a stock in the latest period."""

    def __init__(self, kind: str) -> None:
        self.number = _PERIOD[kind]
        self.now: Any = None
        self.money = self.volume = 0.0

    def add(self, price: float, volume: float, at: datetime) -> float | None:
        now = self.number(at)
        if self.now is None or now > self.now:
            self.now, self.money, self.volume = now, 0.0, 0.0
        elif now < self.now:
            return None
        self.money += price * volume
        self.volume += volume
        return self.money / self.volume if self.volume > 0 else None


def _bars(lines: Iterable[bytes]) -> Iterable[tuple[str, datetime, float, float] | None]:
    """Parse each line; None for a line that is no bar."""
    for line in lines:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
        except UnicodeDecodeError:
            cells = []
        if len(cells) == 9 and not cells[8]:
            cells.pop()
        if len(cells) != 8 or not cells[0]:
            yield None
            continue
        try:
            at = datetime.fromisoformat(cells[1].strip())
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            _, _, _, price, _, volume = prices = [float(cell) for cell in cells[2:]]
        except ValueError:
            yield None
            continue
        good = all(map(math.isfinite, prices)) and price >= 0 and volume >= 0
        yield (cells[0], at, price, volume) if good else None


def bargain_index(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    window: int = 15,
    calendar: str | None = None,
    threshold: float = 0.001,
    first: str = "trade",
) -> dict[str, list[tuple[Any, ...]]]:
    """``bargains``: stock, price, volume, index. ``inputs`` has ``trades`` and ``quotes``, lines of bars."""
    windows: dict[str, Any] = {}
    prices: dict[str, float] = {}
    bargains = new_rows()

    def trade(bar: tuple[str, datetime, float, float] | None) -> None:
        if bar is None:
            return
        stock, at, price, volume = bar
        if stock not in windows:
            windows[stock] = _LastTrades(window) if calendar is None else _Period(calendar)
        average = windows[stock].add(price, volume, at)
        if average is not None:
            prices[stock] = average

    def quote(bar: tuple[str, datetime, float, float] | None) -> None:
        if bar is None:
            return
        stock, _, price, volume = bar
        average = prices.get(stock)
        if average is not None and average > price:
            index = math.exp(min(average - price, 700.0)) * volume
            if index > threshold:
                bargains.append((stock, price, volume, index))

    trades, quotes = _bars(inputs["trades"]), iter(_bars(inputs["quotes"]))
    for traded in trades:
        bar = next(quotes, None)
        for which in ("trade", "quote") if first == "trade" else ("quote", "trade"):
            if which == "trade":
                trade(traded)
            else:
                quote(bar)
    for bar in quotes:
        quote(bar)
    return {"bargains": bargains}
