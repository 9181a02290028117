"""Dataflows that start, pause, resume and end at random moments get exactly the reported messages. Without Spark.

The expected records follow from the reported messages alone, and from which records pass the filters.
"""

from __future__ import annotations

import random
import time

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.fake_spark import FakeSpark
from tests.reuse.spark.users import User, gated
from tests.search import seeds


class Full:
    """A user's function that fails after ``max_records`` records."""

    def __init__(self, max_records):
        self.left = max_records

    def __call__(self, stream, batch):
        self.left -= batch.num_rows
        if self.left < 0:
            raise OSError("no more room")


def run_random_actions(choose, folder, actions=12):
    """Run random actions while records arrive, and while queries are slow or fail now and then."""
    backend = FakeSpark(
        folder / "back",
        max_records=choose.choice([2, 5]),
        join=choose.random() < 0.3,
        tries=100,
        max_queue_bytes=choose.choice([4000, 1 << 20]),
    )
    manager = ReuseManager(backend)
    sources = gated(folder / "gate")
    alive, removed, sinks, full = {}, [], {}, set()
    for i in range(actions):
        some = choose.choice(list(alive.values())) if alive else None
        do = choose.choices(["submit", "pause", "resume", "remove", "defragment"], [4, 5, 5, 1, 1])[0]
        if some is None or do == "submit":
            user = User(choose, f"d{i}")
            sinks[user.name] = ro.MemorySink()
            if choose.random() < 0.15:
                full.add(user.name)
                sinks[user.name] = ro.CallbackSink(Full(choose.randint(0, 40)))
            user.switch(manager.submit(user.flow, {n: sources[n] for n in user.sources}, sinks[user.name]).first)
            alive[user.name] = user
        elif do == "remove":
            manager.remove(some.name)
            removed.append(alive.pop(some.name))
        elif do == "defragment":
            manager.defragment()
        elif some.paused == (do == "resume"):
            border = getattr(manager, do)(some.name)
            some.paused = not some.paused
            if some.name not in full:
                some.switch(border)
        (folder / "gate").touch()
        fragments = list(backend.fragments.values())
        if fragments and choose.random() < 0.7:
            choose.choice(fragments[-3:]).query.delay_s = choose.choice([0, 0.005, 0.03, 0.05])
        if fragments and choose.random() < 0.1:
            choose.choice(fragments).query.harm = ConnectorError("no disk")
        time.sleep(choose.choice([0, 0, 0.01, 0.05]))
    for fragment in backend.fragments.values():
        fragment.query.delay_s = 0
    assert manager.backend.wait("20s")
    for user in alive.values():
        if user.name not in full:
            user.check(sinks[user.name])
    for user in removed:
        if user.name not in full:
            user.check_part(sinks[user.name])
    manager.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(8))
def test_each_dataflow_gets_exactly_the_reported_messages(seed, tmp_path):
    run_random_actions(random.Random(seed), tmp_path)
