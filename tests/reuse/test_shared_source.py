"""A source is read once for all dataflows, whichever of its fields they declare. Without Spark."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.source import Source, row_splits
from riot_ops.reuse import LocalBackend, Request, ReuseManager, SparkBackend
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.reuse.spark.keyed_dataflows import Got, ordered, rows

N, HALF = 120, 60
ROWS = [{"seq": i, "device": "abc"[i % 3], "value": float(i)} for i in range(N)]
FIELDS = {"ada": {"value": "double"}, "bob": {"device": "string", "value": "double"}}
FIELDS["cyd"] = {"value": "double", "device": "string"}


class Queue(Source):
    """Removes committed messages; gives only half of its messages until ``end``."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    @property
    def schema(self):
        return pa.schema([("seq", pa.int64()), ("device", pa.string()), ("value", pa.float64())])

    def description(self):
        return {"source": "queue", "folder": str(self.folder)}

    def consumed_resources(self):
        return frozenset({f"the queue {self.folder.name}"})

    def gone(self):
        return max((int(path.name) for path in self.folder.glob("[0-9]*")), default=0)

    def initial(self):
        return {"row": self.gone()}

    def latest(self, start, limit=None):
        there = N if (self.folder / "whole").exists() else HALF
        return {"row": min(there, start["row"] + (limit or N))}

    def finished(self, offset):
        return offset["row"] == N

    def splits(self, start, end, n):
        return row_splits(start, end, n)

    def read(self, split):
        if split["start"] < self.gone():
            raise ConnectorError(f"message {split['start']} is gone")
        yield pa.RecordBatch.from_pylist(ROWS[split["start"] : split["end"]], self.schema)

    def commit(self, end):
        (self.folder / str(end["row"])).touch()

    def end(self):
        (self.folder / "whole").touch()


def flow(name, *tasks, merging="arrival", more=()):
    made = ro.Dataflow(name, merging=merging)
    streams = [made.source("in", schema=FIELDS.get(name, FIELDS["bob"]))]
    streams += [made.source(one, schema=FIELDS["bob"]) for one in more]
    stream = streams[0] if len(streams) == 1 else ro.merge(*streams)
    for place, task in enumerate([t.RangeFilter(bounds={"value": (0, 1e6)}, by=None), *tasks]):
        stream = stream.to(task, id=f"t{place}")
    return made.sink("out", stream)


def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.005)


class Life:
    """A manager over restarts, with the sinks of its dataflows."""

    def __init__(self, folder, kind, spark=None):
        self.folder, self.kind, self.spark = folder, kind, spark
        self.queue = Queue(folder / "one")
        self.bound, self.sinks = {}, {}
        self.open()

    def open(self):
        if self.kind == "local":
            self.backend = LocalBackend(7, folder=self.folder / "kept")
        elif self.spark is not None:
            self.backend = SparkBackend(self.spark, self.folder / "back", join=self.kind == "joined", max_records=20)
        else:
            self.backend = FakeSpark(self.folder / "back", join=self.kind == "joined")
        log = self.folder / "log"
        self.manager = ReuseManager(
            self.backend, log=log, rebind=lambda name, flow: (self.bound[name], self.sinks[name])
        )

    def again(self):
        self.manager.close()
        self.open()

    def request(self, flow, **more):
        self.bound[flow.name] = {"in": self.queue, **more}
        self.sinks[flow.name] = ro.ParquetSink(self.folder / flow.name)
        return Request(flow, self.bound[flow.name], self.sinks[flow.name])

    def submit(self, *flows, **more):
        return self.manager.submit_all([self.request(flow, **more) for flow in flows])

    def half(self, *names):
        if self.kind == "local":
            while self.backend.turn():
                pass

        def still():
            stats = self.manager.stats()
            waiting = stats["slow"] or any(stats.get("unread_bytes", {}).values())
            return not waiting and all(stats["rows"][name] == HALF for name in names)

        until(still)

    def wait(self):
        self.queue.end()
        if self.kind == "local":
            self.backend.run()
        else:
            assert self.backend.wait("90s")

    def values(self, name, stream="t0"):
        return sorted(row["value"] for row in rows(Got(self.sinks[name]), stream))


@pytest.fixture(params=["local", "joined", "apart"])
def life(request, tmp_path):
    made = Life(tmp_path, request.param)
    yield made
    made.manager.close()


@pytest.mark.long
def test_dataflow_with_other_fields_shares_the_source(life):
    mean = t.MovingAverage(by=("device",), window=4)
    life.submit(flow("ada"))
    life.half("ada")
    report = life.submit(flow("bob", mean))[0]
    assert report.first == {"in": HALF} and not report.reused
    assert life.manager.stats()["readings"] == 1
    life.wait()
    assert life.values("ada") == [float(i) for i in range(N)]
    wanted = flow("bob", mean).run(ROWS[HALF:])
    assert ordered(rows(Got(life.sinks["bob"]), "t1")) == ordered(rows(wanted, "t1"))


def test_dataflows_of_one_action_share_the_source(life):
    life.submit(flow("ada"), flow("bob"))
    assert life.manager.stats()["readings"] == 1
    life.wait()
    assert life.values("ada") == life.values("bob") == [float(i) for i in range(N)]


@pytest.mark.long
@pytest.mark.parametrize("stays", ["ada", "bob"])
def test_restart_continues_the_remaining_dataflow(life, stays):
    life.submit(flow("ada"), flow("bob", t.MovingAverage(by=("device",), window=1)))
    life.half("ada", "bob")
    life.manager.remove("bob" if stays == "ada" else "ada")
    for _ in range(2):
        life.again()
        assert life.manager.stats()["readings"] == 1
    life.wait()
    assert life.values(stays, "t0" if stays == "ada" else "t1") == [float(i) for i in range(N)]


def test_restart_skips_a_source_without_readers(life):
    other = ro.MemorySource(ROWS[:9])
    both = flow("both", more=("other",))
    life.manager.submit_all([life.request(flow("ada")), life.request(both, other=other)])
    life.half("ada")
    life.manager.remove("both")
    life.again()
    life.wait()
    assert life.values("ada") == [float(i) for i in range(N)]


def test_dataflow_after_the_end_of_a_source_sees_it_ended(life, tmp_path):
    life.submit(flow("ada"))
    life.wait()
    other = Gated(ro.MemorySource(ROWS[:10]), tmp_path / "gate")
    late = flow("late", t.MovingAverage(by=("device",), window=100, partial=True), more=("other",))
    assert life.submit(late, other=other)[0].first == {"in": N, "other": 0}
    assert life.manager.stats()["readings"] == 2
    life.submit(flow("bob"))
    (tmp_path / "gate").touch()
    life.wait()
    assert life.values("late", "t1") == [4.0, 4.5, 5.0], "one per device, flushed at the end of the other source"
    assert life.values("bob") == [] and len(life.values("ada")) == N


def test_different_merging_of_an_exclusive_source_is_refused(life):
    other = ro.MemorySource(ROWS)
    life.submit(flow("ada"))
    life.half("ada")
    before = life.manager.stats()
    with pytest.raises(ConfigError, match="the queue one can be read by one reader alone") as caught:
        life.submit(flow("sum", merging="number", more=("other",)), other=other)
    assert "the source 'in' of 'sum' would read it apart from the source 'in' of 'ada'" in str(caught.value)
    assert life.manager.stats() == before and life.manager.names == ["ada"]
    queue = {"in": Queue(life.folder / "another"), "other": other}
    both = [flow("a"), flow("b", merging="sequence", more=("other",))]
    with pytest.raises(ConfigError, match="the source 'in' of 'b' would read it apart from the source 'in' of 'a'"):
        life.manager.submit_all([life.request(both[0], **{"in": queue["in"]}), life.request(both[1], **queue)])
    life.wait()
    assert life.values("ada") == [float(i) for i in range(N)]


def test_shareable_source_is_read_once_per_merging(life):
    north, south = ro.MemorySource(ROWS[:20]), ro.MemorySource(ROWS[20:50])
    for merging in ("arrival", "number", "sequence"):
        made = flow(merging, merging=merging, more=("other",))
        life.manager.submit_all([life.request(made, other=south, **{"in": north})])
    life.wait()
    for merging in ("arrival", "number", "sequence"):
        assert life.values(merging) == [float(i) for i in range(50)]


@pytest.mark.long
@pytest.mark.parametrize("join", ["joined", "apart"])
def test_exclusive_source_of_a_failed_query_is_not_shared(tmp_path, join):
    life = Life(tmp_path, join)
    life.backend.supervisor.tries = 0
    life.submit(flow("ada"))
    life.half("ada")
    life.backend.fragments["f0"].query.harm = ConnectorError("no disk")
    life.queue.end()
    until(lambda: "ada" in life.manager.stats()["failed"])
    with pytest.raises(ConfigError, match="the source 'in' of 'bob' would read it apart from the source 'in' of 'ada'"):
        life.submit(flow("bob"))
    life.manager.remove("ada")
    life.submit(flow("bob"))
    assert life.backend.wait("30s") and life.values("bob") == [float(i) for i in range(HALF, N)]
    life.manager.close()


@pytest.mark.parametrize("join", ["joined", "apart"])
def test_refused_dataflow_may_be_submitted_again(tmp_path, join):
    life = Life(tmp_path, join)
    life.submit(flow("ada"))
    life.half("ada")
    (tmp_path / "bob" / "t0").mkdir(parents=True)
    (wrong := tmp_path / "bob" / "t0" / "part-000000-00000.parquet").touch()
    before = life.manager.stats()
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        life.submit(flow("bob"))
    assert life.manager.stats() == before
    wrong.unlink()
    assert life.submit(flow("bob"))[0].first == {"in": HALF}
    life.again()
    assert life.manager.stats()["readings"] == 1
    life.wait()
    assert len(life.values("ada")) == N and life.values("bob") == [float(i) for i in range(HALF, N)]
    life.manager.close()


def test_groups_over_one_source_become_one_query(tmp_path):
    life = Life(tmp_path, "apart")
    life.submit(flow("ada"))
    life.submit(flow("bob"))
    life.half("ada")
    life.manager.defragment()
    stats = life.manager.stats()
    assert stats["groups"] == 2 and stats["fragments"] == stats["readings"] == 1
    life.submit(flow("cyd"))
    assert life.manager.stats()["readings"] == 1
    life.wait()
    assert len(life.values("ada")) == N and len(rows(Got(life.sinks["cyd"]), "t0")) == N - HALF
    life.manager.close()


def test_stats_count_shared_sources(life):
    """Different fields or message numbers share a source; a different merging opens another one."""
    north, south = ro.MemorySource(ROWS[:20]), ro.MemorySource(ROWS[20:50])
    summaries = []
    for made in (
        flow("ada"),
        flow("bob"),
        flow("two", more=("other",)),
        flow("number", merging="number", more=("other",)),
        flow("again", t.Variance(by=("device",)), merging="number", more=("other",)),
    ):
        more = {"other": south} if len(made.nodes_of_kind("source")) == 2 else {}
        life.manager.submit_all([life.request(made, **{"in": north}, **more)])
        summaries.append(life.manager.explain_sharing().partition("steps")[2].splitlines()[0].partition(", ")[2])
    assert summaries == [
        "1 sources are read in place of 1",
        "1 sources are read in place of 2",
        "2 sources are read in place of 4",
        "4 sources are read in place of 6",
        "4 sources are read in place of 8",
    ]


@pytest.mark.parametrize("merging", ["arrival", "number", "sequence"])
def test_first_message_has_the_number_of_its_source(merging):
    flow = ro.Dataflow("a", merging=merging)
    for name in ("one", "two"):
        flow.source(name, schema={"value": "double"})
    flow.sink("out", ro.merge(flow.stream("one"), flow.stream("two")))
    rows = [{"value": float(i)} for i in range(5)]
    numbered = ro.MemorySource([{"seq": None, "value": -1.0}, *({"seq": 100 + i, **row} for i, row in enumerate(rows))])
    manager = ReuseManager(LocalBackend())
    assert manager.submit(flow, {"one": numbered, "two": rows}, ro.MemorySink()).first == {"one": 100, "two": 0}
    assert manager.pause("a") == {"one": 100, "two": 0}
    manager.close()


def test_subscription_begins_with_its_spool(tmp_path):
    source = MQTTSource(url="memory://begins", topics=["#"], client_id="me", spool=str(tmp_path))
    assert Gated(source, tmp_path / "gate").seq_at({"seq": 7}) == source.seq_at({"seq": 7}) == 7
