"""Exponentially decaying rates, by key or in the buckets of a sketch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["UNTOUCHED", "decay_table", "rates", "sketched_rates"]

#: Before any other time, and can be subtracted from any time without overflow.
UNTOUCHED = -(1 << 62)
_SECOND = 1_000_000
_32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
#: Largest float: infinity would never decay.
_MAX = float(np.finfo(np.float64).max)


def decay_table(base: float) -> npt.NDArray[np.float64]:
    """``base`` to the power of 0, 1, 2 … seconds; most times are whole seconds."""
    return readonly(np.power(base, np.arange(4096.0)))


@kernel(inline=True)
def _decayed(micros: Any, table: Any, rate: Any) -> Any:
    """Return the decay factor of ``micros`` >= 0; ``rate`` is per microsecond."""
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
    """The rate of each record's key: after adding its amount, if it ``adds``, else at its time.

    Time is never set back: the amount of a late record is decayed to the time of its key before it is added.
    """
    for i in range(slots.size):
        s = np.uint64(slots[i])
        dt = times[i] - timers[s]
        value = values[s]
        if dt > 0:
            value *= _decayed(dt, table, rate)
        if adds[i]:
            if dt > 0:
                value += amounts[i]
                timers[s] = times[i]
            else:
                value += amounts[i] * _decayed(-dt, table, rate)
            value = min(value, _MAX)
            values[s] = value
        out[i] = value


@kernel(inline=True)
def _word(h1: Any, h2: Any, j: Any, words: Any) -> Any:
    """Return the word of the j-th bucket of a value: the upper half of its hash, scaled to the number of words."""
    return ((h1 + np.uint64(j) * h2) >> _32) * words >> _32


@kernel(inline=True)
def _cell(h1: Any, h2: Any, j: Any, word: Any, per_word: Any) -> Any:
    """Return the bucket within a word, by the lower half of the hash."""
    return word * per_word + (((h1 + np.uint64(j) * h2) & _LOW) * per_word >> _32)


@kernel(inline=True)
def _value_at(value: Any, time: Any, timer: Any, rate: Any, period: Any) -> Any:
    """Return the value of a bucket at ``time``, or at the time of its word if that is later."""
    return value * math.exp(-rate * (max(time, timer) - timer // period * period))


@kernel
def sketched_rates(
    slots: Any, times: Any, amounts: Any, adds: Any, added1: Any, added2: Any, read1: Any, read2: Any, k: Any,
    per_word: Any, rate: Any, period: Any, cells: Any, timers: Any, out: Any,
) -> None:  # fmt: skip
    """Like :func:`rates`, but the rate of a value is the minimum of k buckets, which it shares with other values.

    Buckets are grouped into words, each with the time to which its buckets have decayed. A cell holds the value of its
    bucket at the beginning of the period (of event time) that contains this time. So the time of a word can advance
    within a period without touching its other cells. A value raises only those of its buckets that are below its new
    rate (conservative update). ``read1.size`` is 0 if the value to read is the value that is added.
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
        minimum = np.inf
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
                    value = _value_at(cells[s, b], now, timer, rate, period)
                minimum = min(minimum, value)
            found = minimum
            minimum = min(found + amounts[i], _MAX)
            raised = min(minimum * grown, _MAX)
            if late:
                minimum = np.inf
            for j in range(k):
                w = _word(h1, h2, j, words)
                b = _cell(h1, h2, j, w, each)
                if late:
                    timer = timers[s, w]
                    wanted = found + amounts[i] * math.exp(-rate * (timer - now))
                    raised = min(wanted * math.exp(rate * (timer - timer // period * period)), _MAX)
                    cells[s, b] = max(cells[s, b], raised)
                    minimum = min(minimum, _value_at(cells[s, b], now, timer, rate, period))
                else:
                    cells[s, b] = max(cells[s, b], raised)
        if other:
            minimum = np.inf
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
                    value = _value_at(cells[s, b], now, timer, rate, period)
                minimum = min(minimum, value)
        out[i] = minimum
