"""The sink that discards its records."""

from __future__ import annotations

from pathlib import Path

from riot_bench.harness.data import LineFiles
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.workload import tumbling_stats

from benchmarks.tests.city_files import FILES, MESSAGES


def test_discard_sink_accepts_every_record(city: Path) -> None:
    summary = tumbling_stats().run(LineFiles(city, MESSAGES // FILES), sinks=DiscardSink()).summary
    assert summary.messages == MESSAGES
    assert summary.rows["dac"] == 5 * MESSAGES
