"""Bargain index, one record at a time, in exact numbers."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from itertools import zip_longest


def _bar(line):
    """Return ``(stock, date, price, volume)`` of a line; ValueError if the line is malformed."""
    cells = line.split(",")
    if len(cells) == 9 and cells[-1] == "":
        cells = cells[:-1]
    if len(cells) != 8 or not cells[0]:
        raise ValueError(line)
    if float(cells[7]) < 0:
        raise ValueError(line)
    return cells[0], dt.datetime.fromisoformat(cells[1]), float(cells[5]), float(cells[7])


def _period(at, kind):
    number = {
        "minute": (at.year, at.month, at.day, at.hour, at.minute),
        "hour": (at.year, at.month, at.day, at.hour),
        "day": (at.year, at.month, at.day),
        "week": tuple(at.isocalendar())[:2],
        "month": (at.year, at.month),
    }
    return number[kind]


def averages(bars, window):
    """Yield the average price after each trade; None if there is no average."""
    seen = {}
    for stock, at, price, volume in bars:
        held = seen.setdefault(stock, [])
        if isinstance(window, str):
            if held and _period(at, window) < _period(held[-1][0], window):
                yield None
                continue
            held[:] = [one for one in held if _period(one[0], window) == _period(at, window)]
        held.append((at, Fraction(price), Fraction(volume)))
        if isinstance(window, int):
            held[:] = held[-window:]
        total = sum(volume for _, _, volume in held)
        yield float(sum(price * volume for _, price, volume in held) / total) if total else None


def bargain_index(trades, quotes, *, window=15, threshold=0.001, first="trade"):
    """Return ``(number, stock, price, volume, vwap, index)`` of each bargain, and the number of malformed lines."""
    bad = 0
    read = {}
    for name, lines in (("trade", trades), ("quote", quotes)):
        read[name] = []
        for line in lines:
            try:
                header = line.split(",")[1:2] and line.split(",")[1].lower() == "date"
                read[name].append(None if header else _bar(line))
            except ValueError:
                read[name].append(None)
                bad += 1
    average_prices = averages([bar for bar in read["trade"] if bar is not None], window)
    known, found = {}, []
    for number, (trade, quote) in enumerate(zip_longest(read["trade"], read["quote"])):
        for which in ("trade", "quote") if first == "trade" else ("quote", "trade"):
            if which == "trade" and trade is not None:
                average = next(average_prices)
                if average is not None:
                    known[trade[0]] = average
            if which == "quote" and quote is not None and quote[0] in known:
                stock, _, price, volume = quote
                vwap = known[stock]
                index = math.exp(min(700, vwap - price)) * volume if vwap > price else 0.0
                if index > threshold:
                    found.append((number, stock, price, volume, vwap, index))
    return found, bad
