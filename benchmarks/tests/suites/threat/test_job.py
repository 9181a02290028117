"""The job that is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from riot_bench.harness.recovery import count_lost_and_duplicated
from riot_bench.suites.threat import job as threat_job
from riot_bench.suites.threat.job import AtMostOnceBroker, Broker, open_stream


def test_broker_retains_unread_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, opened = [100.0], tmp_path / "opened"
    monkeypatch.setattr(threat_job.time, "time", lambda: now[0])
    source = Broker(open_stream(1_000), opened, rate=10.0)
    assert source.waits() and not opened.exists()
    source.latest({"message": 0})
    assert opened.exists(), "messages come from when they are asked for"
    os.utime(opened, (101.0,) * 2)
    assert source.latest({"message": 0}) == {"message": 0}
    now[0] = 103.0
    assert source.latest({"message": 0}) == {"message": 20}
    assert source.latest({"message": 5}, 3) == {"message": 8}
    assert source.latest({"message": 20}) == {"message": 20}
    again = Broker(open_stream(1_000), opened, rate=10.0)
    now[0] = 1e6
    assert again.latest({"message": 20}) == {"message": 1_000} and again.finished({"message": 1_000})


def test_at_most_once_broker_skips_delivered_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threat_job.time, "time", lambda: 110.0)
    (opened := tmp_path / "opened").touch()
    os.utime(opened, (100.0,) * 2)
    first = AtMostOnceBroker(open_stream(1_000), opened, 10.0, tmp_path / "position.json")
    assert first.initial() == {"message": 0} and first.latest({"message": 0}, 30) == {"message": 30}
    assert AtMostOnceBroker(open_stream(1_000), opened, 10.0, tmp_path / "position.json").initial() == {"message": 30}


@pytest.mark.parametrize("mode", ["replayed", "forgotten"])
def test_job_classifies_all_messages(mode: str, tmp_path: Path) -> None:
    threat_job.main(tmp_path, mode, 3_000.0, 3_000)
    (out,) = [path / "threats" for path in tmp_path.iterdir() if path.name.startswith("out")]
    assert count_lost_and_duplicated([out], 3_000) == (0, 0)
