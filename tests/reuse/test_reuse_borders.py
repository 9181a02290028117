"""Whoever comes, pauses, resumes or goes, at whatever moment: each gets the messages that were named, once. Without Spark.

What is expected follows from the named messages alone, and from which records pass the filters.
"""

from __future__ import annotations

import random
import time

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import ReuseManager
from tests.reuse.named import User, gated
from tests.reuse.queries import FakeSpark
from tests.search import seeds


class Full:
    """A user's function that takes so many records, and then fails."""

    def __init__(self, most):
        self.left = most

    def __call__(self, stream, batch):
        self.left -= batch.num_rows
        if self.left < 0:
            raise OSError("no more room")


def live(choose, folder, actions=12):
    """Dataflows come, pause, resume and go while records come, and queries are slow or fail now and then."""
    backend = FakeSpark(
        folder / "back",
        max_records=choose.choice([2, 5]),
        join=choose.random() < 0.3,
        tries=100,
        queue_bytes=choose.choice([4000, 1 << 20]),
    )
    manager = ReuseManager(backend)
    sources = gated(folder / "gate")
    alive, gone, sinks, full = {}, [], {}, set()
    for i in range(actions):
        some = choose.choice(list(alive.values())) if alive else None
        do = choose.choices(["submit", "pause", "resume", "remove", "defragment"], [4, 5, 5, 1, 1])[0]
        if some is None or do == "submit":
            user = User(choose, f"d{i}")
            sinks[user.name] = ro.MemorySink()
            if choose.random() < 0.15:
                full.add(user.name)
                sinks[user.name] = ro.CallbackSink(Full(choose.randint(0, 40)))
            user.turned(manager.submit(user.flow, {n: sources[n] for n in user.sources}, sinks[user.name]).first)
            alive[user.name] = user
        elif do == "remove":
            manager.remove(some.name)
            gone.append(alive.pop(some.name))
        elif do == "defragment":
            manager.defragment()
        elif some.paused == (do == "resume"):
            border = getattr(manager, do)(some.name)
            some.paused = not some.paused
            if some.name not in full:
                some.turned(border)
        (folder / "gate").touch()
        fragments = list(backend._fragments.values())
        if fragments and choose.random() < 0.7:
            choose.choice(fragments[-3:]).query.delay_s = choose.choice([0, 0.005, 0.03, 0.05])
        if fragments and choose.random() < 0.1:
            choose.choice(fragments).query.harm = ConnectorError("no disk")
        time.sleep(choose.choice([0, 0, 0.01, 0.05]))
    for fragment in backend._fragments.values():
        fragment.query.delay_s = 0
    assert manager.backend.wait(20)
    for user in alive.values():
        if user.name not in full:
            user.check(sinks[user.name])
    for user in gone:
        if user.name not in full:
            user.check_part(sinks[user.name])
    manager.close()


@pytest.mark.parametrize("seed", seeds(8))
def test_each_gets_the_messages_that_were_named(seed, tmp_path):
    live(random.Random(seed), tmp_path)
