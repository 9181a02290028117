"""Runs of a whole application in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.input_lines import write_input_lines
from riot_bench.suites.dspbench import application_runs

from riot_ops.dataflow import Dataflow
from riot_ops.dataflows import application


def test_fastest_configuration_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_input_lines(application("wc"), tmp_path, 400, 400)
    asked: list[tuple[int, int]] = []
    seconds = iter([4.0, 2.0, 3.0, 2.5, 1.0, 5.0])

    def run(self: Dataflow, sources: Any, *, sinks: Any, cores: int, batch_size: int) -> None:
        asked.append((cores, batch_size))

    def timed(function: Any, repetitions: int, warm: int) -> float:
        function()
        return next(seconds)

    monkeypatch.setattr(Dataflow, "run", run)
    monkeypatch.setattr(application_runs, "median_seconds", timed)
    monkeypatch.setattr(application_runs, "available_cores", lambda: 2)
    found = list(application_runs.configuration_measures(data))
    assert asked == [(cores, size) for cores in (1, 2) for size in (1024, 8192, 65_536)]
    assert found[-1].measure == "dspbench/wc/best-configuration"
    assert (found[-1].value, found[-1].against.partition(",")[0]) == (400.0, "2-cores/8192")
    assert [m.measure for m in found[:2]] == [f"dspbench/wc/configuration/1-cores/{size}" for size in (1024, 8192)]
