"""Sources and sinks that cannot be opened or read fail only the dataflows that use them."""

from __future__ import annotations

import threading

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import LocalBackend, ReuseManager, shared_source
from riot_ops.reuse.errors import EnactError
from tests.reuse import serving
from tests.reuse.tapes import SCHEMA, Tape, flow, gone

ROWS = [{"value": float(i)} for i in range(30)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(shared_source, "FIRST_PAUSE_S", 0.0001)


class Source(ro.MemorySource):
    """Raises ``times`` times when it reads row ``at``; otherwise gives batches of 2 rows."""

    def __init__(self, error=None, at=0, times=1_000_000, rows=ROWS):
        super().__init__(rows)
        self.error, self.at, self.times = error, at, times
        self.closed, self.committed = 0, []

    def project(self, schema):
        return self

    def description(self):  # equal to any other source of the rows, with any error
        return super().description()

    def read(self, split):
        for batch in super().read(split):
            for first in range(0, batch.num_rows, 2):
                part = batch.slice(first, 2)
                if self.error is not None and self.times and part.column("seq")[0].as_py() >= self.at:
                    self.times -= 1
                    raise self.error
                yield part

    def commit(self, end):
        self.committed.append(end)

    def close(self):
        self.closed += 1


OTHER = [{"value": float(-i)} for i in range(30)]


def of_two(name):
    """A dataflow with two sources and a step over both, each with a sink."""
    made = ro.Dataflow(name)
    streams = [made.source(one, schema=SCHEMA) for one in ("in", "other")]
    for place, stream in enumerate((*streams, ro.merge(*streams).to(t.KalmanFilter(), id="both"))):
        made.sink(f"out{place}", stream)
    return made


def values(sink, stream="in"):
    table = sink.table(stream)
    return table["value"].to_pylist() if table.num_rows else []


def expected(rows=ROWS):
    return [row["value"] for row in rows]


def test_failed_source_fails_only_its_readers():
    backend = LocalBackend(10)
    manager, sinks = ReuseManager(backend), {name: ro.MemorySink() for name in "abc"}
    broken = Source(RuntimeError("gone"), at=16)
    manager.submit(flow("a"), broken, sinks["a"])
    manager.submit(flow("b"), broken, sinks["b"])
    manager.submit(flow("c"), OTHER, sinks["c"])
    backend.run()
    assert backend.error is None
    assert values(sinks["c"]) == expected(OTHER)
    assert values(sinks["a"]) == values(sinks["b"]) == expected()[:16]
    assert manager.stats()["failed"] == dict.fromkeys("ab", "RuntimeError: gone")
    assert broken.closed == 1
    sink = ro.MemorySink()
    report = manager.submit(flow("d"), Source(), sink)
    assert report.reused == {} and report.first == {"in": 0}
    again = ro.MemorySink()
    assert manager.submit(flow("e"), Source(), again).reused.keys() == {"in", "out"}
    backend.run()
    assert values(sink) == values(again) == expected()
    assert backend.stats()["messages"] == 16 + 30 + 30 and backend.stats()["readings"] == 3
    manager.pause("a")
    manager.resume("a")
    backend.run()
    for name in "abcde":
        manager.remove(name)
    assert not backend.sources.open_sources and not backend.sources.bindings and not backend.engine.failures
    assert broken.closed == 1


def test_new_dataflow_over_a_failing_source_fails_with_it():
    class Late(ro.MemorySink):
        def begin(self, overwrite):
            backend.run()

    backend = LocalBackend(10)
    manager = ReuseManager(backend)
    manager.submit(flow("a"), Source(RuntimeError("gone"), at=10))
    report = manager.submit(flow("b"), Source(), Late())
    assert "in" in report.reused
    backend.run()
    assert backend.stats()["failed"] == dict.fromkeys("ab", "RuntimeError: gone")


def test_source_without_its_declared_fields_fails():
    class Other(Source):
        def read(self, split):
            yield from (batch.drop_columns(["value"]) for batch in super().read(split))

    backend, sink = LocalBackend(10), ro.MemorySink()
    manager = ReuseManager(backend)
    manager.submit(flow("a", t.KalmanFilter()), Other())
    manager.submit(flow("b"), OTHER, sink)
    backend.run()
    assert values(sink) == expected(OTHER)
    assert backend.stats()["failed"] == {"a": "ConfigError: a batch lacks the field 'value'; it has seq"}


@pytest.mark.parametrize("kept", [True, False])
def test_recovered_source_gives_each_record_once(tmp_path, kept):
    backend = LocalBackend(10, epoch="0s", folder=tmp_path / "kept" if kept else None)
    manager, sink = ReuseManager(backend), ro.MemorySink()
    manager.submit(flow("a", t.KalmanFilter()), Source(ConnectorError("away"), at=16, times=5), sink)
    backend.run()
    assert values(sink, "t0") == flow("x", t.KalmanFilter()).run(ROWS)["t0"]["value"].to_pylist()
    assert not manager.stats()["failed"]


@pytest.mark.parametrize(
    ("error", "tries"), [(ConnectorError("away"), shared_source.TRIES + 1), (ValueError("bad"), 1)]
)
def test_unreachable_source_fails_after_retries(error, tries):
    backend = LocalBackend(10)
    source = Source(error, at=12)
    ReuseManager(backend).submit(flow("a"), source)
    backend.run()
    assert 1_000_000 - source.times == tries
    assert backend.stats()["failed"] == {"a": f"{type(error).__name__}: {error}"}


@pytest.mark.parametrize(("on_failure", "got"), [("detach", 30), ("stop", 10)])
def test_on_failure_decides_about_other_branches(on_failure, got):
    backend, sinks = LocalBackend(10), {f"out{place}": ro.MemorySink() for place in range(3)}
    both = {"in": Source(RuntimeError("gone"), at=10), "other": Source(rows=OTHER)}
    ReuseManager(backend).submit(of_two("a"), both, sinks, on_failure=on_failure)
    backend.run()
    assert values(sinks["out0"]) == expected()[:10]
    assert values(sinks["out1"], "other") == expected(OTHER)[:got]
    assert len(values(sinks["out2"], "both")) == 10 + got
    assert backend.stats()["failed"] == {"a": "RuntimeError: gone"}


def test_restart_continues_failed_and_reopened_source_separately(tmp_path):
    def opened(source, ends):
        backend = LocalBackend(10, epoch="0s", folder=tmp_path / "kept")
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source(name), ends[name]))

    ends = {name: Tape() for name in "abc"}
    sick = Source(RuntimeError("gone"), at=16)
    manager = opened(None, ends)
    manager.submit(flow("a"), sick, ends["a"])
    manager.submit(flow("b"), OTHER, ends["b"])
    manager.backend.run()
    sound = Source()
    manager.submit(flow("c"), sound, ends["c"])
    manager.backend.turn()
    assert values(ends["a"]) == expected()[:10] and values(ends["c"]) == expected()[:10]
    manager.backend.turn()
    assert sick.committed and not sound.committed  # a failed source may still continue from before
    gone(manager)
    for _ in range(2):
        manager = opened(lambda name: OTHER if name == "b" else Source(), ends)
        assert not manager.stats()["failed"] and manager.backend.stats()["readings"] == 3
        manager.backend.turn()
        gone(manager)
    manager = opened(lambda name: OTHER if name == "b" else Source(), ends)
    manager.backend.run()
    assert [values(ends[name]) for name in "abc"] == [expected(), expected(OTHER), expected()]
    manager.close()


def restart(tmp_path, ends, wrong=(), fault="source"):
    """A manager after a restart, in which some dataflows cannot be bound."""

    def rebind(name, flow):
        if name in wrong and fault == "bind":
            raise FileNotFoundError(f"{name}.csv")
        if name in wrong and fault == "iterator":
            return iter(ROWS), ends[name]
        source = Source(rows=OTHER if name == "b" else ROWS)
        if name in wrong and fault == "source":
            source.initial = source.latest = lambda *args: (_ for _ in ()).throw(FileNotFoundError(f"{name}.csv"))
        return source, ends[name]

    backend = LocalBackend(10, epoch="0s", folder=tmp_path / "kept")
    return ReuseManager(backend, log=tmp_path / "log", rebind=rebind)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("bind", "FileNotFoundError: a.csv"),
        ("source", "FileNotFoundError: a.csv"),
        ("iterator", "is an iterator, which can be read once"),
    ],
)
def test_restart_fails_only_unopenable_dataflows(tmp_path, fault, why, caplog):
    ends = {name: Tape() for name in "ab"}
    manager = restart(tmp_path, ends)
    for name in "ab":
        manager.submit(flow(name), OTHER if name == "b" else ROWS, ends[name])
    manager.backend.turn()
    gone(manager)
    manager = restart(tmp_path, ends, "a", fault)
    assert manager.names == ["a", "b"]
    manager.backend.run()
    assert manager.stats()["failed"].keys() == {"a"} and manager.stats()["failed"]["a"].count(why) == 1
    assert why.rpartition(": ")[2] in caplog.text
    assert values(ends["b"]) == expected(OTHER) and values(ends["a"]) == expected()[:10]
    gone(manager)
    manager = restart(tmp_path, ends)  # the source is back
    manager.backend.run()
    assert values(ends["a"]) == expected() and not manager.stats()["failed"]
    gone(manager)
    manager = restart(tmp_path, ends, "a", fault)
    manager.remove("a")
    manager.close()
    manager = restart(tmp_path, ends, "a", fault)
    assert manager.names == ["b"] and not manager.stats()["failed"]
    manager.close()


def test_unbound_dataflow_leaves_a_shared_source_open(tmp_path):
    ends = {name: Tape() for name in "ac"}
    manager = restart(tmp_path, ends)
    for name in "ac":
        manager.submit(flow(name), ROWS, ends[name])
    manager.backend.turn()
    gone(manager)
    manager = restart(tmp_path, ends, "a", "bind")
    manager.backend.run()
    assert values(ends["c"]) == expected()
    assert manager.stats()["failed"].keys() == {"a"} and manager.stats()["dropped"] == {"a": {"in": 20}}
    manager.close()


class Refusing(Tape):
    refuses = False

    def recover(self, batch_id):
        if self.refuses:
            raise OSError("no such bucket")
        super().recover(batch_id)


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_restart_fails_an_unopenable_sink(tmp_path, on_failure, caplog):
    ends = {"a": Refusing(), "b": Tape()}
    manager = restart(tmp_path, ends)
    for name in "ab":
        manager.submit(flow(name), OTHER if name == "b" else ROWS, ends[name], on_failure=on_failure)
    manager.backend.turn()
    gone(manager)
    ends["a"].refuses = True
    manager = restart(tmp_path, ends)
    assert manager.stats()["failed"] == {"a": "OSError: no such bucket"}
    assert "no such bucket" in caplog.text
    manager.backend.run()
    assert values(ends["b"]) == expected(OTHER) and values(ends["a"]) == expected()[:10]
    assert manager.stats()["dropped"] == {"a": {"in": 20}}
    manager.remove("a")
    manager.close()


def test_removed_file_fails_only_its_readers(tmp_path):
    files = {name: tmp_path / f"{name}.csv" for name in ("lost", "kept")}
    for file in files.values():
        file.write_text("device,value\n" + serving.LINES)
    with serving.Serving(tmp_path / "shared") as server:
        for name, file in files.items():
            request = {
                "dataflow": serving.flow(name).to_dict(),
                "sources": {"readings": {"file": str(file)}},
                "sinks": {},
            }
            server.handle({"do": "submit", "dataflows": [request]})
    files["lost"].unlink()
    with serving.Serving(tmp_path / "shared") as server:
        serving.until(lambda: server.handle({"do": "list"})[1]["rows"] == 8)
        serving.until(lambda: server.handle({"do": "list"})[0]["failed"])
        lost, kept = server.handle({"do": "list"})
        assert lost["name"] == "lost" and "lost.csv" in lost["failed"] and kept["failed"] is None
        server.handle({"do": "remove", "name": "lost"})
    with serving.Serving(tmp_path / "shared") as server:
        assert server.manager.names == ["kept"]
    assert pq.read_table(tmp_path / "shared" / "out" / "kept" / "average").num_rows == 8


class Slow(ro.MemorySink):
    """Blocks in ``begin`` until it is released."""

    def __init__(self, error=None):
        super().__init__()
        self.asked, self.may, self.error, self.aborted = threading.Event(), threading.Event(), error, 0

    def begin(self, overwrite):
        self.asked.set()
        assert self.may.wait(30)
        if self.error is not None:
            raise self.error

    def writer(self, batch_id, partition):
        made = super().writer(batch_id, partition)
        made.abort = self.abort
        return made

    def abort(self):
        self.aborted += 1


def test_records_move_while_a_sink_begins():
    backend = LocalBackend(10)
    manager, sink, slow = ReuseManager(backend), ro.MemorySink(), Slow()
    manager.submit(flow("a"), ROWS, sink)
    coming = threading.Thread(target=lambda: manager.submit(flow("b"), ROWS, slow), daemon=True)
    coming.start()
    assert slow.asked.wait(30)
    turned = threading.Thread(target=backend.turn, daemon=True)
    turned.start()
    turned.join(20)
    assert not turned.is_alive() and values(sink) == expected()[:10]
    slow.may.set()
    coming.join(20)
    backend.run()
    assert values(sink) == expected() and values(slow) == expected()[10:]


def test_failed_sink_releases_the_sinks_begun_before_it():
    backend = LocalBackend(10)
    manager, first, second = ReuseManager(backend), Slow(), Slow(OSError("no such bucket"))
    first.may.set(), second.may.set()
    ends = {"out0": first, "out1": second, "out2": ro.MemorySink()}
    sources = {"in": Source(), "other": Source(rows=OTHER)}
    with pytest.raises(EnactError, match="no such bucket"):
        manager.submit(of_two("a"), sources, ends)
    assert first.aborted == 1 and [source.closed for source in sources.values()] == [1, 1]
    assert (
        not manager.names and not backend.sources.open_sources and not backend.sinks.queues and not backend.engine.steps
    )
