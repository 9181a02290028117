"""Whoever comes, pauses, resumes or goes, at whatever moment: each gets the messages that were named, once. Without Spark.

What is expected follows from the named messages alone, and from which records pass the filters.
"""

from __future__ import annotations

import random
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import ReuseManager
from tests.reuse.queries import FakeSpark, Gated
from tests.search import seeds

N = 400
SCHEMA = {"value": "double"}
#: By source, its records: no value is there twice.
VALUES = {"north": [float(i) for i in range(N)], "south": [1000.0 + i for i in range(N)]}
BOUNDS = [(0, 1e6), (20, 1e6), (0, 1200), (0, 1e9)]


class Full:
    """A user's function that takes so many records, and then fails."""

    def __init__(self, most):
        self.most, self.got = most, []

    def __call__(self, stream, batch):
        if len(self.got) + batch.num_rows > self.most:
            raise OSError("no more room")
        self.got += batch["value"].to_pylist()


class User:
    """A dataflow of filters, and what it should get."""

    def __init__(self, choose, name):
        self.name = name
        self.sources = choose.choice([["north"], ["north"], ["south"], ["north", "south"]])
        self.bounds = [choose.choice(BOUNDS) for _ in range(choose.randint(1, 3))]
        self.flow = ro.Dataflow(name)
        streams = [self.flow.source(source, schema=SCHEMA) for source in self.sources]
        stream = streams[0] if len(streams) == 1 else ro.merge(*streams)
        ends = []
        for place, (low, high) in enumerate(self.bounds):
            stream = stream.to(t.RangeFilter(bounds={"value": (low, high)}, by=None), id=f"t{place}")
            ends.append(stream)
        self.both = len(ends) > 1 and choose.random() < 0.6  # of which topics may be behind one another
        self.flow.sink("out", *(ends if self.both else ends[-1:]))
        self.full = Full(choose.randint(0, 40)) if choose.random() < 0.15 else None
        self.sink = ro.MemorySink() if self.full is None else ro.CallbackSink(self.full)
        self.paused = False
        #: By source, the messages from which on it sees all, or nothing, in turn.
        self.borders = {}

    def turned(self, border):
        """It sees nothing any more, or all again, from these messages on."""
        for source, message in border.items():
            assert message >= self.borders[source][-1], "it goes back"
            self.borders[source].append(message)

    def sees(self, source, message):
        return sum(border <= message for border in self.borders[source]) % 2 == 1

    def expected(self, place):
        found = {v for s in self.sources for i, v in enumerate(VALUES[s]) if self.sees(s, i)}
        return sorted(v for v in found if all(low <= v <= high for low, high in self.bounds[: place + 1]))

    def got(self, place):
        table = self.sink.table(f"t{place}")
        return sorted(table["value"].to_pylist()) if table.num_columns else []

    def check(self):
        if self.full is None:
            for place in range(len(self.bounds)) if self.both else [len(self.bounds) - 1]:
                assert self.got(place) == self.expected(place), (self.name, place, self.sources, self.borders)


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
    sources = {
        name: Gated(ro.MemorySource([{"value": v} for v in values]), folder / "gate") for name, values in VALUES.items()
    }
    alive, users = {}, []
    for i in range(actions):
        some = choose.choice(list(alive.values())) if alive else None
        do = choose.choices(["submit", "pause", "resume", "remove", "defragment"], [4, 5, 5, 1, 1])[0]
        if some is None or do == "submit":
            user = User(choose, f"d{i}")
            users.append(user)
            first = manager.submit(user.flow, {name: sources[name] for name in user.sources}, user.sink).first
            user.borders = {source: [message] for source, message in first.items()}
            alive[user.name] = user
        elif do == "remove":
            manager.remove(some.name)
            del alive[some.name]
        elif do == "defragment":
            manager.defragment()
        elif some.paused == (do == "resume"):
            border = getattr(manager, do)(some.name)
            assert set(border) == {*some.sources} or some.full is not None
            some.paused = not some.paused
            if some.full is None:
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
    for user in users:
        if user.name in alive:
            user.check()
        elif user.full is None:
            got = user.got(len(user.bounds) - 1)
            assert len(got) == len({*got}) and {*got} <= {*user.expected(len(user.bounds) - 1)}
    manager.close()


@pytest.mark.parametrize("seed", seeds(8))
def test_each_gets_the_messages_that_were_named(seed, tmp_path):
    live(random.Random(seed), tmp_path)
