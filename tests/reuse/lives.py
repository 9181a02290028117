"""A manager in a process that is killed at random moments: python -m tests.reuse.lives FOLDER SEED fake|spark [LIFE].

What its users are told is noted in a file before and after, and so what they should have got is known from that alone.
Over queries without Spark, all lives but the last are forked and killed here; over Spark each is a process of its own.
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
from tests.reuse.named import User, gated

__all__ = ["LIVES", "Lives", "check"]

#: How many are killed, before the last one.
LIVES = {"fake": 5, "spark": 3}
#: How long one rests between two actions at most, in seconds.
REST = {"fake": 0.05, "spark": 1.0}
#: How many dataflows there are at most, beside the first.
MOST = {"fake": 6, "spark": 3}


def user(seed: int, name: str) -> User:
    """The one of that name."""
    return User(random.Random(f"{seed} {name}"), name)


def smooth() -> ro.Dataflow:
    """One that is there from the beginning, and keeps state."""
    flow = ro.Dataflow("smooth")
    kalman = flow.source("north", schema={"value": "double"}).to(t.KalmanFilter(), id="t0")
    return flow.sink("out", kalman.to(t.MovingAverage(window=3), id="t1"))


class Lives:
    """The folder in which one goes on with what another had."""

    def __init__(self, folder: Path, seed: int, kind: str) -> None:
        self.folder, self.seed, self.kind = folder, seed, kind
        self.notes = folder / "told.jsonl"

    def note(self, **what: Any) -> None:
        with open(self.notes, "a") as file:
            file.write(json.dumps(what) + "\n")

    def until(self, choose: random.Random, ended: Callable[[], bool]) -> None:
        """Wait for a random moment, which does not depend on how fast the machine is."""
        now = self.notes.stat().st_size if self.notes.exists() else 0
        more, limit = now + choose.randint(10, 600), time.monotonic() + 60
        while (
            not ended() and time.monotonic() < limit and (not self.notes.exists() or self.notes.stat().st_size < more)
        ):
            time.sleep(0.005)
        time.sleep(choose.random() * REST[self.kind] / 2)

    def bound(self, name: str, flow: ro.Dataflow) -> tuple[Any, Any]:
        sources = gated(self.folder / "gate")
        return {node.id: sources[node.id] for node in flow.kind("source")}, ro.ParquetSink(self.folder / "out" / name)

    def backend(self) -> Any:
        choose = random.Random(self.seed)
        options: dict[str, Any] = {"max_records": 4 if self.kind == "fake" else 10, "join": choose.random() < 0.5}
        if self.kind == "spark":
            from riot_ops.reuse import SparkBackend
            from riot_ops.spark import session

            options["tries"] = 20  # on a busy machine Spark gives up workers that begin late
            return SparkBackend(session(cores=2, memory="1g"), self.folder / "back", trigger="0 seconds", **options)
        from tests.reuse.queries import FakeSpark

        return FakeSpark(self.folder / "back", **options)

    def live(self, life: int, last: bool = False) -> None:
        """Let dataflows come, pause, resume and go; until the end, or until somebody kills it."""
        choose = random.Random(f"{self.seed} {life}")
        backend = self.backend()
        manager = ReuseManager(backend, log=self.folder / "log", rebind=self.bound)
        found = manager.stats()["dataflows"]
        self.note(opened=life, names=manager.names, paused=[name for name in found if found[name]["paused"]])
        if "smooth" not in manager.names:
            flow = smooth()
            manager.submit(flow, *self.bound("smooth", flow))
        for n in range(4 if last else 10_000):
            self.act(choose, manager, f"d{life}-{n}")
            (self.folder / "gate").touch()
            if self.kind == "fake":
                fragment = choose.choice([*backend._fragments.values()])
                fragment.query.delay_s = choose.choice([0, 0.005, 0.03])
            time.sleep(choose.random() * REST[self.kind])
        if self.kind == "fake":
            for fragment in backend._fragments.values():
                fragment.query.delay_s = 0
        assert backend.wait(100)
        self.note(failed=manager.stats()["failed"])
        manager.close()

    def act(self, choose: random.Random, manager: ReuseManager, name: str) -> None:
        """One thing that a user asks, with what it is told."""
        found = manager.stats()["dataflows"]
        others = [one for one in manager.names if one != "smooth"]
        do = choose.choices(["submit", "pause", "resume", "remove", "defragment"], [5, 4, 4, 2, 1])[0]
        if len(others) >= MOST[self.kind]:
            do = "remove"
        if do == "submit" or not others:
            self.note(ask="submit", name=name)
            flow = user(self.seed, name).flow
            self.note(told=manager.submit(flow, *self.bound(name, flow)).first)
            return
        name = choose.choice(others)
        if do == "defragment":
            manager.defragment()
        elif do == "remove" or found[name]["paused"] == (do == "resume"):
            self.note(ask=do, name=name)
            border = getattr(manager, do)(name)
            self.note(told=None if do == "remove" else border)


def check(folder: Path, seed: int) -> None:
    """What all users have got is what they were told, whatever was under way when a process was killed."""
    alive: dict[str, User] = {}
    gone: list[User] = []
    #: Of those for whom something was under way, nobody knows which messages they see.
    unknown: set[str] = set()
    asked: tuple[str, str] | None = None

    def done(do: str, name: str, border: dict[str, int] | None) -> None:
        if do == "remove":
            gone.append(alive.pop(name))
            return
        one = alive.setdefault(name, user(seed, name))
        one.paused = do == "pause"
        if border is not None and name not in unknown:
            one.turned(border)

    for line in (folder / "told.jsonl").read_text().splitlines():
        note = json.loads(line)
        if "ask" in note:
            asked = note["ask"], note["name"]
        elif "told" in note:
            assert asked is not None
            done(*asked, note["told"])
            asked = None
        elif "opened" in note:
            names, paused = {*note["names"]} - {"smooth"}, {*note["paused"]}
            if asked is not None:
                do, name = asked
                unknown.add(name)
                happened = {"submit": name in names, "remove": name not in names, "pause": name in paused}
                if happened.get(do, name not in paused):
                    done(do, name, None)
                asked = None
            assert names == {*alive}, "some are lost, or came back"
            assert paused == {name for name, one in alive.items() if one.paused}
        else:
            assert note == {"failed": {}}
    assert note == {"failed": {}}, "it did not come to its end"
    for name, one in alive.items():
        sink = ro.ParquetSink(folder / "out" / name)
        one.check_part(sink, all_of=False) if name in unknown else one.check(sink)
    for one in gone:
        one.check_part(ro.ParquetSink(folder / "out" / one.name), all_of=one.name not in unknown)
    alone = smooth().run(gated(folder / "gate")["north"])["t1"].to_pylist()
    together = ro.ParquetSink(folder / "out" / "smooth").table("t1").to_pylist()
    assert sorted((row["seq"], row["value"]) for row in together) == [(row["seq"], row["value"]) for row in alone]


def _killed(lives: Lives, life: int, choose: random.Random) -> None:
    """A life that ends at once."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            lives.live(life)
        os._exit(1)
    lives.until(choose, lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it failed by itself"


if __name__ == "__main__":
    where, number, queries, *which = sys.argv[1:]
    lives = Lives(Path(where), int(number), queries)
    if which:
        lives.live(int(which[0]), last=int(which[0]) == LIVES[queries])
    else:
        choose = random.Random(number)
        smooth().run(gated(Path(__file__))["north"])  # which loads what the lives need
        for life in range(LIVES[queries]):
            _killed(lives, life, choose)
        lives.live(LIVES[queries], last=True)
