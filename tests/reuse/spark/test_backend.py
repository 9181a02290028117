"""Actions on running queries: pauses, refused submissions, and the end of a query. Without Spark."""

from __future__ import annotations

import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.dataflows import ALL, ROWS, dataflow, until, values
from tests.reuse.spark.fake_spark import FakeSpark, Gated


def test_paused_dataflow_gets_no_records_and_others_get_all(opened):
    manager, source, go = opened()
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 150)), source, ada)
    manager.submit(dataflow("bob", (0, 150), (0, 100)), source, bob)
    manager.pause("bob")
    reader = manager.backend.fragments["f1"]
    until(lambda: reader.topic.head().control == reader.controls.newest())
    go()
    assert manager.backend.wait("10s")
    assert values(ada, "t0") == [float(i) for i in range(151)] and values(bob, "t1") == []
    assert "range_filter.3" not in manager.stats()["records"], "an idle step took records"
    manager.resume("bob")
    assert manager.backend.wait("10s") and values(bob, "t1") == [], "records from during the pause"


def test_resumed_dataflow_continues(opened):
    manager, source, go = opened()
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 150)), source, sink)
    assert manager.pause("ada") == {"in": 0}
    go()
    time.sleep(0.2)
    assert manager.stats()["records"].get("in.0", 0) == 0, "a record was read that no dataflow wants"
    assert manager.pause("ada") == {} and manager.resume("ada") == {"in": 0} and manager.resume("ada") == {}
    assert manager.backend.wait("10s") and values(sink, "t0") == [float(i) for i in range(151)]


@pytest.mark.long
@pytest.mark.parametrize("case", ["alone", "shared", "second query", "lagging query", "killed"])
def test_pause_skips_exactly_the_records_in_between(opened, tmp_path, case):
    manager, source, go = opened(max_records=5, join=False)
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    flows = {"ada": dataflow("ada", (0, 300)), "bob": dataflow("bob", *[(0, 300)] * (2 if "query" in case else 1))}
    for name in ("ada", "bob")[case == "alone" :]:
        manager.submit(flows[name], source, sinks[name])
    for name, fragment in manager.backend.fragments.items():  # so that records are left when it pauses
        # the second query lags behind the first
        fragment.query.delay_s = 0.04 if case == "lagging query" and name == "f1" else 0.01
    go()
    last = "t1" if "query" in case else "t0"
    until(lambda: values(sinks["bob"], last))
    pause = manager.pause("bob")["in"]
    assert 0 < pause < 200
    time.sleep(0.1)
    if case == "killed":
        state = manager.state()
        manager.backend.kill()
        backend = FakeSpark(tmp_path / "back", max_records=5)
        manager = ReuseManager(backend, rebind=lambda name, flow: (source, sinks[name]))
        manager.restore(state)
    resume = manager.resume("bob")["in"]
    assert resume == pause if case == "alone" else resume > pause
    assert manager.backend.wait("20s")
    assert values(sinks["bob"], last) == [float(i) for i in range(200) if not pause <= i < resume]
    if case != "alone":
        assert values(sinks["ada"], "t0") == ALL


@pytest.mark.long
def test_pause_does_not_wait_for_queries_blocked_by_its_sinks(opened):
    manager, source, go = opened(max_queue_bytes=3000, patience="8s")
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
    above, below = manager.backend.fragments.values()
    above.query.delay_s = 0.05
    go()
    # the downstream query already waits for the sinks, and lags behind the upstream one
    until(
        lambda: below.topic.unread_bytes() > 3000 and above.topic.head().place.roots != below.topic.head().place.roots
    )
    threading.Timer(0.2, free.set).start()
    begin = time.monotonic()
    pause = manager.pause("bob")["in"]
    assert time.monotonic() - begin < 5
    until(lambda: above.topic.head().place.next["in.0"] > pause + 20)
    resume = manager.resume("bob")["in"]
    assert manager.backend.wait("20s")
    seen = [float(i) for i in [*range(pause), *range(resume, 200)]]
    for place in range(4):
        assert [value for one, value in got if one == f"t{place}"] == seen


def test_refused_submission_changes_nothing(opened, tmp_path):
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


def test_iterator_as_source_is_refused(opened):
    manager, _, _ = opened()
    with pytest.raises(RiotError, match="the source 'in' is an iterator"):
        manager.submit(dataflow("ada"), iter(ROWS), ro.MemorySink())


@pytest.mark.long
@pytest.mark.parametrize("compacted", [False, True])
def test_query_stays_as_long_as_another_reads_its_topic(opened, tmp_path, compacted):
    manager, one, go = opened()
    other = Gated(ro.MemorySource([{"value": float(i)} for i in range(50)]), tmp_path / "gate")
    sources = {"in": one, "other": other}
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd", "dan")}

    def submit(name, *steps):
        flow = ro.Dataflow(name, merging="arrival")
        streams = []
        for read, n in zip(sources, steps, strict=True):
            stream = flow.source(read, schema={"value": "double"})
            for place, high in enumerate((300, 200)[:n]):
                stream = stream.to(t.RangeFilter(bounds={"value": (0, high)}, by=None), id=f"{read}{place}")
            streams.append(stream)
        manager.submit(flow.sink("out", *streams), sources, sinks[name])

    submit("cyd", 0, 1)
    submit("ada", 1, 0)
    submit("bob", 2, 2)
    submit("dan", 0, 2)
    fragments = manager.backend.fragments
    assert {*fragments["f2"].spec.topics} == {"f0", "f1"}
    manager.remove("ada")
    manager.remove("bob")
    assert {*fragments} == {"f0", "f1", "f2"}
    assert not manager.stats()["failed"]
    if compacted:
        manager.defragment()
        assert len(fragments) == 1
    go()
    assert manager.backend.wait("10s")
    for name, stream in (("cyd", "other0"), ("dan", "other1")):
        assert sorted(values(sinks[name], stream)) == [float(i) for i in range(50)]
    for name in ("dan", "cyd"):
        manager.remove(name)
    assert not fragments
