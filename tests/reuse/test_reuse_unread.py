"""On Spark too a source that cannot be read is the matter of those alone who read it. Without Spark."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import WrappedSource
from riot_ops.reuse import ReuseManager
from riot_ops.testing import exact
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import until

ROWS = [{"key": f"k{i % 3}", "value": float(i)} for i in range(200)]
OTHER = [{"key": f"k{i % 2}", "value": -float(i)} for i in range(200)]
MEANS = [-(i + 1.0) for i in range(200) if i % 4 < 2]  # of the others, of two keys by turns, by two
SCHEMA = {"key": "string", "value": "double"}
WHERE = ["latest", "splits", "read"]


class Fragile(WrappedSource):
    """Raises from a record on where it is asked for what is in the next line of a file."""

    def __init__(self, source, harm, at=50):
        super().__init__(source)
        self.harm, self.at = harm, at

    def description(self):
        return {**self.source.description(), "fragile": True}

    def _ask(self, where, reached=True):
        left = self.harm.read_text().splitlines() if self.harm.exists() else []
        if reached and left[:1] == [where]:
            self.harm.write_text("\n".join(left[1:]))
            raise OSError("gone")

    def initial(self):
        self._ask("initial")
        return self.source.initial()

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        self._ask("latest", end["row"] > self.at)
        return end

    def splits(self, start, end, n):
        self._ask("splits", end["row"] > self.at)
        return self.source.splits(start, end, n)

    def read(self, split):
        for batch in self.source.read(split):
            self._ask("read", batch.column("seq")[batch.num_rows - 1].as_py() >= self.at)
            yield batch


def of_two(name):
    """A dataflow with two sources, each of which has a sink, and a step of both with one as well."""
    flow = ro.Dataflow(name)
    first, second = (flow.source(one, schema=SCHEMA) for one in ("in", "other"))
    flow.sink("first", first)
    flow.sink("second", second.to(t.MovingAverage(by="key", window=2), id="mean"))
    flow.sink("both", ro.merge(first, second).to(t.KalmanFilter(by="key"), id="level"))
    return flow


def of_one(name, source="in"):
    flow = ro.Dataflow(name)
    return flow.sink("out", flow.source(source, schema=SCHEMA).to(t.MovingAverage(by="key", window=2), id="mean"))


def rows(sink, stream):
    table = sink.table(stream)
    return sorted(exact(row) for row in table.to_pylist()) if table.num_rows else []


def alone(flow, given, stream="mean"):
    return sorted(exact(row) for row in flow.run(given)[stream].to_pylist())


def values(sink, stream):
    return sorted(row["value"] for row in sink.table(stream).to_pylist()) if sink.table(stream).num_rows else []


@pytest.fixture
def harm(tmp_path):
    return tmp_path / "harm"


def often(where):
    return f"{where}\n" * 1000


@pytest.fixture
def opened(tmp_path):
    made, good = [], Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    def open(other, sinks=None, **options):
        options = {"max_records": 10, "tries": 1, "join": True, **options}
        log = None if sinks is None else tmp_path / "log.jsonl"
        sources = {"in": good, "other": Gated(other, tmp_path / "gate") if other is not None else None}

        def rebind(name, flow):
            if None in (given := {one.id: sources[one.id] for one in flow.kind("source")}).values():
                raise OSError("no such broker")
            return (given, sinks[name])

        made.append(ReuseManager(FakeSpark(tmp_path / "back", **options), log=log, rebind=rebind))
        return made[-1], sources, (tmp_path / "gate").touch

    yield open
    for manager in made:
        manager.close()


def only(flow, sources):
    return {node.id: sources[node.id] for node in flow.kind("source")}


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
@pytest.mark.parametrize("where", WHERE)
def test_others_of_the_query_go_on(where, on_failure, opened, harm, caplog):
    harm.write_text(often(where))
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm))
    flows = {"ada": of_two("ada"), "bob": of_one("bob"), "cyd": of_one("cyd", "other")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, only(flow, sources), sinks[name], on_failure=on_failure)
    assert manager.stats()["queries"] == 1
    go()
    assert manager.backend.wait(20)
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    until(lambda: manager.stats()["failed"] == dict.fromkeys(("ada", "cyd"), "OSError: gone"))
    everything = [row["value"] for row in ROWS]
    got = values(sinks["ada"], "in")
    assert got == everything if on_failure == "detach" else got == everything[: len(got)] and 40 <= len(got) < 200
    full = alone(flows["cyd"], {"other": OTHER})
    for one in ("ada", "cyd"):  # what came before stays
        got = values(sinks[one], "mean")[::-1]
        assert 16 <= len(got) < len(MEANS) and got == MEANS[: len(got)]
    assert {row["seq"] for row in sinks["ada"].table("level").to_pylist()} <= {*range(130)}
    told = [record.message for record in caplog.records if "left out" in record.message]
    assert [one.partition(" of ")[2] for one in sorted(told, key=lambda one: " of cyd" in one)] == [
        f"{name} cannot be read, and is left out from now on: OSError: gone" for name in ("ada", "cyd")
    ]
    assert manager.stats()["restarts"] == dict.fromkeys(flows, 1) and manager.stats()["queries"] == 1
    harm.unlink()
    late = ro.MemorySink()
    report = manager.submit(of_one("late", "other"), only(of_one("late", "other"), sources), late)
    assert "other" not in report.reused and report.first["other"] == 0, "who comes later reads it anew"
    assert manager.backend.wait(20) and rows(late, "mean") == full
    for name in (*flows, "late"):
        manager.remove(name)
    assert not manager.backend.running()


@pytest.mark.parametrize("where", WHERE)
def test_what_fails_for_a_moment_is_tried_again(where, opened, harm):
    harm.write_text(f"{where}\n{where}\n")
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), tries=3)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, only(flow, sources), sinks[name])
    go()
    assert manager.backend.wait(20) and not harm.read_text() and not manager.stats()["failed"]
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "mean") == MEANS[::-1]


def test_where_it_is_all_that_is_read_a_restart_tries_again(opened, harm, tmp_path):
    """Nothing is left out then, and so nothing is lost."""
    harm.write_text(often("read"))
    source = Fragile(ro.MemorySource(OTHER), harm)
    sink = ro.ParquetSink(tmp_path / "ada")
    flow = of_one("ada", "other")
    manager, sources, go = opened(source, {"ada": sink})
    manager.submit(flow, only(flow, sources), sink)
    go()
    until(lambda: "OSError: gone" in manager.stats()["failed"].get("ada", ""))
    assert not (tmp_path / "back" / "fragments" / "f0" / "broken.json").exists()
    manager.backend.kill()
    manager._journal.close()
    harm.unlink()
    manager, _, _ = opened(source, {"ada": sink})
    assert manager.backend.wait(20) and not manager.stats()["failed"]
    assert rows(sink, "mean") == alone(flow, OTHER)


@pytest.mark.parametrize("there", [True, False])
def test_after_a_restart(there, opened, harm, tmp_path):
    """What was left out stays so; what cannot be opened again is left out then."""
    if there:
        harm.write_text(often("read"))
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), sinks)
    for name, flow in flows.items():
        manager.submit(flow, only(flow, sources), sinks[name])
    for fragment in manager.backend._fragments.values():
        fragment.query.delay_s = 0.02
    go()
    until(lambda: manager.stats()["failed"] if there else manager.stats()["records"].get("in.0", 0) > 40)
    manager.backend.kill()
    manager._journal.close()
    harm.unlink(missing_ok=True)
    manager, _, _ = opened(Fragile(ro.MemorySource(OTHER), harm) if there else None, sinks)
    assert manager.backend.wait(20)
    until(lambda: manager.stats()["failed"].keys() == {"ada"})
    [why] = manager.stats()["failed"].values()
    assert why == "OSError: gone" if there else "no such broker" in why
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)


def test_queries_become_one_without_it(opened, harm):
    harm.write_text(often("read"))
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), join=False)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, only(flow, sources), sinks[name])
    go()
    until(lambda: manager.stats()["failed"])
    harm.write_text(often("initial"))
    manager.defragment()
    assert manager.stats()["fragments"] == 1
    assert manager.backend.wait(20)
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "in") == [row["value"] for row in ROWS]
    assert manager.stats()["failed"] == {"ada": "OSError: gone"}


def test_what_cannot_begin_where_queries_become_one_is_left_out(opened, harm):
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), join=False)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, only(flow, sources), sinks[name])
    harm.write_text(often("initial"))
    manager.defragment()
    go()
    assert manager.backend.wait(20)
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "in") == [row["value"] for row in ROWS]
    until(lambda: manager.stats()["failed"] == {"ada": "OSError: gone"})
