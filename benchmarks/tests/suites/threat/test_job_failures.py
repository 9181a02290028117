"""Failures of a job."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.recovery import CommitHistory
from riot_bench.suites import registry
from riot_bench.suites.threat import job as threat_job
from riot_bench.suites.threat import job_failures

from benchmarks.tests.harness.test_recovery import steady
from riot_ops.core.errors import RiotError


def test_published_loss_belongs_to_a_lost_worker() -> None:
    run = steady()
    for where, published in (("spark", 0.0), ("spark-executor", None), ("spark-driver", None), ("local", None)):
        given = (where, run, (0.0, 10.0, 10.5), (1, 0, 50), job_failures.FULL, "how")
        found = {one.measure: one for one in job_failures.failure_measures(*given)}
        loss = found[f"threat/failure/{where}/loss"]
        assert (loss.value, loss.published) == (2.0, published)
        steps = [float(name.rpartition("/")[2]) for name in found if "/analysed/" in name]
        assert steps == [float(n) for n in range(20)], "each second, in the full form as well"


def test_lost_messages_are_reported_in_seconds_too() -> None:
    found = {
        one.measure.rpartition("/")[2]: one
        for one in job_failures._at_most_once_measures((50, 0, 1000), 100.0, "killed")
    }
    assert {name: one.value for name, one in found.items()} == {
        "lost": 50, "lost-seconds": 0.5, "loss": 5.0, "doubled": 0,
    }  # fmt: skip
    assert all(one.published is None and "written every 0.5 s" in one.against for one in found.values())
    assert (found["lost"].reach, found["lost-seconds"].reach, found["lost-seconds"].at_most) == (None, 1.0, True)
    assert found["lost-seconds"].met
    late = [one for one in job_failures._at_most_once_measures((150, 0, 1000), 100.0, "") if one.met is False]
    assert [one.measure for one in late] == ["threat/at-most-once/lost-seconds"]
    assert found["loss"].against.startswith("share of the messages of 10 s; killed; ")
    assert "22.2 %" in registry.find_experiments("threat")[-1].about


@pytest.mark.slow
def test_killed_process_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = job_failures.Sizes(26.0, 8.0, 1.0, 20_000, 0)
    monkeypatch.setattr(job_failures, "_peak_rate", lambda sizes: 4_000.0)
    exits, runs = list[int](), list[Any]()
    kill, measures = job_failures.kill_group, job_failures.failure_measures

    def kill_and_note(process: Any) -> None:
        assert process.poll() is None, "it ended by itself"
        kill(process)
        exits.append(process.wait(10))

    def note_and_measure(where: str, run: CommitHistory, times: Any, *more: Any) -> Any:
        runs.append((run, *times))
        return measures(where, run, times, *more)

    monkeypatch.setattr(job_failures, "kill_group", kill_and_note)
    monkeypatch.setattr(job_failures, "failure_measures", note_and_measure)
    found = {one.measure: one for one in job_failures.job_failure(True, sizes)}
    for name in ("lost", "doubled", "recovery"):
        assert found[f"threat/failure/local/{name}"].met, found[f"threat/failure/local/{name}"]
    assert len([name for name in found if "/analysed/" in name]) >= 15
    ((run, begun, failed, noticed),) = runs
    done = {time: count for time, count in zip(run.times, run.counts, strict=True) if time <= failed}
    assert len(done) > 4, "it committed in epochs before it was killed"
    assert 0.5 < max(done.values()) / (2_000.0 * (max(done) - begun)) < 1.1, "what it had committed was kept"
    # The waiting messages may come in one commit, at no lower rate over the outage than before, so the time without a
    # commit is what shows it.
    resumed = min(time for time in run.times if time > noticed)
    assert resumed - max(done) > 2 * threat_job.EPOCH_S
    found = {one.measure: one for one in job_failures.at_most_once(True, sizes)}
    assert found["threat/at-most-once/lost"].value > 0
    assert found["threat/at-most-once/lost-seconds"].met and found["threat/at-most-once/doubled"].met
    assert exits == [-signal.SIGKILL] * 2


def test_failed_process_start_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job_failures, "_peak_rate", lambda sizes: 4_000.0)
    sizes = job_failures.Sizes(10.0, 4.0, 1.0, 0, 0)
    with pytest.raises(RiotError, match="before it was to be killed"):
        list(job_failures.run_killed_job(tmp_path / "no" / "folder", "forgotten", 100.0, sizes))


class Waiting:
    """A process that never ends."""

    def poll(self) -> None:
        pass

    def wait(self, limit_s: float) -> int:
        raise subprocess.TimeoutExpired("threat_job", limit_s)


def test_process_without_start_or_end_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = list[Any]()
    monkeypatch.setattr(job_failures, "module_process", lambda *_: contextlib.nullcontext(Waiting()))
    monkeypatch.setattr(job_failures, "kill_group", killed.append)
    monkeypatch.setattr(job_failures, "START_S", 0.1)
    sizes = job_failures.Sizes(0.2, 0.1, 1.0, 0, 0)
    with pytest.raises(RiotError, match=r"threat detection did not begin within 0\.1 s"):
        list(job_failures.run_killed_job(tmp_path, "replayed", 100.0, sizes))
    assert killed == []
    (tmp_path / threat_job.OPENED).touch()
    with pytest.raises(RiotError, match=r"threat detection, restarted, was not done in 0\.3 s"):
        list(job_failures.run_killed_job(tmp_path, "replayed", 100.0, sizes))
    assert len(killed) == 1
