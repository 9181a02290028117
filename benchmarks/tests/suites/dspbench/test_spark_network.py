"""Bytes of applications on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.spark_bytes import BatchBytes, ByteLog
from riot_bench.suites.dspbench.spark_network import network_measures

from riot_ops.dataflows import application


class FinishedLog(ByteLog):
    """The log of a query of two micro-batches."""

    def batches(self) -> list[tuple[BatchBytes, float]]:
        return [(BatchBytes(3_000_000, 2_000_000, 400, 50), 2.0), (BatchBytes(1_000_000, 2_000_000, 0, 150), 0.5)]


def test_network_figures_are_bytes_per_line_and_per_second() -> None:
    data = InputLines(application("bi"), {"trades": [Path()] * 2, "quotes": [Path()] * 2}, 100)
    found = {m.measure: m for m in network_measures("spark-network", data, FinishedLog(), "here")}
    at = "dspbench/bi/spark-network"
    per_line = {kind: found[f"{at}/{kind}"] for kind in ("shuffle-written", "shuffle-read", "to-python", "from-python")}
    assert [m.value for m in per_line.values()] == [10_000.0, 10_000.0, 1.0, 0.5]  # of 400 lines
    assert {m.unit for m in per_line.values()} == {"bytes/line"}
    rates = found[f"{at}/shuffle-rate-p50"], found[f"{at}/shuffle-rate-p95"]
    assert [m.value for m in rates] == pytest.approx([1.75, 1.975])
    assert all(m.unit == "MB/s" and m.sample == (1.5, 2.0) for m in rates)
    assert rates[0].against == "written; here, 400 lines in 2 micro-batches"
