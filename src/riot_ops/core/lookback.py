"""How far back results reach."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

__all__ = ["Lookback"]


@dataclass(frozen=True)
class Lookback:
    """How far back the results of a keyed task reach.

    Whatever message one looks at: behind it, results of a key rest on nothing before it from some result on. That is
    when so many messages have brought results of the key, and so much event time has passed since its first result.

    Windows that follow one another by count have none: where one begins depends on how many records came before. Nor
    has state with a ``ttl``: what is left of a key depends on stream time, which all that came before has moved. Event
    times are to lag behind it by no more than a window's ``allowed_lateness``: what comes later is late after some pasts alone.
    The last digits of a sum of floats may differ.

    Parameters
    ----------
    records : int, default 0
    span : timedelta, default 0
    """

    records: int = 0
    span: timedelta = timedelta(0)
