"""The suite micro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.tests.outcomes import FIGURES, lines


def test_micro_measures(tmp_path: Path) -> None:
    found = {m["measure"]: m for m in lines("micro", "--task", "XML", "--out", str(tmp_path))}
    assert set(found) == {f"micro/XML/{name}" for name in FIGURES}
    assert found["micro/XML/peak"]["value"] > 310 / 10
    assert "paper, on another machine: 310" in found["micro/XML/peak"]["against"]
    assert found["micro/XML/latency-p25"]["value"] <= found["micro/XML/latency-p75"]["value"]
    assert found["micro/XML/memory"]["value"] > 20
    assert found["micro/XML/memory"]["against"].startswith("median, of a process that runs nothing else; in process")
    assert 0 < found["micro/XML/task-latency"]["value"] < 1e6
    assert (tmp_path / "index.html").exists()


@pytest.mark.slow  # another seven seconds of measurement
def test_task_that_emits_by_time_has_no_latency(tmp_path: Path) -> None:
    found = {m["measure"]: m for m in lines("micro", "--task", "KAL", "--task", "BLT", "--out", str(tmp_path))}
    assert set(found) == {f"micro/{code}/{name}" for code in ("KAL", "BLT") for name in FIGURES}
    assert found["micro/BLT/latency-p50"]["value"] is None
    assert found["micro/BLT/task-latency"]["value"] is None


@pytest.mark.spark
@pytest.mark.slow
def test_micro_on_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # it is the session of all tests
    found = {m["measure"]: m for m in lines("micro", "--task", "KAL", "--runner", "spark", "--out", str(tmp_path))}
    assert found["micro/KAL/peak"]["value"] > 0
    assert "Spark" in found["micro/KAL/peak"]["against"]
