"""Rates that decay: of each key, or of the buckets of a sketch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["UNTOUCHED", "decay_table", "rates", "sketched_rates"]

#: A time before all others, which can be subtracted from any of them.
UNTOUCHED = -(1 << 62)
_SECOND = 1_000_000
_32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
#: The greatest number: infinity would not fade.
_MOST = float(np.finfo(np.float64).max)


def decay_table(base: float) -> npt.NDArray[np.float64]:
    """What is left of 1 after 0, 1, 2 … seconds, where after one it is ``base``; times are mostly whole seconds."""
    return readonly(np.power(base, np.arange(4096.0)))


@kernel(inline=True)
def _left(micros: Any, table: Any, rate: Any) -> Any:
    """What is left of 1 after a time >= 0; ``rate`` is per microsecond."""
    seconds = micros // _SECOND
    if seconds < table.size:
        left = table[seconds]
        rest = micros - seconds * _SECOND
        return left if rest == 0 else left * math.exp(-rate * rest)
    return math.exp(-rate * micros)


@kernel
def rates(
    slots: Any, times: Any, amounts: Any, adds: Any, table: Any, rate: Any, values: Any, timers: Any, out: Any
) -> None:
    """The rate of each record's key after it, where it adds, or at its time.

    Nothing decays backwards: a record behind its key's time adds what would be left of its amount by then.
    """
    for i in range(slots.size):
        s = np.uint64(slots[i])
        dt = times[i] - timers[s]
        value = values[s]
        if dt > 0:
            value *= _left(dt, table, rate)
        if adds[i]:
            if dt > 0:
                value += amounts[i]
                timers[s] = times[i]
            else:
                value += amounts[i] * _left(-dt, table, rate)
            value = min(value, _MOST)
            values[s] = value
        out[i] = value


@kernel(inline=True)
def _word(h1: Any, h2: Any, j: Any, words: Any) -> Any:
    """The word of the j-th bucket of a value: the upper half of its hash, scaled down to their number."""
    return ((h1 + np.uint64(j) * h2) >> _32) * words >> _32


@kernel(inline=True)
def _cell(h1: Any, h2: Any, j: Any, word: Any, per_word: Any) -> Any:
    """The bucket within it, by the lower half."""
    return word * per_word + (((h1 + np.uint64(j) * h2) & _LOW) * per_word >> _32)


@kernel(inline=True)
def _at(value: Any, time: Any, timer: Any, rate: Any, period: Any) -> Any:
    """What a bucket is at a time, or at that of its word if this is later."""
    return value * math.exp(-rate * (max(time, timer) - timer // period * period))


@kernel
def sketched_rates(
    slots: Any, times: Any, amounts: Any, adds: Any, added1: Any, added2: Any, read1: Any, read2: Any, k: Any,
    per_word: Any, rate: Any, period: Any, cells: Any, timers: Any, out: Any,
) -> None:  # fmt: skip
    """The same where a rate is the least of k buckets, which a value shares with others.

    Buckets stand in words, each with the time to which all of its buckets have decayed. But a cell holds what its
    bucket was at the beginning of the period (of event time) that this time is in: so a word's time can move within a
    period without a look at its other cells. A value raises those of its buckets that are below what it should have
    (conservative update), and no others. ``read1.size`` is 0 where the value that is read is that which is added.
    """
    words = np.uint64(timers.shape[1])
    each = np.uint64(per_word)
    other = read1.size > 0
    for i in range(slots.size):
        s = np.uint64(slots[i])
        h1 = added1[i]
        h2 = added2[i]
        now = times[i]
        begin = now // period * period
        grown = math.exp(rate * (now - begin))
        left = 1.0 / grown
        least = np.inf
        if adds[i]:
            late = False
            for j in range(k):
                w = _word(h1, h2, j, words)
                b = _cell(h1, h2, j, w, each)
                timer = timers[s, w]
                if timer < begin:
                    scale = math.exp(-rate * (begin - timer // period * period))
                    for c in range(per_word):
                        cells[s, w * each + np.uint64(c)] *= scale
                if timer <= now:
                    timers[s, w] = now
                    value = cells[s, b] * left
                else:
                    late = True
                    value = _at(cells[s, b], now, timer, rate, period)
                least = min(least, value)
            found = least
            least = min(found + amounts[i], _MOST)
            raised = min(least * grown, _MOST)
            if late:
                least = np.inf
            for j in range(k):
                w = _word(h1, h2, j, words)
                b = _cell(h1, h2, j, w, each)
                if late:
                    timer = timers[s, w]
                    wanted = found + amounts[i] * math.exp(-rate * (timer - now))
                    raised = min(wanted * math.exp(rate * (timer - timer // period * period)), _MOST)
                    cells[s, b] = max(cells[s, b], raised)
                    least = min(least, _at(cells[s, b], now, timer, rate, period))
                else:
                    cells[s, b] = max(cells[s, b], raised)
        if other:
            least = np.inf
            h1 = read1[i]
            h2 = read2[i]
        if other or not adds[i]:
            for j in range(k):
                w = _word(h1, h2, j, words)
                b = _cell(h1, h2, j, w, each)
                timer = timers[s, w]
                if timer >= begin and timer <= now:
                    value = cells[s, b] * left
                else:
                    value = _at(cells[s, b], now, timer, rate, period)
                least = min(least, value)
        out[i] = least
