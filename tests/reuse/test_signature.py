"""Signatures: which steps count as equal."""

from __future__ import annotations

import copy
import hashlib
import operator
import random
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.ingest.pace import PacedSource
from riot_ops.ingest.replay import replay
from riot_ops.ingest.stream_source import StreamSource
from riot_ops.reuse.errors import DescriptorError
from riot_ops.reuse.signature import digest, identify_steps, signatures, unique_token
from riot_ops.streams.repeating import RepeatingSource
from riot_ops.streams.riotbench.city import CitySource, city
from riot_ops.task import StatelessTask
from tests.random_flows import SCHEMA, random_flow
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


def one(task, name="k", source="in", schema=SCHEMA, spread=lambda s: s, sink="out"):
    flow = ro.Dataflow(name)
    return flow.sink(sink, spread(flow.source(source, schema=schema)).to(task, id=name))


def mark(*args, node="k", **options):
    return signatures(one(*args, name=node, **options))[node]


@given(SEEDS, st.integers(1, 2))
@settings(max_examples=depth(25))
def test_names_and_json_change_no_signature(choose, sources):
    flow = random_flow(choose, sources=sources, functions=False)
    again = ro.Dataflow.from_json(flow.to_json())
    assert signatures(again) == signatures(flow)
    data = flow.to_dict()
    names = {n["id"]: f"x{i}" if n["kind"] == "task" else n["id"] for i, n in enumerate(data["nodes"])}
    for node in data["nodes"]:
        node["id"] = names[node["id"]]
    for edge in data["edges"]:
        edge["from"], edge["to"] = names[edge["from"]], names[edge["to"]]
    data["name"] = "other"
    renamed = signatures(ro.Dataflow.from_dict(data))
    assert {names[node]: found for node, found in signatures(flow).items()} == renamed


@given(SEEDS)
@settings(max_examples=depth(25))
def test_parameter_changes_the_step_and_those_downstream(choose):
    flow = random_flow(choose, functions=False)
    data = flow.to_dict()
    at = choose.choice([n for n in data["nodes"] if n["kind"] == "task"])
    at["task"] = {**at["task"], **_other(at["task"])}
    changed = signatures(ro.Dataflow.from_dict(data))
    behind = {at["id"]}
    for node in flow.topological_order():
        if any(e.source in behind for e in flow.inputs(node.id)):
            behind.add(node.id)
    before = signatures(flow)
    assert {node for node in before if before[node] != changed[node]} == behind


def _other(task):
    if "frame" in task:  # a time window, which has no ttl
        return {"allowed_lateness": "PT77S"}
    if "ttl" in task:
        return {"ttl": "PT77S"}
    return {"field": "obs_type"} if "field" in task else {"bounds": {"light": [-1, 1]}}


def test_defaults_and_spellings_of_parameters_are_equal():
    assert mark(t.KalmanFilter()) == mark(t.KalmanFilter(process_noise=0.125))
    assert mark(t.KalmanFilter(by="device")) == mark(t.KalmanFilter(by=("device",)))
    assert mark(t.KalmanFilter(ttl="1min")) == mark(t.KalmanFilter(ttl=timedelta(seconds=60)))
    assert mark(t.KalmanFilter(process_noise=1)) == mark(t.KalmanFilter(process_noise=1.0))


def test_task_version_inputs_and_distribution_matter(monkeypatch):
    base = mark(t.KalmanFilter())
    assert base != mark(t.MovingAverage())
    assert base != mark(t.KalmanFilter(), schema={**SCHEMA, "more": "double"})
    assert base != mark(t.KalmanFilter(), source="other")
    spreads = [
        lambda s: s.shuffle(2),
        lambda s: s.shuffle(3),
        lambda s: s.partition_by("device"),
        lambda s: s.partition_by("obs_type"),
        lambda s: s.to_single(),
        lambda s: s.broadcast(2),
    ]
    assert len({base, *(mark(t.KalmanFilter(), spread=spread) for spread in spreads)}) == 7
    monkeypatch.setattr(t.KalmanFilter, "version", 99)
    assert base != mark(t.KalmanFilter())


def test_input_order_does_not_matter():
    def flow(swap):
        flow = ro.Dataflow("f")
        source = flow.source("in", schema=SCHEMA)
        a, b = (source.to(t.KalmanFilter(process_noise=q), id=f"k{q}") for q in (0.5, 0.25))
        a, b = (b, a) if swap else (a, b)
        flow.sink("both", ro.merge(a, b).to(t.Variance(), id="v"))
        return flow.sink("out", a, b)

    assert signatures(flow(False)) == signatures(flow(True))


def test_input_order_matters_between_functions_without_a_version():
    def one(row):
        return {"value": 1.0}

    def other(row):
        return {"value": 2.0}

    def flow(swap, name):
        flow = ro.Dataflow("f")
        source = flow.source("in", schema=SCHEMA)
        ends = [
            source.to(ro.map(f, label=name, adds={"value": "double"}), id=id) for f, id in ((one, "a"), (other, "b"))
        ]
        return flow.sink("both", ro.merge(*ends[:: -1 if swap else 1]).to(t.Variance(), id="v"))

    # records of one message would come in another order
    assert signatures(flow(False, "same"))["v"] != signatures(flow(True, "same"))["v"]
    assert signatures(flow(False, None)) == signatures(flow(True, None))


def test_inputs_keep_their_distribution():
    def flow(first, second):
        flow = ro.Dataflow("f")
        a, b = (flow.source(name, schema=SCHEMA) for name in "ab")
        flow.add(t.KalmanFilter(), first(a), second(b), id="k")
        return flow.sink("out", flow.stream("k"))

    spread, copied = lambda stream: stream.shuffle(2), lambda stream: stream.broadcast(2)
    assert signatures(flow(spread, copied))["k"] != signatures(flow(copied, spread))["k"]


def test_function_is_identified_by_name_and_version():
    def f(row):
        return row

    def g(row):
        return {}

    for make in (ro.map, ro.flat_map, ro.filter, ro.map_batches):
        assert mark(make(f)) == mark(make(f)) != mark(make(g))
        assert mark(make(f, label="n")) != mark(make(g, label="n"))
        assert mark(make(f, label="n", revision=1)) == mark(make(g, label="n", revision=1))
        assert len({mark(make(f, label=n, revision=v)) for n, v in (("n", 1), ("n", 2), ("m", 1), ("n", "1"))}) == 4
        with pytest.raises(ro.ConfigError, match="needs a label"):
            make(f, revision=1)
    assert mark(ro.map(f, label="n", revision=1)) != mark(ro.map(f, label="n", revision=1, adds={"x": "double"}))
    assert mark(ro.keyed(f, label="n", revision=1)) == mark(ro.keyed(g, label="n", revision=1))
    assert mark(ro.keyed(f, label="n", revision=1)) != mark(ro.keyed(f, label="n", revision=1, initial=3))
    assert mark(t.KalmanFilter(), spread=lambda s: s.partition_custom(f, 2)) != mark(
        t.KalmanFilter(), spread=lambda s: s.partition_custom(g, 2)
    )


def test_rewritten_function_is_different(monkeypatch):
    def written(result):
        def again(row):
            return result

        again.__qualname__ = "again"  # as for a function of a module
        monkeypatch.setitem(globals(), "again", again)
        return ro.map(again)

    one, other = written({"value": 1.0}), written({"value": 2.0})
    assert other.to_dict()["function"] == f"{__name__}:again"
    assert mark(one) == mark(one) != mark(other)


def test_versioned_function_survives_json():
    task = ro.map(dict, label="copy", revision="2024-1")
    assert task.to_dict()["revision"] == "2024-1" and "revision" not in ro.map(dict).to_dict()
    assert t.MapFunction.with_function(task.to_dict(), dict) == task


def test_secret_is_identified_by_its_name():
    def publish(secret):
        return t.PublishMQTT(url="memory://x", topic="t", username="u", password=secret)

    named = mark(publish(ro.Secret.env("A")))
    assert named == mark(publish(ro.Secret.env("A"))) != mark(publish(ro.Secret.env("B")))
    assert mark(publish(ro.Secret("a"))) != mark(publish(ro.Secret("a")))


def of(source, flow=None):
    flow = flow or one(t.KalmanFilter())
    return signatures(flow, {"in": source})["in"]


def test_source_is_identified_by_its_input(tmp_path):
    (tmp_path / "a.csv").write_text("1,x\n")
    (tmp_path / "b.csv").write_text("1,x\n")
    table = pa.table({"seq": [0, 1], "value": [1.0, 2.0]})
    makes = [
        lambda: CitySource(10),
        lambda: CitySource(11),
        lambda: CitySource(10, seed=1),
        lambda: city(10, rate=5),
        lambda: city(10, rate=6),
        lambda: replay(tmp_path / "a.csv"),
        lambda: replay(tmp_path / "b.csv"),
        lambda: replay(tmp_path / "a.csv", repeat=2),
        lambda: replay(tmp_path / "a.csv", has_header=True),
        lambda: replay(tmp_path / "a.csv", times=t.ParseLines(schema={"event_time": (0, "s")}, delimiter=",")),
        lambda: replay(tmp_path / "a.csv", times=t.ParseLines(schema={"event_time": (0, "s")}, delimiter=";")),
        lambda: ro.MemorySource(table),
        lambda: ro.MemorySource(table.slice(1)),
        lambda: RepeatingSource(table, 3),
        lambda: RepeatingSource(table, 4),
        lambda: ro.read(tmp_path / "a.csv", header=["a", "b"]),
        lambda: ro.read(tmp_path / "a.csv", header=["a", "c"]),
        lambda: ro.read(tmp_path / "b.csv", header=["a", "b"]),
    ]
    found = [of(make()) for make in makes]
    assert found == [of(make()) for make in makes]
    assert len(set(found)) == len(found)


def test_undescribed_source_equals_only_itself():
    def source():
        return StreamSource(lambda row: iter(()), pa.schema({"value": pa.float64()}))

    first, second = source(), source()
    assert of(first) == of(first) != of(second)
    assert of(PacedSource(first, speed=None, rate=1.0)) != of(PacedSource(first, rate=1.0))


def test_subscription_is_equal_for_all_holders(tmp_path):
    def subscription(**options):
        name = options.pop("client_id", "a")
        given = {"url": "memory://x", "topics": ("a/#",), **options}
        return of(MQTTSource(client_id=name, spool=str(tmp_path / name), **given))

    assert subscription() == subscription(client_id="b")
    assert len({subscription(), subscription(topics=("b",)), subscription(qos=2), subscription(url="memory://y")}) == 4
    named = subscription(username="u", password=ro.Secret.env("A"))
    assert named == subscription(username="u", password=ro.Secret.env("A"), client_id="b")
    assert named != subscription(username="u", password=ro.Secret.env("B"))
    plain = [subscription(username="u", password=ro.Secret("a")) for _ in range(2)]
    assert plain[0] != plain[1]


def two(merging, names=("a", "b")):
    flow = ro.Dataflow("two", merging=merging)
    streams = [flow.source(name, schema=SCHEMA) for name in names]
    return flow.sink("out", ro.merge(*streams).to(t.KalmanFilter(), id="k"))


def test_sources_read_as_one_log_have_a_role():
    apart = signatures(one(t.KalmanFilter(), source="a"))["a"]
    found = {merging: signatures(two(merging)) for merging in ("arrival", "number", "sequence")}
    assert found["arrival"]["a"] == apart, "merged by arrival, a source does not depend on others"
    assert len({marks["a"] for marks in found.values()}) == len({marks["k"] for marks in found.values()}) == 3
    assert found["number"]["a"] != signatures(two("number", ("a", "c")))["a"]
    for merging, same in (("arrival", True), ("number", False), ("sequence", False)):
        swapped = signatures(two(merging, ("b", "a")))
        assert [swapped[node] == found[merging][node] for node in "abk"] == [same] * 3


def test_sink_is_identified_by_name_and_type(tmp_path):
    flow = one(t.KalmanFilter())
    kinds = [ro.MemorySink(), ro.ParquetSink(tmp_path), ro.ConsoleSink()]
    found = [signatures(flow, sinks={"out": sink})["out"] for sink in kinds]
    assert len({*found, signatures(flow)["out"], signatures(one(t.KalmanFilter(), sink="other"))["other"]}) == 5
    assert found[0] == signatures(flow, sinks={"out": ro.MemorySink()})["out"]


def test_step_downstream_of_state_is_stateful():
    flow = ro.Dataflow("f")
    clean = flow.source("in", schema=SCHEMA).to(t.RangeFilter(bounds={"light": (0, 1)}), id="range")
    late = clean.to(t.KalmanFilter(), id="k").to(t.RangeFilter(bounds={"light": (0, 1)}), id="again")
    flow.sink("early", clean).sink("late", late)
    found = {node: piece.stateful for node, piece in identify_steps(flow).items()}
    assert found == {"in": False, "range": False, "early": False, "k": True, "again": True, "late": True}


def test_digest_is_canonical():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest("e\u0301") != digest("é"), "files and filters distinguish them"
    assert digest(-0.0) == digest(0.0) != digest(0)
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    parts = (b'"riot_ops.reuse/1"', b'"\xc3\xbc"', b'{"a":[1,2.5,null]}')
    encoded = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert digest("ü", {"a": (1, 2.5, None)}) == hashlib.sha256(encoded).hexdigest()
    for number in (float("nan"), float("inf")):
        with pytest.raises(DescriptorError, match="JSON"):
            digest(number)
    with pytest.raises(DescriptorError, match="surrogates not allowed"):
        digest("\ud800")


def words(*texts):
    return pa.table({"device": pa.array(texts).dictionary_encode()})


def test_dictionary_tables_differ_by_their_words():
    found = {of(make) for make in (ro.MemorySource(words("a", "b")), ro.MemorySource(words("x", "y")))}
    nested = [pa.table({"s": pa.StructArray.from_arrays([words(*w)["device"].chunk(0)], ["d"])}) for w in ("ab", "xy")]
    assert len(found | {of(ro.MemorySource(table)) for table in nested}) == 4
    assert of(ro.MemorySource(words("a", "b"))) in found


class Room(ro.MemorySource):
    """The records of one room in a table."""

    def __init__(self, records, room):
        super().__init__(records)
        self.room = room


class Named(Room):
    def description(self):
        return {"room": self.room}


def test_user_source_does_not_inherit_a_description():
    rows = [{"room": "a"}, {"room": "b"}]
    a, b = Room(rows, "a"), Room(rows, "b")
    assert of(a) == of(a) and len({of(a), of(b), of(ro.MemorySource(rows))}) == 3
    assert of(PacedSource(a, rate=1)) != of(PacedSource(b, rate=1)) != of(PacedSource(ro.MemorySource(rows), rate=1))
    assert of(Named(rows, "a")) == of(Named(rows, "a")) != of(Named(rows, "b"))
    assert of(PacedSource(Named(rows, "a"), rate=1)) == of(PacedSource(Named(rows, "a"), rate=1))


@dataclass(frozen=True, kw_only=True)
class Given(StatelessTask):
    """A user's task with a parameter of any type."""

    value: Any

    def apply(self, batch, rejects):
        return batch


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("one_value", "other"),
    [
        (lambda c: c, lambda c: -c),
        (np.arange(5000), np.arange(5000) + 1),
        (INFINITE, -INFINITE),
        ((1.0, INFINITE), (1.0, None)),
        ({1: 2}, {"1": 2}),
        (Decimal("1.5"), "1.5"),
        (object(), object()),
    ],
)
def test_values_equal_in_json_stay_different(one_value, other):
    assert mark(Given(value=one_value)) == mark(Given(value=one_value)) != mark(Given(value=other))


def test_plain_parameters_of_a_user_task_are_shared():
    for value in (1, "x", None, 2.5, [1, "a"], {"a": (1, 2)}, timedelta(seconds=1)):
        assert mark(Given(value=value)) == mark(Given(value=copy.deepcopy(value)))


def test_user_aggregates_are_identified_by_their_functions():
    def window(*functions):
        aggregate = t.Aggregate("e", (0.0,), *functions)
        return mark(t.Window(frame="1min", aggregates={"e": ("light", aggregate)}))

    def square(c, x):
        c[0] += x * x

    def cube(c, x):
        c[0] += x**3

    def merge(c, o):
        c[0] += o[0]

    def first(c):
        return c[0]

    assert window(square, merge, first) == window(square, merge, first) != window(cube, merge, first)


def test_object_without_weak_references_keeps_its_token():
    getter = operator.itemgetter("ok")
    assert unique_token(getter) == unique_token(getter) != unique_token(operator.itemgetter("ok"))


def test_token_is_not_reused_after_an_object_is_gone():
    class Thing:
        """An object that may get the address of an earlier one."""

    kept = Thing()
    assert unique_token(kept) == unique_token(kept)
    assert len({unique_token(Thing()) for _ in range(100)} | {unique_token(kept)}) == 101


@pytest.mark.long
def test_ten_thousand_steps_need_no_recursion():
    flow = ro.Dataflow("long")
    stream = flow.source("in", schema={"value": "double"})
    for i in range(10_000):
        stream = stream.to(t.KalmanFilter(process_noise=1.0 + i % 7), id=f"k{i}")
    assert len(set(signatures(flow.sink("out", stream)).values())) == 10_002


def test_signatures_are_stable_across_processes():
    # logs and checkpoints hold signatures: another value here is another format
    assert mark(t.KalmanFilter())[:16] == "885196f22132a8d4"
