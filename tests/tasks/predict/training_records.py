"""Random records to train on."""

from __future__ import annotations

import datetime as dt
import random

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def records(n, seed=0, keys="ab"):
    choose = random.Random(seed)
    return [
        {
            "key": choose.choice(keys),
            "event_time": EPOCH + dt.timedelta(milliseconds=1000 + 10 * i, microseconds=900),
            "x": choose.choice([0.0, 1.0, 2.5, 4.0, -3.0]) + i / 8,
            "y": choose.choice([0.25, 0.5, 2.0]),
            "target": choose.uniform(-1, 1),
        }
        for i in range(n)
    ]
