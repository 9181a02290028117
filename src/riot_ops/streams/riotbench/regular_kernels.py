"""The loops over messages of streams whose sensors all report once per period."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.streams.text import put, put_decimal, put_digits, put_part

__all__ = ["NULL", "numbered_ids", "regular_slots", "regular_text", "unscaled"]

#: A value that is missing.
NULL = np.iinfo(np.int64).min


@kernel
def regular_slots(
    first: Any, base: Any, period: Any, order: Any, offsets: Any, sensor: Any, tick: Any, time: Any
) -> None:
    """Sensor, period and time of messages from the first on."""
    sensors = order.size
    t = first // sensors
    rank = first - t * sensors
    for i in range(sensor.size):
        sensor[i] = order[rank]
        tick[i] = t
        time[i] = base + t * period + offsets[rank]
        rank += 1
        if rank == sensors:
            rank = 0
            t += 1


@kernel
def regular_text(
    time: Any,
    number: Any,
    values: Any,
    decimals: Any,
    parts: Any,
    edges: Any,
    csv: Any,
    newline: Any,
    out: Any,
    ends: Any,
) -> Any:
    """The messages end to end, in the wire format or as CSV.

    The parts are the text before the id, before each value and after the last; in the wire format
    the closing after the time, at last the word for a missing value.
    """
    fields = values.shape[1]
    p = 0
    ends[0] = 0
    for i in range(time.size):
        start = p
        if not csv:
            p = put_digits(out, p, time[i], 13)
        stop = p
        p = put_part(out, p, parts, edges, 0)
        p = put_digits(out, p, number[i], 1)
        if csv:
            out[p] = 44
            p = put_digits(out, p + 1, time[i], 13)
        for f in range(fields):
            p = put_part(out, p, parts, edges, 1 + f)
            if values[i, f] == NULL:
                p = put_part(out, p, parts, edges, fields + 3)
            else:
                p = put_decimal(out, p, values[i, f], decimals[f], True)
        p = put_part(out, p, parts, edges, fields + 1)
        if not csv:
            p = put(out, p, out, start, stop)
            p = put_part(out, p, parts, edges, fields + 2)
        if newline:
            out[p] = 10
            p += 1
        ends[i + 1] = p
    return p


@kernel
def numbered_ids(prefix: Any, number: Any, repeat: Any, out: Any, ends: Any) -> Any:
    """A prefix and a number per row, ``repeat`` rows per message."""
    p = 0
    r = 0
    ends[0] = 0
    for i in range(number.size):
        start = p
        p = put(out, p, prefix, 0, prefix.size)
        p = put_digits(out, p, number[i], 1)
        stop = p
        for k in range(repeat):
            if k > 0:
                p = put(out, p, out, start, stop)
            r += 1
            ends[r] = p
    return p


@kernel
def unscaled(values: Any, columns: Any, scales: Any, out: Any) -> None:
    """Some columns of scaled whole numbers as floats, NaN where missing."""
    for i in range(values.shape[0]):
        for c in range(columns.size):
            value = values[i, columns[c]]
            out[i, c] = np.nan if value == NULL else value / scales[columns[c]]
