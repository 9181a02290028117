"""Records as JSON, compared with Python's own json."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa

from riot_ops.core.json_rows import json_lines, json_texts


def test_lines_are_read_by_python():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    table = pa.table(
        {
            "big": pa.array([2**63 - 1], pa.int64()),
            "float": [0.1],
            "nan": [float("-inf")],
            "text": ['a"\n\u2028'],
            "time": pa.array([moment], pa.timestamp("us", "UTC")),
            "nanos": pa.array([1_000_000_001], pa.timestamp("ns")),
            "date": [date(2026, 1, 2)],
            "clock": [time(1, 2, 3)],
            "span": pa.array([timedelta(seconds=1)], pa.duration("ms")),
            "decimal": [Decimal("1.10")],
            "bytes": [b"\x00\xff"],
            "list": [[1, None]],
            "flag": [True],
        }
    )
    (row,) = [json.loads(line, parse_float=str) for line in json_lines(table).splitlines()]
    assert row == {
        "big": 2**63 - 1,
        "float": "0.1",
        "nan": None,
        "text": 'a"\n\u2028',
        "time": "2026-01-02T03:04:05.678901Z",
        "nanos": "1970-01-01 00:00:01.000000001",
        "date": "2026-01-02",
        "clock": "01:02:03.000000",
        "span": 1000,
        "decimal": "1.10",
        "bytes": "AP8=",
        "list": [1, None],
        "flag": True,
    }


def test_texts_keep_nulls():
    assert json_texts(pa.array([{"a": 1}, None])).to_pylist() == ['{"a":1}', None]
