"""The loss of a driver."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.suites.streambench import driver_loss

from riot_ops.core.errors import RiotError


class Ended:
    """A process that ended on its own after a number of micro-batches."""

    returncode = 3

    def __init__(self, out: Path, batches: int) -> None:
        self.left = [out / "records" / f"part-{n:06d}-00000.parquet" for n in range(batches)]

    def poll(self) -> int:
        for path in self.left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return self.returncode

    def wait(self, _: float) -> int:
        return self.returncode


def test_missing_driver_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, killed = write_numbered("searches", tmp_path / "lines", 11, 4), list[Any]()
    monkeypatch.setattr(driver_loss, "kill_group", killed.append)
    for batches, message in (
        (5, "identity ended with exit code 3 before its driver was to be killed"),
        (11, "identity was done before its driver was killed: .*--scale 10"),
        (6, "identity, restarted, ended with exit code 3"),
    ):
        process = Ended(tmp_path / str(batches) / "out", batches)
        if batches > 5:
            process.poll()
        monkeypatch.setattr(driver_loss, "module_process", lambda *_, one=process: contextlib.nullcontext(one))
        with pytest.raises(RiotError, match=message):
            driver_loss.run_with_lost_driver("identity", data, tmp_path / str(batches), 1.0)
    assert len(killed) == 2

    def endless(limit_s: float) -> int:
        raise subprocess.TimeoutExpired("a driver", limit_s)

    process.wait = endless  # type: ignore[method-assign]
    with pytest.raises(RiotError, match="identity, restarted, was not done in 2 s"):
        driver_loss.run_with_lost_driver("identity", data, tmp_path / "6", 2.0)
