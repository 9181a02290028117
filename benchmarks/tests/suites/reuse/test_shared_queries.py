"""Dataflows of the reuse suite in queries without Spark."""

from __future__ import annotations

from riot_bench.suites.reuse.workloads import riot21, riot_source

import riot_ops as ro
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.fake_spark import FakeSpark, Gated


def test_seven_dataflows_over_one_stream_run_in_three_queries(tmp_path):
    manager = ReuseManager(FakeSpark(tmp_path / "back", join=True, fuse="coarse"))
    source = Gated(riot_source("city", 100), tmp_path / "gate")
    for flow in riot21()[:7]:
        manager.submit(flow, source, ro.MemorySink())
    stats = manager.stats()
    assert stats["fragments"] == 3 and stats["steps_alone"] == 64 and stats["steps"] == 35
    manager.close()
