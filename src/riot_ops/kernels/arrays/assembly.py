"""Assembling messages from observations: which observations belong to one message."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["COMPLETE", "DUPLICATE", "EXPIRED", "NEVER", "OPEN", "UNKNOWN", "match_observations", "scatter_observations"]

#: Before any other time.
NEVER = int(np.iinfo(np.int64).min)
#: Status of an entry.
OPEN, COMPLETE, EXPIRED = 0, 1, 2
#: In place of the entry of a rejected observation.
UNKNOWN, DUPLICATE = -1, -2


@kernel
def match_observations(
    slots: Any,
    codes: Any,
    times: Any,
    arrived: Any,
    held: Any,
    clock: Any,
    timeout: Any,
    have: Any,
    entry_of: Any,
    entry: Any,
    begun: Any,
    count: Any,
    last: Any,
    status: Any,
    place: Any,
) -> Any:
    """Assign observations to entries, one per message; returns the number of entries and the clock.

    Row i is the observation ``codes[i]`` of the message in slot ``slots[i]``. The first ``held`` rows were buffered
    before and arrived at ``arrived[i]``. An entry that has been open for longer than ``timeout`` (if that is not
    negative) expires at the first row of its slot after that.
    """
    n = 0
    wanted = have.shape[1]
    for i in range(slots.size):
        now = arrived[i]
        if i >= held:
            now = max(clock, times[i])
            arrived[i] = clock  # a rejected observation does not advance the clock
        k = codes[i]
        if k < 0:
            entry[i] = UNKNOWN
            continue
        s = slots[i]
        e = entry_of[s]
        if e >= 0 and timeout >= 0 and begun[e] > NEVER and now > begun[e] + timeout:
            status[e] = EXPIRED
            e = -1
        if e < 0:
            e = n
            n += 1
            entry_of[s] = e
            begun[e] = now
            count[e] = 0
            status[e] = OPEN
            have[s] = False
        if have[s, k]:
            entry[i] = DUPLICATE
            continue
        clock = max(clock, now)
        arrived[i] = now
        have[s, k] = True
        entry[i] = e
        last[e] = i
        count[e] += 1
        if count[e] == wanted:
            status[e] = COMPLETE
            place[e] = i
            entry_of[s] = -1
    return n, clock


@kernel
def scatter_observations(entry: Any, codes: Any, row_of: Any, target: Any, values: Any, out: Any, rows: Any) -> None:
    """Write each observation into the row of its entry: numbers to ``out``, the row numbers of texts to ``rows``."""
    numbers = out.shape[0]
    for i in range(entry.size):
        e = entry[i]
        if e >= 0 and row_of[e] >= 0:
            t = target[codes[i]]
            if t < numbers:
                out[t, row_of[e]] = values[i]
            else:
                rows[t - numbers, row_of[e]] = i
