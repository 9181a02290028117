"""Windows in plain Python."""

from __future__ import annotations

import pytest
from riot_bench.baselines.python.windows import plain_window_means
from riot_bench.suites import windows


def test_plain_python_windows_equal_the_operator() -> None:
    table = windows.readings(150_000)
    ours = windows.window_flow(windows.WINDOWS["tumbling"][0]).run(table)["window"].to_pandas()
    minutes = ours.window_start.astype("int64") // 60_000_000
    found = {(d, m): (mean, n) for d, m, mean, n in zip(ours.device, minutes, ours["mean"], ours.n, strict=True)}
    theirs = plain_window_means(table)
    assert len(theirs) == len(found) == 3000
    for device, minute, mean, n in theirs:
        assert found[device, minute] == (pytest.approx(mean, rel=1e-12), n)
