"""How much of the past input a result depends on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

__all__ = ["Lookback"]


@dataclass(frozen=True)
class Lookback:
    """How much of the past input the results of a keyed task depend on.

    A task that starts in the middle of a stream gives the same results for a key as one that has seen all of it once
    ``records`` messages have given results of the key and ``span`` of event time has passed since its first result.

    Consecutive windows by count have no lookback: where a window begins depends on the number of all earlier records.
    Nor has state with a ``ttl``, since all earlier records have advanced the stream time that removes keys. Event times
    must lag behind stream time by no more than a window's ``allowed_lateness``: whether a record that lags further is
    late depends on the earlier input. The last digits of a sum of floats may differ.

    Parameters
    ----------
    records : int, default 0
        Number of messages with results of the key.
    span : timedelta, default 0
        Event time since the first result of the key.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> t.SlidingRegression(window=10).lookback()
    Lookback(records=9, span=datetime.timedelta(0))
    """

    records: int = 0
    span: timedelta = timedelta(0)
