"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.data import LineFiles, write_city
from riot_bench.harness.numbered_lines import NumberedLines, write_numbered
from riot_bench.harness.workload import tumbling_stats

from benchmarks.tests.city_files import FILES, MESSAGES, SENSORS, by_record


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_city(tmp_path_factory.mktemp("bench") / "city", MESSAGES, FILES, SENSORS)


@pytest.fixture(scope="module")
def expected(city: Path) -> dict[str, Any]:
    """What riot_ops gives, sorted."""
    flow = tumbling_stats()
    flow.ordinals = True
    result = flow.run(LineFiles(city, MESSAGES // FILES))
    assert result.summary.errors == 0
    return {kind: by_record(result[kind]) for kind in ("avg", "slr", "dac")}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NumberedLines]:
    base = tmp_path_factory.mktemp("numbered")
    return {stream: write_numbered(stream, base / stream, 3, 400) for stream in ("searches", "packets")}
