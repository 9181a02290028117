"""A manager in processes that are killed at random moments: python -m tests.reuse.spark.killed_job FOLDER SEED fake|spark [RUN].

Each action is logged to a file before it starts, and with its result; what users should get follows from that file alone.
Over queries without Spark, this program forks and kills all runs but the last; over Spark each run is a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.users import User, gated

__all__ = ["KILLS", "KilledJob", "check"]

#: How many runs are killed before the last one.
KILLS = {"fake": 5, "spark": 3}
#: Maximum pause between two actions, in seconds.
PAUSE = {"fake": 0.05, "spark": 1.0}
#: Maximum number of dataflows, beside the first.
MAX_DATAFLOWS = {"fake": 6, "spark": 3}


def user(seed: int, name: str) -> User:
    """Make the user of that name."""
    return User(random.Random(f"{seed} {name}"), name)


def smooth() -> ro.Dataflow:
    """Make the dataflow that runs from the beginning, and keeps state."""
    flow = ro.Dataflow("smooth")
    kalman = flow.source("north", schema={"value": "double"}).to(t.KalmanFilter(), id="t0")
    return flow.sink("out", kalman.to(t.MovingAverage(window=3), id="t1"))


class KilledJob:
    """Runs over one folder, where each resumes the previous one."""

    def __init__(self, folder: Path, seed: int, kind: str) -> None:
        self.folder, self.seed, self.kind = folder, seed, kind
        self.notes = folder / "notes.jsonl"

    def note(self, **fields: Any) -> None:
        with open(self.notes, "a") as file:
            file.write(json.dumps(fields) + "\n")

    def until(self, choose: random.Random, ended: Callable[[], bool]) -> None:
        """Wait for a random moment that does not depend on the speed of the machine."""
        now = self.notes.stat().st_size if self.notes.exists() else 0
        more, limit = now + choose.randint(10, 600), time.monotonic() + 60
        while (
            not ended() and time.monotonic() < limit and (not self.notes.exists() or self.notes.stat().st_size < more)
        ):
            time.sleep(0.005)
        time.sleep(choose.random() * PAUSE[self.kind] / 2)

    def bound(self, name: str, flow: ro.Dataflow) -> tuple[Any, Any]:
        sources = gated(self.folder / "gate")
        return {node.id: sources[node.id] for node in flow.nodes_of_kind("source")}, ro.ParquetSink(
            self.folder / "out" / name
        )

    def backend(self) -> Any:
        choose = random.Random(self.seed)
        options: dict[str, Any] = {"max_records": 4 if self.kind == "fake" else 10, "join": choose.random() < 0.5}
        if self.kind == "spark":
            from riot_ops.reuse import SparkBackend
            from riot_ops.spark import session

            options["tries"] = 20  # on a busy machine Spark gives up workers that start late
            return SparkBackend(session(cores=2, memory="1g"), self.folder / "back", trigger="0 seconds", **options)
        from tests.reuse.spark.fake_spark import FakeSpark

        return FakeSpark(self.folder / "back", **options)

    def run(self, number: int, last: bool = False) -> None:
        """Submit, pause, resume and remove dataflows, until the end or until the process is killed."""
        choose = random.Random(f"{self.seed} {number}")
        backend = self.backend()
        manager = ReuseManager(backend, log=self.folder / "log", rebind=self.bound)
        found = manager.stats()["dataflows"]
        self.note(opened=number, names=manager.names, paused=[name for name in found if found[name]["paused"]])
        if "smooth" not in manager.names:
            flow = smooth()
            manager.submit(flow, *self.bound("smooth", flow))
        for n in range(4 if last else 10_000):
            self.act(choose, manager, f"d{number}-{n}")
            (self.folder / "gate").touch()
            if self.kind == "fake":
                fragment = choose.choice([*backend.fragments.values()])
                fragment.query.delay_s = choose.choice([0, 0.005, 0.03])
            time.sleep(choose.random() * PAUSE[self.kind])
        if self.kind == "fake":
            for fragment in backend.fragments.values():
                fragment.query.delay_s = 0
        assert backend.wait("100s")
        self.note(failed=manager.stats()["failed"])
        manager.close()

    def act(self, choose: random.Random, manager: ReuseManager, name: str) -> None:
        """Do one action of a user, and log it with its result."""
        found = manager.stats()["dataflows"]
        others = [one for one in manager.names if one != "smooth"]
        do = choose.choices(["submit", "pause", "resume", "remove", "defragment"], [5, 4, 4, 2, 1])[0]
        if len(others) >= MAX_DATAFLOWS[self.kind]:
            do = "remove"
        if do == "submit" or not others:
            self.note(action="submit", name=name)
            flow = user(self.seed, name).flow
            self.note(result=manager.submit(flow, *self.bound(name, flow)).first)
            return
        name = choose.choice(others)
        if do == "defragment":
            manager.defragment()
        elif do == "remove" or found[name]["paused"] == (do == "resume"):
            self.note(action=do, name=name)
            border = getattr(manager, do)(name)
            self.note(result=None if do == "remove" else border)


def check(folder: Path, seed: int) -> None:
    """Check that all users have what follows from the results of their actions, whenever processes were killed."""
    alive: dict[str, User] = {}
    gone: list[User] = []
    #: Users with an action in progress at a kill: which messages they see is not known.
    unknown: set[str] = set()
    pending: tuple[str, str] | None = None

    def done(do: str, name: str, border: dict[str, int] | None) -> None:
        if do == "remove":
            gone.append(alive.pop(name))
            return
        one = alive.setdefault(name, user(seed, name))
        one.paused = do == "pause"
        if border is not None and name not in unknown:
            one.switch(border)

    for line in (folder / "notes.jsonl").read_text().splitlines():
        note = json.loads(line)
        if "action" in note:
            pending = note["action"], note["name"]
        elif "result" in note:
            assert pending is not None
            done(*pending, note["result"])
            pending = None
        elif "opened" in note:
            names, paused = {*note["names"]} - {"smooth"}, {*note["paused"]}
            if pending is not None:
                do, name = pending
                unknown.add(name)
                happened = {"submit": name in names, "remove": name not in names, "pause": name in paused}
                if happened.get(do, name not in paused):
                    done(do, name, None)
                pending = None
            assert names == {*alive}, "a dataflow was lost, or reappeared"
            assert paused == {name for name, one in alive.items() if one.paused}
        else:
            assert note == {"failed": {}}
    assert note == {"failed": {}}, "the last run did not end"
    for name, one in alive.items():
        sink = ro.ParquetSink(folder / "out" / name)
        one.check_part(sink, all_of=False) if name in unknown else one.check(sink)
    for one in gone:
        one.check_part(ro.ParquetSink(folder / "out" / one.name), all_of=one.name not in unknown)
    alone = smooth().run(gated(folder / "gate")["north"])["t1"].to_pylist()
    together = ro.ParquetSink(folder / "out" / "smooth").table("t1").to_pylist()
    assert sorted((row["seq"], row["value"]) for row in together) == [(row["seq"], row["value"]) for row in alone]


def _run_and_kill(job: KilledJob, number: int, choose: random.Random) -> None:
    """Run in a process of its own, and kill it."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            job.run(number)
        os._exit(1)
    job.until(choose, lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the process failed on its own"


if __name__ == "__main__":
    folder, seed, queries, *which = sys.argv[1:]
    job = KilledJob(Path(folder), int(seed), queries)
    if which:
        job.run(int(which[0]), last=int(which[0]) == KILLS[queries])
    else:
        choose = random.Random(seed)
        smooth().run(gated(Path(__file__))["north"])  # imports the modules that the runs need
        for number in range(KILLS[queries]):
            _run_and_kill(job, number, choose)
        job.run(KILLS[queries], last=True)
