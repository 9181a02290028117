"""Parsing of SenML messages to columns with ``orjson``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import orjson
import pyarrow as pa

from riot_ops.core.schema import OBSERVATIONS, TIMESTAMP

__all__ = ["FIELDS", "parse"]

FIELDS = ("temperature", "humidity", "light", "dust", "airquality_raw")


def parse(payloads: Iterable[bytes]) -> pa.RecordBatch:
    """Parse CITY messages ``<ms>,<SenML>`` to observations."""
    times, sensors, values = [], [], []
    for line in payloads:
        message = orjson.loads(line[line.index(b",") + 1 :])
        records = {record["n"]: record for record in message["e"]}
        times.append(message["bt"] * 1000)
        sensors.append(records["source"]["sv"])
        for name in FIELDS:
            text = records[name]["v"]
            values.append(None if text == "null" else float(text))
    n, width = len(times), len(FIELDS)
    message_of = np.repeat(np.arange(n), width)
    take = pa.array(message_of)
    return pa.RecordBatch.from_arrays(
        [
            take,
            pa.array(np.tile(np.arange(width), n)),
            pa.array(times, TIMESTAMP).take(take),
            pa.array(sensors, pa.string()).take(take),
            pa.array(FIELDS * n, pa.string()),
            pa.array(values, pa.float64()),
        ],
        schema=OBSERVATIONS,
    )
