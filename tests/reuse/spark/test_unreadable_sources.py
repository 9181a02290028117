"""Sources that cannot be read fail only the dataflows that read them. Without Spark."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import WrappedSource
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark.failures import FAILURES
from riot_ops.testing import exact
from tests.reuse.spark.dataflows import until
from tests.reuse.spark.fake_spark import FakeSpark, Gated

ROWS = [{"key": f"k{i % 3}", "value": float(i)} for i in range(200)]
OTHER = [{"key": f"k{i % 2}", "value": -float(i)} for i in range(200)]
MEANS = [-(i + 1.0) for i in range(200) if i % 4 < 2]  # means of two values of OTHER, whose two keys alternate
SCHEMA = {"key": "string", "value": "double"}
METHODS = ["latest", "splits", "read"]


class Fragile(WrappedSource):
    """Raises, from a record on, in the method that the next line of a file names."""

    def __init__(self, source, harm, at=50):
        super().__init__(source)
        self.harm, self.at = harm, at

    def description(self):
        return {**self.source.description(), "fragile": True}

    def _check(self, method, reached=True):
        left = self.harm.read_text().splitlines() if self.harm.exists() else []
        if reached and left[:1] == [method]:
            self.harm.write_text("\n".join(left[1:]))
            raise OSError("gone")

    def initial(self):
        self._check("initial")
        return self.source.initial()

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        self._check("latest", end["row"] > self.at)
        return end

    def splits(self, start, end, n):
        self._check("splits", end["row"] > self.at)
        return self.source.splits(start, end, n)

    def read(self, split):
        for batch in self.source.read(split):
            self._check("read", batch.column("seq")[batch.num_rows - 1].as_py() >= self.at)
            yield batch


def of_two(name):
    """Make a dataflow with two sources; each has a sink, and so has a step that reads both."""
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


def alone(flow, records, stream="mean"):
    return sorted(exact(row) for row in flow.run(records)[stream].to_pylist())


def values(sink, stream):
    return sorted(row["value"] for row in sink.table(stream).to_pylist()) if sink.table(stream).num_rows else []


@pytest.fixture
def harm(tmp_path):
    return tmp_path / "harm"


def always(method):
    return f"{method}\n" * 1000


@pytest.fixture
def opened(tmp_path):
    managers, good = [], Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    def open(other, sinks=None, **options):
        options = {"max_records": 10, "tries": 1, "join": True, **options}
        log = None if sinks is None else tmp_path / "log.jsonl"
        sources = {"in": good, "other": Gated(other, tmp_path / "gate") if other is not None else None}

        def rebind(name, flow):
            if None in (given := {one.id: sources[one.id] for one in flow.nodes_of_kind("source")}).values():
                raise OSError("no such broker")
            return (given, sinks[name])

        managers.append(ReuseManager(FakeSpark(tmp_path / "back", **options), log=log, rebind=rebind))
        return managers[-1], sources, (tmp_path / "gate").touch

    yield open
    for manager in managers:
        manager.close()


def select(flow, sources):
    return {node.id: sources[node.id] for node in flow.nodes_of_kind("source")}


@pytest.mark.long
@pytest.mark.parametrize("on_failure", ["detach", "stop"])
@pytest.mark.parametrize("method", METHODS)
def test_other_sources_of_the_query_continue(method, on_failure, opened, harm, caplog):
    harm.write_text(always(method))
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm))
    flows = {"ada": of_two("ada"), "bob": of_one("bob"), "cyd": of_one("cyd", "other")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, select(flow, sources), sinks[name], on_failure=on_failure)
    assert manager.stats()["queries"] == 1
    go()
    assert manager.backend.wait("20s")
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    until(lambda: manager.stats()["failed"] == dict.fromkeys(("ada", "cyd"), "OSError: gone"))
    everything = [row["value"] for row in ROWS]
    got = values(sinks["ada"], "in")
    assert got == everything if on_failure == "detach" else got == everything[: len(got)] and 40 <= len(got) < 200
    full = alone(flows["cyd"], {"other": OTHER})
    for one in ("ada", "cyd"):  # the records from before the failure stay
        got = values(sinks[one], "mean")[::-1]
        assert 16 <= len(got) < len(MEANS) and got == MEANS[: len(got)]
    assert {row["seq"] for row in sinks["ada"].table("level").to_pylist()} <= {*range(130)}
    warnings = [record.message for record in caplog.records if "is disabled" in record.message]
    assert [one.partition(" of ")[2] for one in warnings] == [
        "ada, cyd cannot be read, and is disabled from now on: OSError: gone"
    ]
    assert manager.stats()["restarts"] == dict.fromkeys(flows, 1) and manager.stats()["queries"] == 1
    harm.unlink()
    late = ro.MemorySink()
    report = manager.submit(of_one("late", "other"), select(of_one("late", "other"), sources), late)
    assert "other" not in report.reused and report.first["other"] == 0, "a later dataflow reads the source again"
    assert manager.backend.wait("20s") and rows(late, "mean") == full
    for name in (*flows, "late"):
        manager.remove(name)
    assert not manager.backend.running_steps()


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_transient_error_of_a_source_is_retried(method, opened, harm):
    harm.write_text(f"{method}\n{method}\n")
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), tries=3)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, select(flow, sources), sinks[name])
    go()
    assert manager.backend.wait("20s") and not harm.read_text() and not manager.stats()["failed"]
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "mean") == MEANS[::-1]


@pytest.mark.long
def test_only_source_of_a_query_is_retried_after_a_restart(opened, harm, tmp_path):
    """It is not disabled, so no records are lost."""
    harm.write_text(always("read"))
    source = Fragile(ro.MemorySource(OTHER), harm)
    sink = ro.ParquetSink(tmp_path / "ada")
    flow = of_one("ada", "other")
    manager, sources, go = opened(source, {"ada": sink})
    manager.submit(flow, select(flow, sources), sink)
    go()
    until(lambda: "OSError: gone" in manager.stats()["failed"].get("ada", ""))
    assert not (tmp_path / "back" / "fragments" / "f0" / FAILURES).exists()
    manager.backend.kill()
    manager.journal.close()
    harm.unlink()
    manager, _, _ = opened(source, {"ada": sink})
    assert manager.backend.wait("20s") and not manager.stats()["failed"]
    assert rows(sink, "mean") == alone(flow, OTHER)


@pytest.mark.long
@pytest.mark.parametrize("opens", [True, False])
def test_restart_keeps_a_source_disabled_or_disables_it(opens, opened, harm, tmp_path):
    """A disabled source stays disabled, and one that cannot be opened again is disabled then."""
    if opens:
        harm.write_text(always("read"))
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), sinks)
    for name, flow in flows.items():
        manager.submit(flow, select(flow, sources), sinks[name])
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.02
    go()
    until(lambda: manager.stats()["failed"] if opens else manager.stats()["records"].get("in.0", 0) > 40)
    manager.backend.kill()
    manager.journal.close()
    harm.unlink(missing_ok=True)
    manager, _, _ = opened(Fragile(ro.MemorySource(OTHER), harm) if opens else None, sinks)
    assert manager.backend.wait("20s")
    until(lambda: manager.stats()["failed"].keys() == {"ada"})
    [why] = manager.stats()["failed"].values()
    assert why == "OSError: gone" if opens else "no such broker" in why
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)


@pytest.mark.long
def test_queries_are_merged_without_a_disabled_source(opened, harm):
    harm.write_text(always("read"))
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), join=False)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, select(flow, sources), sinks[name])
    go()
    until(lambda: manager.stats()["failed"])
    harm.write_text(always("initial"))
    manager.defragment()
    assert manager.stats()["fragments"] == 1
    assert manager.backend.wait("20s")
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "in") == [row["value"] for row in ROWS]
    assert manager.stats()["failed"] == {"ada": "OSError: gone"}


@pytest.mark.long
def test_failing_source_of_a_new_merged_query_is_disabled(opened, harm):
    manager, sources, go = opened(Fragile(ro.MemorySource(OTHER), harm), join=False)
    flows = {"ada": of_two("ada"), "bob": of_one("bob")}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, select(flow, sources), sinks[name])
    harm.write_text(always("initial"))
    manager.defragment()
    go()
    assert manager.backend.wait("20s")
    assert rows(sinks["bob"], "mean") == alone(flows["bob"], ROWS)
    assert values(sinks["ada"], "in") == [row["value"] for row in ROWS]
    until(lambda: manager.stats()["failed"] == {"ada": "OSError: gone"})
