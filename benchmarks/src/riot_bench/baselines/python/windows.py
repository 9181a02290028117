"""Mean and count per device and minute in plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["plain_window_means"]


def plain_window_means(table: pa.Table) -> list[tuple[str, int, float, int]]:
    """Compute mean and count per device and minute with a dict."""
    minute = 0
    found: list[tuple[str, int, float, int]] = []
    sums: dict[str, list[Any]] = {}
    times = table.column("event_time").cast(pa.int64()).to_pylist()
    for time, device, value in zip(
        times, table.column("device").to_pylist(), table.column("value").to_pylist(), strict=True
    ):
        if time // 60_000_000 != minute:
            found += [(name, minute, total / n, n) for name, (total, n) in sums.items()]
            minute = time // 60_000_000
            sums = {}
        cell = sums.get(device)
        if cell is None:
            sums[device] = [value, 1]
        else:
            cell[0] += value
            cell[1] += 1
    return found + [(name, minute, total / n, n) for name, (total, n) in sums.items()]
