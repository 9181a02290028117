"""Merging of the messages of several sources."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.runtime.merged_source import merge_sources
from riot_ops.testing import ABORT, ADVANCE, PAUSE, ScriptedSource
from tests.simulated_query import SimulatedQuery

SCHEMA = {"seq": "int64", "event_time": "timestamp[us, tz=UTC]", "name": "string"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def flow_of(merging, names=("a", "b", "c")):
    """A dataflow that numbers the records of all sources in their order of arrival."""
    flow = ro.Dataflow("together", merging=merging)
    streams = [flow.source(name, schema=SCHEMA) for name in names]
    flow.sink("out", ro.merge(*streams).to(t.RunningCount(), id="counted"))
    return flow


def records(name, n):
    return [{"seq": i, "event_time": EPOCH + timedelta(seconds=i), "name": f"{name}{i}"} for i in range(n)]


def expected_order(merging, sizes):
    """Return the names of all records in the expected order."""
    lists = [[f"{name}{i}" for i in range(n)] for name, n in sizes.items()]
    if merging == "sequence":
        return [one for names in lists for one in names]
    return [one for row in zip_longest(*lists) for one in row if one is not None]


def found(table):
    return [row["name"] for row in sorted(table.to_pylist(), key=lambda row: row["count"])]


sizes = st.tuples(*[st.integers(0, 12)] * 3).map(lambda ns: dict(zip("abc", ns, strict=True)))
ways = st.sampled_from(["number", "sequence"])


@given(ways, sizes, st.integers(1, 7), st.sampled_from([1, 2]))
def test_order_is_independent_of_batches(merging, sizes, batch_size, cores):
    source = {name: records(name, n) for name, n in sizes.items()}
    result = flow_of(merging).run(source, batch_size=batch_size, cores=cores)["counted"]
    assert found(result) == expected_order(merging, sizes)
    numbers = [row["seq"] for row in sorted(result.to_pylist(), key=lambda row: row["count"])]
    assert numbers == sorted(set(numbers))


@pytest.mark.long
@given(ways, sizes, st.integers(0, 1 << 32))
def test_order_on_simulated_spark(merging, sizes, seed):
    choose = random.Random(seed)
    source = {name: records(name, n) for name, n in sizes.items()}
    query = SimulatedQuery(
        flow_of(merging), source, choose, max_records=choose.choice([1, 4]), partitions=choose.choice([1, 3])
    )
    assert found(query["counted"]) == expected_order(merging, sizes)


@pytest.mark.parametrize("merging", ["number", "sequence"])
def test_restart_continues_in_order(merging, tmp_path):
    sizes = {"a": 5, "b": 3}
    flow = flow_of(merging, ("a", "b"))
    kept = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    source = {"a": records("a", 5), "b": ScriptedSource([records("b", 2), ABORT, records("b", 3)[2:]])}
    with pytest.raises(ConnectorError, match="ABORT"):
        flow.run(source, **kept, batch_size=2, epoch_rows=1)
    assert found(flow.run(source, **kept)["counted"]) == expected_order(merging, sizes)
    other = flow_of("sequence" if merging == "number" else "number", ("a", "b"))
    with pytest.raises(StateError, match="merging: of sources was"):
        other.run(source, **kept)


def test_lagging_source_holds_others_back():
    """By number, message 1 of the fast source waits for message 0 of the slow one."""
    slow = ScriptedSource([records("b", 1), PAUSE("10ms"), records("b", 2)[1:]])
    result = flow_of("number", ("a", "b")).run({"a": records("a", 3), "b": slow}, batch_size=2)["counted"]
    assert found(result) == ["a0", "b0", "a1", "b1", "a2"]


@pytest.mark.parametrize(
    ("states", "ends"),
    [
        ("--", [0, 0]),  # no source has a heartbeat
        ("h-", [1, 0]),  # the first source moves time
        ("-h", [0, 0]),  # heartbeats of the first source may come
        ("rh", [0, 1]),  # none is left; its message waits for the second source
        ("eh", [0, 1]),
        ("hh", [1, 0]),
        ("rr", [1, 1]),
        ("hr", [1, 0]),
    ],
)
def test_heartbeat_waits_for_messages_of_earlier_sources(states, ends):
    """Each source has nothing yet, a heartbeat, a record, or has ended."""
    parts = {"-": [PAUSE("9s")], "h": [ADVANCE(EPOCH), PAUSE("9s")], "r": [records("x", 1), PAUSE("9s")], "e": []}
    more = {kind: part if kind == "e" else [*part, records("y", 1)] for kind, part in parts.items()}
    schema = pa.schema([("seq", pa.int64()), ("event_time", TIMESTAMP), ("name", pa.string())])
    sources = {name: ScriptedSource(more[kind], schema) for name, kind in zip("ab", states, strict=True)}
    (source,) = merge_sources(flow_of("number", "ab"), sources).values()
    end = source.latest(source.initial())
    assert [end[name]["item"] for name in "ab"] == ends


def test_probe_matches_results_with_merged_sources():
    for merging in ("number", "sequence"):
        probe = ro.Probe()
        flow_of(merging, ("a", "b")).run({"a": records("a", 300), "b": records("b", 200)}, probe=probe)
        report = probe.report()
        assert report.inputs == report.outputs == 500
        values, weights = report.latencies()
        assert weights.sum() == 500
        assert (values >= 0).all()


def test_merging_is_part_of_descriptor():
    flow = flow_of("sequence")
    again = ro.Dataflow.from_json(flow.to_json())
    assert again.merging == "sequence"
    assert '"merging"' not in flow_of("arrival").to_json()
    with pytest.raises(ConfigError, match=r"merging must be arrival, number, sequence, got 'numbers'.*did you mean"):
        ro.Dataflow("wrong", merging="numbers")
