"""What happens to queries and sinks of shared dataflows: pauses, failures, those that do not keep up. Without Spark."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.request import Request
from riot_ops.reuse.spark.bringing import switch
from tests.reuse.queries import FakeSpark, Gated

ROWS = [{"value": float(i)} for i in range(200)]


def dataflow(name, *bounds):
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema={"value": "double"})
    for place, (low, high) in enumerate(bounds):
        stream = stream.to(t.RangeFilter(bounds={"value": (low, high)}, by=None), id=f"t{place}")
    return flow.sink("out", stream)


@pytest.fixture
def opened(tmp_path):
    made = []

    def open(**options):
        backend = FakeSpark(tmp_path / "back", **{"max_records": 10, **options})
        made.append(ReuseManager(backend))
        return made[-1], Gated(ro.MemorySource(ROWS), tmp_path / "gate"), (tmp_path / "gate").touch

    yield open
    for manager in made:
        manager.close()


def until(what, seconds=10.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


def values(sink, stream):
    table = sink.table(stream)
    return table["value"].to_pylist() if table.num_columns else []


def test_who_pauses_gets_nothing_and_others_all(opened):
    manager, source, go = opened()
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 150)), source, ada)
    manager.submit(dataflow("bob", (0, 150), (0, 100)), source, bob)
    manager.pause("bob")
    behind = manager.backend._fragments["f1"]
    until(lambda: behind.topic.head().control == behind.controls.newest())
    go()
    assert manager.backend.wait(10)
    assert values(ada, "t0") == [float(i) for i in range(151)] and values(bob, "t1") == []
    assert "range_filter.3" not in manager.stats()["records"], "a step that rests took records"
    manager.resume("bob")
    assert manager.backend.wait(10) and values(bob, "t1") == [], "what came meanwhile"


def test_who_resumes_goes_on(opened):
    manager, source, go = opened()
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 150)), source, sink)
    assert manager.pause("ada") == {"in": 0}
    go()
    time.sleep(0.2)
    assert manager.stats()["records"].get("in.0", 0) == 0, "nobody wants what is read"
    assert manager.pause("ada") == {} and manager.resume("ada") == {"in": 0} and manager.resume("ada") == {}
    assert manager.backend.wait(10) and values(sink, "t0") == [float(i) for i in range(151)]


@pytest.mark.parametrize("way", ["alone", "shared", "behind", "far behind", "killed"])
def test_who_rests_for_a_while_has_all_but_what_came_between(opened, tmp_path, way):
    manager, source, go = opened(max_records=5, join=False)
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    flows = {"ada": dataflow("ada", (0, 300)), "bob": dataflow("bob", *[(0, 300)] * (2 if "behind" in way else 1))}
    for name in ("ada", "bob")[way == "alone" :]:
        manager.submit(flows[name], source, sinks[name])
    for name, fragment in manager.backend._fragments.items():  # so that there is something left when it pauses
        # far behind: what its first query has done, its second has not
        fragment.query.delay_s = 0.04 if way == "far behind" and name == "f1" else 0.01
    go()
    last = "t1" if "behind" in way else "t0"
    until(lambda: values(sinks["bob"], last))
    rests = manager.pause("bob")["in"]
    assert 0 < rests < 200
    time.sleep(0.1)
    if way == "killed":
        state = manager.state()
        manager.backend.kill()
        backend = FakeSpark(tmp_path / "back", max_records=5)
        manager = ReuseManager(backend, rebind=lambda name, flow: (source, sinks[name]))
        manager.restore(state)
    wakes = manager.resume("bob")["in"]
    assert wakes == rests if way == "alone" else wakes > rests
    assert manager.backend.wait(20)
    assert values(sinks["bob"], last) == [float(i) for i in range(200) if not rests <= i < wakes]
    if way != "alone":
        assert values(sinks["ada"], "t0") == [float(i) for i in range(200)]


def test_a_query_waits_for_sinks_that_want_it_to(opened):
    manager, source, go = opened(queue_bytes=2000)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow="block")
    go()
    until(lambda: manager.stats()["unread_bytes"]["f0"] > 2000)
    time.sleep(0.2)
    assert manager.stats()["records"]["in.0"] < 200 and manager.stats()["slow"]["ada"] > 0
    free.set()
    assert manager.backend.wait(10) and got == [float(i) for i in range(200)]
    assert not manager.stats()["slow"]


def test_a_pause_does_not_wait_for_queries_that_wait_for_its_sinks(opened):
    manager, source, go = opened(queue_bytes=3000, patience_s=8.0)
    free, got = threading.Event(), []

    def slow(stream, batch):
        free.wait(20)
        got.extend((stream, value) for value in batch["value"].to_pylist())

    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    bob = ro.Dataflow("bob")
    first = bob.source("in", schema={"value": "double"}).to(t.RangeFilter(bounds={"value": (0, 300)}, by=None), id="t0")
    more = [first.to(t.RangeFilter(bounds={"value": (0, 301 + i)}, by=None), id=f"t{1 + i}") for i in range(3)]
    bob.sink("out", first, *more)
    manager.submit(bob, source, ro.CallbackSink(slow), on_slow="block")
    above, below = (one for one in manager.backend._fragments.values())
    above.query.delay_s = 0.05
    go()
    # the one below waits for the sinks already, and is behind the one above
    until(lambda: below.topic.unread() > 3000 and above.topic.head().place.roots != below.topic.head().place.roots)
    threading.Timer(0.2, free.set).start()
    begin = time.monotonic()
    rests = manager.pause("bob")["in"]
    assert time.monotonic() - begin < 5
    until(lambda: above.topic.head().place.next["in.0"] > rests + 20)
    wakes = manager.resume("bob")["in"]
    assert manager.backend.wait(20)
    seen = [float(i) for i in [*range(rests), *range(wakes, 200)]]
    for place in range(4):
        assert [value for one, value in got if one == f"t{place}"] == seen


def test_a_sink_that_has_failed_is_not_asked_to_keep_anything(opened):
    class Bad(ro.CallbackSink):
        def sync(self, batch_id):
            raise OSError("disk gone")

    def take(stream, batch):
        raise OSError("disk gone")

    manager, source, go = opened()
    flow, good = ro.Dataflow("ada"), ro.MemorySink()
    kept = flow.source("in", schema={"value": "double"}).to(
        t.RangeFilter(bounds={"value": (0, 1000)}, by=None), id="t0"
    )
    flow.sink("bad", kept).sink("out", kept)
    manager.submit(flow, source, {"bad": Bad(take), "out": good})
    go()
    assert manager.backend.wait(10) and len(values(good, "t0")) == 200
    assert manager.stats()["failed"] == {"ada": "OSError: disk gone"}


def test_others_do_not_wait_for_sinks_that_take_nothing(opened):
    manager, source, go = opened(queue_bytes=2000, patience_s=0.6)
    free = threading.Event()
    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(lambda stream, batch: free.wait(30)), on_slow="block")
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    assert manager.backend.wait(10) and len(values(bob, "t0")) == 200
    assert "took nothing for 0.6 s" in manager.stats()["failed"]["ada"]
    manager.remove("ada")
    free.set()


@pytest.mark.parametrize(("on_slow", "told"), [("drop_oldest", "dropped"), ("detach", "failed")])
def test_who_is_too_far_behind(opened, on_slow, told):
    manager, source, go = opened(behind_bytes=3000)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow=on_slow)
    go()
    until(lambda: manager.backend._fragments["f0"].ended)
    free.set()
    assert manager.backend.wait(10)
    stats = manager.stats()
    if on_slow == "detach":
        assert "bytes behind" in stats["failed"]["ada"] and len(got) < 200
    else:
        assert stats["dropped"] == {"ada": {"in": 200 - len(got)}} and 0 < len(got) < 200 and got[-1] == 199.0


def test_a_sink_that_fails_is_nobody_elses_matter(opened):
    manager, source, go = opened()

    def full(stream, batch):
        raise OSError("disk full")

    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(full))
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    assert manager.backend.wait(10) and len(values(bob, "t0")) == 200
    assert manager.stats()["failed"] == {"ada": "OSError: disk full"} and manager.stats()["dropped"]["ada"]["in"] > 0
    manager.remove("ada")
    assert not manager.stats()["failed"]


def test_a_query_that_fails_goes_on_from_where_it_was(opened, caplog):
    manager, source, go = opened()
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    manager.backend._fragments["f0"].query.harm = ConnectorError("no disk")
    go()
    assert manager.backend.wait(10) and values(sink, "t0") == [float(i) for i in range(200)]
    assert "the query f0 of ada has failed and is started again: ConnectorError: no disk" in caplog.text


def test_a_query_that_fails_for_good(opened, caplog):
    manager, source, go = opened(tries=0)
    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    manager.backend._fragments["f0"].query.harm = ConnectorError("no disk")
    go()
    with pytest.raises(ConnectorError, match="the query f0 has failed: ConnectorError: no disk"):
        manager.backend.wait(10)
    assert manager.stats()["failed"] == {"ada": "ConnectorError: no disk"}
    assert "the query f0 of ada has failed for good" in caplog.text
    sink = ro.MemorySink()
    assert not manager.submit(dataflow("bob", (0, 300)), source, sink).reused, "who comes later has steps of his own"
    manager.remove("ada")
    assert manager.backend.wait(10) and len(values(sink, "t0")) == 200


def test_others_do_not_wait_for_a_query_that_has_failed_for_good(opened):
    manager, source, go = opened(tries=0, join=False, queue_bytes=2000)
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, ada)
    manager.submit(dataflow("bob", (0, 300), (0, 100)), source, bob)
    manager.backend._fragments["f1"].query.harm = ConnectorError("no disk")
    go()
    until(lambda: len(values(ada, "t0")) == 200)
    assert manager.stats()["failed"] == {"bob": "ConnectorError: no disk"} and values(bob, "t1") == []
    assert manager.pause("bob") == {} and manager.resume("bob") == {}, "it has failed"
    manager.remove("bob")
    assert manager.backend.wait(10)


def test_what_is_refused_changes_nothing(opened, tmp_path):
    manager, source, _ = opened()
    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    (tmp_path / "out" / "t1").mkdir(parents=True)
    (tmp_path / "out" / "t1" / "part-000000-00000.parquet").touch()
    before = manager.stats()
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        manager.submit(dataflow("bob", (0, 300), (0, 10)), source, ro.ParquetSink(tmp_path / "out"))
    assert manager.stats() == before
    assert [p.name for p in (tmp_path / "back" / "fragments").iterdir()] == ["f0"]
    assert len(list((tmp_path / "back" / "dataflows").iterdir())) == 1


def test_an_iterator_cannot_be_read_again(opened):
    manager, _, _ = opened()
    with pytest.raises(RiotError, match="the source 'in' is an iterator"):
        manager.submit(dataflow("ada"), iter(ROWS), ro.MemorySink())


def test_what_was_there_goes_if_nobody_takes_it_up(opened, tmp_path):
    manager, source, go = opened()
    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    manager.close()
    again = ReuseManager(FakeSpark(tmp_path / "back"))
    sink = ro.MemorySink()
    again.submit(dataflow("bob", (0, 300)), source, sink)
    assert [p.name for p in (tmp_path / "back" / "fragments").iterdir()] == ["f1"]
    go()
    assert again.backend.wait(10) and len(values(sink, "t0")) == 200
    again.close()


def test_too_many_queries_become_one(opened):
    manager, source, go = opened(max_queries=2)
    sinks = {}
    for place, name in enumerate(("ada", "bob", "cyd")):
        sinks[name] = ro.MemorySink()
        manager.submit(dataflow(name, (0, 300), (place, 50)), source, sinks[name])
        assert manager.stats()["fragments"] == (1, 2, 1)[place]
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait(10)
    for place, sink in enumerate(sinks.values()):
        assert values(sink, "t1") == [float(i) for i in range(place, 51)]


def test_ctrl_c_while_queries_become_one_leaves_who_has_come(opened, monkeypatch):
    manager, source, go = opened(max_queries=1)
    sinks = [ro.MemorySink(), ro.MemorySink()]
    manager.submit(dataflow("ada", (0, 300)), source, sinks[0])
    tried = []

    def interrupted(*given):
        tried.append(given)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # as the first has no effect yet

    monkeypatch.setattr(manager.backend, "_replaced", interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.submit(dataflow("bob", (0, 300), (0, 50)), source, sinks[1])
    assert len(tried) == 1 and manager.names == ["ada", "bob"]
    assert manager.backend.running() == {*manager._shared.steps}
    monkeypatch.undo()
    manager.submit(dataflow("cyd"), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 1, "it is tried again"
    go()
    assert manager.backend.wait(10) and len(values(sinks[1], "t1")) == 51


def test_no_more_queries_become_one_than_it_takes(opened, tmp_path):
    manager, source, _ = opened(max_queries=4)
    other = Gated(ro.MemorySource(ROWS[:50]), tmp_path / "gate")
    for name, read, bounds in (
        ("ada", source, ()),
        ("bob", source, ((0, 300),)),
        ("cyd", source, ((0, 200),)),
        ("dan", other, ()),
        ("eve", other, ((0, 300),)),
    ):
        manager.submit(dataflow(name, *bounds), read, ro.MemorySink())
    fragments = manager.backend._fragments
    assert len(fragments) == 3 and len(manager.stats()["interrupted_s"]) == 1
    assert {"f3", "f4"} <= {*fragments}, "those over the other source are as they were"
    manager.remove("cyd")  # its step rests
    for name in ("fay", "gil"):
        manager.submit(dataflow(name, (0, len(fragments))), other, ro.MemorySink())
    assert len(manager.stats()["interrupted_s"]) == 2 and manager.stats()["idle"] == 1, (
        "only where queries become fewer"
    )


def averages(name, *keys):
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for place, key in enumerate(keys):
        stream = stream.to(t.MovingAverage(by=key, window=2), id=f"t{place}")
    return flow.sink("out", stream)


@pytest.mark.parametrize(
    ("keys", "before", "after"),
    [(("device", ()), [1, 1], [1]), (((),), [2], [1]), (("device",), [1], [1])],
    ids=["a shuffle", "half of the stages", "nothing"],
)
@pytest.mark.parametrize("most", [1, None])
def test_what_is_for_nobody_goes_from_a_query_where_it_may(opened, tmp_path, keys, before, after, most):
    manager, _, go = opened(max_queries=most, fuse="exact")
    rows = [{"device": "ab"[i % 2], "value": float(i)} for i in range(20)]
    source = Gated(ro.MemorySource(rows), tmp_path / "gate")
    sink = ro.MemorySink()
    manager.submit(averages("ada", "device"), source, sink)
    manager.submit(averages("bob", *keys), source, ro.MemorySink())
    manager.defragment()

    def stages():
        [fragment] = manager.backend._fragments.values()
        return [len(row) for row in fragment.plan().shuffles]

    assert stages() == before
    moved = len(manager.stats()["interrupted_s"])
    manager.remove("bob")
    assert stages() == (before if most is None else after)
    assert len(manager.stats()["interrupted_s"]) == moved + (most == 1 and before != after)
    go()
    assert manager.backend.wait(10)
    assert sorted(values(sink, "t0")) == [
        float(4 * i + k) for i in range(5) for k in (1, 2)
    ]  # of 0 and 2, of 1 and 3 …


def test_queries_that_read_each_other_become_smaller_together(opened, tmp_path):
    manager, _, go = opened(max_queries=2, fuse="exact")
    rows = [{"device": "ab"[i % 2], "value": float(i)} for i in range(20)]
    source = Gated(ro.MemorySource(rows), tmp_path / "gate")
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd")}
    manager.submit_all(
        Request(averages(name, *keys), source, sinks[name]) for name, keys in (("ada", ("device",)), ("bob", ((),)))
    )
    manager.submit(averages("cyd", "device", ()), source, sinks["cyd"])
    assert len(manager.backend._fragments) == 2 and not manager.stats()["interrupted_s"]
    manager.remove("bob")
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait(10)
    means = [float(4 * i + k) for i in range(5) for k in (1, 2)]
    assert sorted(values(sinks["ada"], "t0")) == means
    assert sum(values(sinks["cyd"], "t1")) == sum(means) / 2 and not values(sinks["bob"], "t0")
    manager.submit(averages("dan", "device"), source, ro.MemorySink())


@pytest.mark.parametrize("whole", [False, True])
def test_a_query_stays_as_long_as_another_has_its_topic(opened, tmp_path, whole):
    manager, one, go = opened()
    other = Gated(ro.MemorySource([{"value": float(i)} for i in range(50)]), tmp_path / "gate")
    ends = {"in": one, "other": other}
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd", "dan")}

    def submit(name, *steps):
        flow = ro.Dataflow(name, merging="arrival")
        streams = []
        for read, n in zip(ends, steps, strict=True):
            stream = flow.source(read, schema={"value": "double"})
            for place, high in enumerate((300, 200)[:n]):
                stream = stream.to(t.RangeFilter(bounds={"value": (0, high)}, by=None), id=f"{read}{place}")
            streams.append(stream)
        manager.submit(flow.sink("out", *streams), ends, sinks[name])

    submit("cyd", 0, 1)
    submit("ada", 1, 0)
    submit("bob", 2, 2)
    submit("dan", 0, 2)
    fragments = manager.backend._fragments
    assert {*fragments["f2"].spec.topics} == {"f0", "f1"}
    manager.remove("ada")
    manager.remove("bob")
    assert {*fragments} == {"f0", "f1", "f2"}
    assert not manager.stats()["failed"]
    if whole:
        manager.defragment()
        assert len(fragments) == 1
    go()
    assert manager.backend.wait(10)
    for name, stream in (("cyd", "other0"), ("dan", "other1")):
        assert sorted(values(sinks[name], stream)) == [float(i) for i in range(50)]
    for name in ("dan", "cyd"):
        manager.remove(name)
    assert not fragments


def test_what_one_dataflow_wants_of_two_queries_becomes_one_with_both(opened, tmp_path):
    manager, one, go = opened(max_queries=2)
    other = Gated(ro.MemorySource([{"value": -1.0 - i} for i in range(50)]), tmp_path / "gate")
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd", "dan")}

    def filtered(flow, name, bounds):
        return flow.source(name, schema={"value": "double"}).to(
            t.RangeFilter(bounds={"value": bounds}, by=None), id=f"of_{name}"
        )

    ends = {"in": (one, (0, 300)), "other": (other, (-300, 0))}
    for name, reads in (("ada", ["in"]), ("bob", ["other"]), ("dan", ["in", "other"])):
        flow = ro.Dataflow(name, merging="arrival")
        flow.sink("out", *(filtered(flow, read, ends[read][1]) for read in reads))
        manager.submit(flow, {read: ends[read][0] for read in reads}, sinks[name])
    flow = ro.Dataflow("cyd")
    more = filtered(flow, "in", (0, 300)).to(t.RangeFilter(bounds={"value": (0, 100)}, by=None), id="more")
    manager.submit(flow.sink("out", more), one, sinks["cyd"])
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait(10)
    assert sorted(values(sinks["dan"], "of_other")) == [float(i) for i in range(-50, 0)]
    assert (
        sorted(values(sinks["dan"], "of_in")) == sorted(values(sinks["ada"], "of_in")) == [float(i) for i in range(200)]
    )
    assert sorted(values(sinks["cyd"], "more")) == [float(i) for i in range(101)]


def test_what_cannot_become_smaller_is_tried_once_and_removed_all_the_same(opened, tmp_path, monkeypatch):
    manager, _, go = opened(max_queries=1, fuse="exact")
    source = Gated(ro.MemorySource([{"device": "a", "value": float(i)} for i in range(4)]), tmp_path / "gate")
    ada = ro.MemorySink()
    manager.submit_all(
        Request(averages(name, key), source, sink)
        for name, key, sink in (("ada", "device", ada), ("bob", (), ro.MemorySink()), ("cyd", "value", ro.MemorySink()))
    )
    tried = []

    def launch(fragment):
        tried.append(fragment.name)
        raise RuntimeError("no more queries")

    monkeypatch.setattr(manager.backend, "_launch", launch)
    manager.remove("bob")
    manager.remove("cyd")
    manager.submit(averages("eve", "device"), source, ro.MemorySink())
    assert manager.names == ["ada", "eve"] and len(tried) == 1
    monkeypatch.undo()
    go()
    assert manager.backend.wait(10) and sorted(values(ada, "t0")) == [0.5, 2.5]


def test_whoever_gets_a_carrier_of_its_own_meanwhile_is_switched_as_well():
    class Stub:
        def __init__(self):
            self.lock, self.got, self.mark = (
                threading.RLock(),
                {},
                SimpleNamespace(reader=str(id(self)), topics={"new"}),
            )

        def switch(self, to):
            self.got |= to

    first, own = Stub(), Stub()
    among = SimpleNamespace(of={"ada": first, "bob": first}, all=lambda: {*among.of.values()})

    class Parting:
        """While it is waited for, bob gets a carrier of his own."""

        def __enter__(self):
            among.of["bob"] = own

        def __exit__(self, *error):
            pass

    first.lock = Parting()
    left = []
    new = SimpleNamespace(leave=left.append)
    switch({"ada": ("new", new), "bob": ("new", new)}, {("new", first.mark.reader), ("new", "gone")}, among)
    assert first.got.keys() == {"ada"} and own.got.keys() == {"bob"} and left == ["gone"]


def test_where_others_wait_for_a_sink_that_hangs_all_stays_as_it_was(opened):
    manager, source, go = opened()
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow="block")
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    until(lambda: manager.stats()["slow"])
    with pytest.raises(ConnectorError, match="the sinks of ada do not keep up, and others wait for them"):
        manager.defragment()
    assert manager.stats()["fragments"] == 2 and not manager.stats()["interrupted_s"]
    free.set()
    assert manager.backend.wait(10)
    assert got == values(bob, "t0") == [float(i) for i in range(200)]


def test_a_state_is_taken_up_with_what_ran(opened, tmp_path):
    manager, source, go = opened()
    flows = {"ada": dataflow("ada", (0, 100)), "bob": dataflow("bob", (0, 100), (0, 50))}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    manager.pause("bob")
    go()
    assert manager.backend.wait(10)
    state = manager.state()
    manager.backend.kill()
    again = ReuseManager(FakeSpark(tmp_path / "back"), rebind=lambda name, flow: (source, sinks[name]))
    again.restore(state)
    assert again.stats()["fragments"] == 2 and again.backend.wait(10)
    assert again.stats()["dataflows"]["bob"]["paused"] and again.stats()["records"]["in.0"] == 200, "it was read again"
    assert values(sinks["ada"], "t0") == [float(i) for i in range(101)] and values(sinks["bob"], "t1") == []
    again.close()


class Sealed(ro.ParquetSink):
    """Cannot be gone on with."""

    sealed = False

    def recover(self, batch_id):
        if self.sealed:
            raise OSError("no such bucket")
        super().recover(batch_id)

    def begin(self, overwrite):
        self.recover(0)


@pytest.mark.parametrize(
    ("fault", "kept"),
    [(fault, kept) for fault in ("sink", "bind", "source") for kept in (True, False)] + [("query", True)],
)
def test_after_a_restart_what_cannot_go_on_is_nobody_elses_matter(tmp_path, monkeypatch, fault, kept):
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    manager = ReuseManager(FakeSpark(tmp_path / "back", max_records=10), log=tmp_path / "log")
    sinks = {name: Sealed(tmp_path / name) for name in ("ada", "bob")}
    other = Gated(ro.MemorySource(ROWS[::-1]), tmp_path / "gate")
    sources = {"ada": source, "bob": other}
    for name, sink in sinks.items():
        manager.submit(dataflow(name, (0, 100)), sources[name], sink)
    manager.backend.kill()
    manager._journal.close()
    (tmp_path / "gate").touch()
    sinks["ada"].sealed = fault == "sink"
    if fault == "source":
        sources["ada"].latest = sources["ada"].initial = lambda *args: 1 / 0

    def rebind(name, flow):
        if (name, fault) == ("ada", "bind"):
            raise FileNotFoundError("ada.csv")
        return sources[name], sinks[name]

    backend = FakeSpark(tmp_path / ("back" if kept else "other"))
    if fault == "query":
        launch = backend._care._launch
        monkeypatch.setattr(backend._care, "_launch", lambda one: launch(one) if one.name != "f0" else 1 / 0)
    again = ReuseManager(backend, log=tmp_path / "log", rebind=rebind)
    assert again.names == ["ada", "bob"]
    until(lambda: len(values(sinks["bob"], "t0")) == 101)
    until(lambda: again.stats()["failed"])
    told = {"sink": "no such bucket", "bind": "ada.csv"}.get(fault, "ZeroDivisionError")
    assert told in again.stats()["failed"].pop("ada") and not again.stats()["failed"].keys() - {"ada"}
    assert again.pause("ada") == {}
    again.resume("ada")
    again.remove("ada")
    assert again.backend.wait(10) and len(values(sinks["bob"], "t0")) == 101
    again.close()
