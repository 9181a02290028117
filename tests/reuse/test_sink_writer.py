"""Records that sinks did not get are counted exactly."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import LocalBackend, ReuseManager
from tests.reuse.slow_sinks import SCHEMA, Files, flow, log


def test_record_lost_by_two_sinks_counts_once():
    manager = ReuseManager(LocalBackend(batch_size=2, epoch="1000s"))
    one, two, good = Files(breaks=7), Files(breaks=13), Files()
    manager.submit(flow("ada", "one", "two", "good"), log(20), {"one": one, "two": two, "good": good})
    manager.backend.run()
    manager.close()
    assert good.seen == list(range(20)) and one.seen == two.seen == []
    assert manager.backend.stats()["dropped"] == {"ada": {"values": 20}}


@pytest.mark.parametrize("broken", ["writer", "commit"])
def test_committed_records_are_not_lost_when_the_next_epoch_fails(broken):
    class Once(Files):
        def writer(self, batch_id, partition):
            if batch_id == 3 and broken == "writer":
                raise OSError("no handle")
            return super().writer(batch_id, partition)

        def commit(self, batch_id, messages):
            if batch_id == 3 and broken == "commit":
                raise OSError("no room")
            super().commit(batch_id, messages)

    manager = ReuseManager(LocalBackend(batch_size=2, epoch="0s"))
    sink = Once()
    manager.submit(flow("ada"), log(20), sink)
    manager.backend.run()
    assert sink.seen == list(range(6))
    assert manager.stats()["dropped"] == {"ada": {"values": 14}}
    manager.close()


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_on_failure_decides_about_sinks_beside_a_failed_sink(on_failure):
    manager = ReuseManager(LocalBackend(batch_size=2, epoch="0s"))
    bad, good, quick = Files(breaks=7), Files(), ro.MemorySink()
    source = log(20)
    manager.submit(flow("quick"), source, quick)
    manager.submit(flow("two", "bad", "good"), source, {"bad": bad, "good": good}, on_failure=on_failure)
    manager.backend.run()
    assert quick.table("values").num_rows == 20
    found = manager.stats()
    assert found["failed"] == {"two": "OSError: disk full"}
    assert bad.seen == list(range(6))
    assert found["dropped"] == {"two": {"values": 14}}
    assert good.seen == (list(range(20)) if on_failure == "detach" else list(range(6)))
    assert good.ended == (on_failure == "stop")
    assert found["rows"]["two"] == 6
    manager.close()
    assert good.ended and not bad.ended


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_on_failure_decides_about_branches_beside_a_failed_step(on_failure):
    calls = []

    def picky(batch):
        calls.append(batch)
        if len(calls) > 2:
            raise MemoryError("not that one")
        return batch

    made = ro.Dataflow("two")
    stream = made.source("values", schema=SCHEMA)
    made.sink("checked", stream.to(ro.map_batches(picky), id="check"))
    made.sink("all", stream.to(t.KalmanFilter(), id="smooth"))
    manager = ReuseManager(LocalBackend(batch_size=2))
    sinks = {"checked": ro.MemorySink(), "all": ro.MemorySink()}
    manager.submit(made, log(20), sinks, on_failure=on_failure)
    manager.backend.run()
    assert sinks["checked"].table("check").num_rows == 4
    assert sinks["all"].table("smooth").num_rows == (20 if on_failure == "detach" else 4)
    assert manager.stats()["failed"] == {"two": "MemoryError: not that one"}


def test_sinks_have_own_numbers_where_shared_steps_see_those_of_the_first_dataflow():
    def see(row):
        return {"saw": row["seq"], "part": 1 / row["value"]}

    def merging(name, order):
        made = ro.Dataflow(name)
        both = ro.merge(*(made.source(one, schema={"value": "double"}) for one in order))
        return made.sink("out", both.to(t.MapFunction(function=see, adds={"saw": "int64", "part": "double"}), id="map"))

    logs = {"a": ro.MemorySource([{"value": 1.0}]), "b": ro.MemorySource([{"value": 0.0}])}
    manager, sinks = ReuseManager(LocalBackend()), {}
    for name, order in (("ada", "ab"), ("bob", "ba")):
        sinks[name] = ro.MemorySink()
        manager.submit(merging(name, order), logs, sinks[name])
    manager.backend.run()
    alone = merging("bob", "ba").run(logs)
    [shared] = sinks["bob"].table("map").to_pylist()
    [wanted] = alone["map"].to_pylist()
    assert shared["seq"] == wanted["seq"] == wanted["saw"] == 1 and shared["saw"] == 0
    [rejected], [wanted] = sinks["bob"].table("errors").to_pylist(), alone["errors"].to_pylist()
    assert rejected["seq"] == wanted["seq"] == 0
    assert (rejected["raw"], wanted["raw"]) == ('{"seq": 1, "value": 0.0}', '{"seq": 0, "value": 0.0}')
