"""A driver that is killed at random moments, while dataflows come, pause and go: nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys

import pytest

import riot_ops as ro
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark.backend import FragmentsBackend
from riot_ops.reuse.spark.carrier import Carrier
from tests.reuse import lives
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import ROWS, dataflow, until, values
from tests.search import seeds

ALL = [float(i) for i in range(200)]


@contextlib.contextmanager
def running(*given):
    """A process of lives; nothing of it is left where a test fails."""
    command = [sys.executable, "-m", "tests.reuse.lives", *map(str, given)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.parametrize("seed", seeds(4))
def test_whenever_it_is_killed_each_gets_what_it_was_told(seed, tmp_path):
    with running(tmp_path, seed, "fake") as process:
        assert process.wait(100) == 0
    lives.check(tmp_path, seed)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_the_driver_of_spark_is_killed(seed, tmp_path):  # P15
    choose = random.Random(seed)
    for life in range(lives.LIVES["spark"]):
        with running(tmp_path, seed, "spark", life) as process:
            lives.Lives(tmp_path, seed, "spark").until(choose, lambda: process.poll() is not None)
            process.kill()
            if choose.random() < 0.5:  # or the JVM finds out by itself
                os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, "it failed by itself"
    with running(tmp_path, seed, "spark", lives.LIVES["spark"]) as process:
        assert process.wait(200) == 0
    lives.check(tmp_path, seed)


class Killed(BaseException):
    """Nobody catches it to tidy up."""


@pytest.mark.parametrize(
    ("what", "where", "do"),
    [
        (Carrier, "switch", lambda manager: manager.defragment()),
        (FragmentsBackend, "reduce", lambda manager: manager.remove("bob")),
        (FragmentsBackend, "rest", lambda manager: manager.pause("bob")),
        (FragmentsBackend, "rest", lambda manager: manager.resume("bob")),
    ],
    ids=["defragment", "remove", "pause", "resume"],
)
@pytest.mark.parametrize("after", [False, True])
def test_killed_in_the_middle_of_an_action(tmp_path, monkeypatch, request, what, where, do, after):
    """Nobody was told how it ended; but it has ended one way or the other, and the others have all."""
    asked = request.node.callspec.id.rpartition("-")[2]
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    def open():
        backend = FakeSpark(tmp_path / "back", max_records=5, join=False)
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks[name]))

    def killed(self, *given):
        if after:
            done(self, *given)
        raise Killed

    manager = open()
    manager.submit(dataflow("ada", (0, 300)), source, sinks["ada"])
    manager.backend._fragments["f0"].query.delay_s = 0.02  # so that there is something left
    (tmp_path / "gate").touch()
    until(lambda: values(sinks["ada"], "t0"))
    first = manager.submit(dataflow("bob", (0, 300), (0, 300)), source, sinks["bob"]).first["in"]
    rests = manager.pause("bob")["in"] if asked == "resume" else None
    done = getattr(what, where)
    with monkeypatch.context() as patch:
        patch.setattr(what, where, killed)
        with pytest.raises(Killed):
            do(manager)
        manager.backend.kill()
        manager._journal.close()
    for _ in range(2):
        manager = open()
        assert manager.names == (["ada"] if asked == "remove" else ["ada", "bob"])
        assert manager.backend.wait(20)
        assert values(sinks["ada"], "t0") == ALL
        got = values(sinks["bob"], "t1")
        if asked == "defragment":
            assert got == ALL[first:]
        elif asked == "resume":
            back = next((int(v) for v in got if v >= rests), len(ALL))  # or it had all been read by then
            assert got == ALL[first:rests] + ALL[back:] and not paused(manager)
        else:
            assert got == ALL[first : first + len(got)]
            assert asked == "remove" or paused(manager)
        manager.close()


def paused(manager):
    return manager.stats()["dataflows"]["bob"]["paused"]
