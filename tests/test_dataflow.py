"""The verbs of streams, which append tasks and sinks; and the methods that run a dataflow, with all options."""

from __future__ import annotations

import builtins
import inspect

import pytest

import riot_ops as ro
from riot_ops import runnable_graph
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.graph.plan import plan
from riot_ops.runtime import local
from riot_ops.spark import dataframe_transform, frames, runner
from riot_ops.task import Task

METHODS = [
    (ro.Dataflow.run, local, "run"),
    (ro.Dataflow.start, runner, "start"),
    (ro.Dataflow.transform, frames, "transform_flow"),
    (ro.Dataflow.frames, frames, "frames"),
    (Task.transform, dataframe_transform, "transform"),
]


def options(function):
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize(("method", "module", "name"), METHODS)
def test_signature_has_every_option(method, module, name):
    assert options(method) == options(getattr(module, name)) != {}
    assert all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())


@pytest.mark.parametrize(("method", "module", "name"), METHODS)
def test_every_option_is_passed_on(monkeypatch, method, module, name):
    got = []
    given = {option: object() for option in options(method)}
    monkeypatch.setattr(runnable_graph if module is local else module, name, lambda *_, **named: got.append(named))
    owner = t.KalmanFilter() if method is Task.transform else ro.Dataflow("any")
    arguments = (object(), object()) if name == "start" else (object(),)
    method(owner, *arguments, **given)
    assert got == [given]


def test_plan_takes_its_option():
    flow = ro.Dataflow("two")
    rows = flow.source("in", schema={"a": str, "b": str, "value": float})
    flow.sink("out", rows.to(t.KalmanFilter(by=("a", "b"))).to(t.MovingAverage(by="a", window=2)))
    for fuse in ("exact", "coarse"):
        assert repr(flow.plan(fuse)) == repr(flow.plan(fuse=fuse)) == repr(plan(flow, fuse))
    assert len(flow.plan("exact").shuffles) != len(flow.plan("coarse").shuffles)


# -- verbs -----------------------------------------------------------------------------------------

ROWS = [{"device": d, "value": v} for d, v in (("a", 1.0), ("b", 10.0), ("a", 2.0), ("b", 20.0))]


def readings(name="flow"):
    return ro.Dataflow(name).source("readings", {"device": "string", "value": "double"})


def double(row):
    return {**row, "value": 2 * row["value"]}


def low(row):
    return row["value"] < 10


def twice(row):
    return [row, row]


def total(state, row):
    return state + row["value"], {"total": state + row["value"]}


TOTAL = {"total": "double"}
#: A verb, and the same step as a task.
STEPS = {
    "map": (lambda s: s.map(double), ro.map(double)),
    "map_schema": (lambda s: s.map(lambda r: {"v": 1}, {"v": "int8"}), ro.map(lambda r: {"v": 1}, {"v": "int8"})),
    "map_adds": (
        lambda s: s.map(lambda r: {"v": 1}, adds={"v": "int8"}),
        ro.map(lambda r: {"v": 1}, adds={"v": "int8"}),
    ),
    "flat_map": (lambda s: s.flat_map(twice), ro.flat_map(twice)),
    "flat_map_schema": (
        lambda s: s.flat_map(lambda r: [{"v": 1}], {"v": "int8"}),
        ro.flat_map(lambda r: [{"v": 1}], {"v": "int8"}),
    ),
    "filter": (lambda s: s.filter(low), ro.filter(low)),
    "condition": (lambda s: s.filter("value < 10 and device == 'a'"), t.Filter("value < 10 and device == 'a'")),
    "apply": (lambda s: s.apply(t.MovingAverage(window=2)), t.MovingAverage(window=2)),
    "key": (lambda s: s.key_by("device").apply(t.RunningCount()), t.RunningCount(by="device")),
    "no_key": (lambda s: s.key_by().apply(t.RunningCount()), t.RunningCount()),
    "window": (
        lambda s: s.key_by("device").window(2).agg(mean=("value", "mean"), n="count"),
        t.Window(by="device", frame=2, aggregates={"mean": ("value", "mean"), "n": "count"}),
    ),
    "fold": (lambda s: s.key_by("device").fold(total, 0, TOTAL), ro.keyed(total, 0, "device", TOTAL)),
}


@pytest.mark.parametrize("step", STEPS)
def test_verb_is_its_task(step):
    verb, task = STEPS[step]
    results = []
    for stream in (verb(readings()), readings().to(task)):
        results.append(stream.to("out").run(ROWS)[stream.id])
    assert results[0].equals(results[1]) and results[0].num_rows


@pytest.mark.parametrize(
    "verb",
    [
        lambda s, **o: s.map(double, **o),
        lambda s, **o: s.flat_map(twice, **o),
        lambda s, **o: s.filter(low, **o),
        lambda s, **o: s.key_by("device").fold(total, 0.0, **o),
    ],
    ids=["map", "flat_map", "filter", "fold"],
)
def test_verb_passes_label_revision_and_id_on(verb):
    stream = verb(readings(), label="step", revision=3)
    task = stream.flow.nodes[stream.id].task
    assert (stream.id, task.label, task.revision) == ("step", "step", 3)
    other = verb(readings(), label="step", id="other")
    assert (other.id, other.flow.nodes["other"].task.label) == ("other", "step")


def test_fold_takes_a_time_to_live():
    stream = readings().key_by("device").fold(total, 0.0, ttl="1h")
    assert stream.flow.nodes["total"].task == ro.keyed(total, 0.0, "device", ttl="1h")


def test_aggregates_take_the_options_of_windows():
    keyed = readings().key_by("device")

    def made(frame, *aggregates, **options):
        stream = keyed.window(frame).agg(*aggregates, **options)
        return stream.flow.nodes[stream.id].task

    n = {"n": "count"}
    unique = {"n": ("value", "unique")}
    for frame, options in (
        ("1min", {"emit": "each", "aggregates": n}),
        ("1min", {"allowed_lateness": "5s", "aggregates": n}),
        (w.Session("1min"), {"max_ahead": "1h", "aggregates": n}),
        (w.Count(3, partial=True), {"ttl": "1d", "aggregates": n}),
        (3, {"secret": ro.Secret("key"), "aggregates": unique}),
    ):
        wanted = t.Window(by="device", frame=frame, **options)
        assert made(frame, **options.pop("aggregates"), **options) == wanted != wanted.replace(by=())
    assert made(3, {"emit": "count", "a b": "count"}, n="count").aggregates == {**n, "emit": "count", "a b": "count"}
    assert keyed.window(3).agg(n="count", id="threes").id == "threes"
    for broken, message in (
        (lambda: keyed.window("soon"), "soon"),
        (lambda: keyed.window(3).agg(), "agg needs at least one aggregate"),
        (lambda: keyed.window(3).agg(n, n="count"), "agg names 'n' twice"),
        (lambda: keyed.window(3).agg(n=("value", "maen")), "maen"),
    ):
        with pytest.raises(ConfigError, match=message):
            broken()


def test_aggregates_without_a_frame_are_those_of_all_records():
    keyed = readings().key_by("device")
    options = {"emit": "update", "ttl": "1h", "secret": ro.Secret("s")}
    own = keyed.agg({"n": "count"}, kinds=("value", "distinct"), id="totals", **options)
    aggregates = {"n": "count", "kinds": ("value", "distinct")}
    task = t.Window(by="device", aggregates=aggregates, **options)
    assert own.id == "totals" and own.flow.nodes["totals"].task == task and own.by == ("device",)
    assert keyed.agg(n="count").flow.nodes["window"].task == t.Window(by="device", aggregates={"n": "count"})


def test_streams_are_shown_with_step_key_and_frame():
    stream = readings()
    keyed = stream.key_by("device", "kind")
    assert repr(stream) == f"<Stream {stream.id!r} of the dataflow {stream.flow.name!r}>"
    assert repr(stream.key_by()).endswith("by no field>") and "by 'device', 'kind'>" in repr(keyed)
    assert repr(keyed.window(3)) == "<WindowedStream of 'readings', by 'device', 'kind', Count(size=3)>"


def test_expression_is_no_function_of_map():
    with pytest.raises(ConfigError, match=r"map takes a function of a record, got 'value \* 2'; tasks.Compute"):
        readings().map("value * 2")


@pytest.mark.parametrize("cls", [ro.Stream, ro.KeyedStream, ro.WindowedStream])
def test_verbs_are_listed_with_an_example(cls):
    stream = readings().key_by("device")
    shown = [name for name in dir(stream.window(2) if cls is ro.WindowedStream else stream) if name[0] != "_"]
    verbs = [name for name in dir(cls) if name[0] != "_" and callable(getattr(cls, name))]
    assert verbs and set(verbs) <= set(shown)
    assert not [name for name in verbs if ">>> " not in (inspect.getdoc(getattr(cls, name)) or "")]


def joined(*keys, **options):
    flow = ro.Dataflow("join")
    fields = {"event_time": "timestamp[us, tz=UTC]", "id": "int64", "number": "int64"}
    left, right = (flow.source(name, fields) for name in ("left", "right"))
    left, right = (s if key is None else s.key_by(key) for s, key in zip((left, right), keys, strict=True))
    stream = left.join(right, **{"within": "5s", **options})
    return stream, stream.flow.nodes[stream.id].task


def test_join_takes_the_keys_of_its_streams():
    def made(*keys, **options):
        stream, task = joined(*keys, **options)
        return isinstance(stream, ro.KeyedStream), task.by, task.right_on or task.by

    assert made("id", "id") == made("id", None) == (True, ("id",), ("id",))
    assert made(None, None, on="id") == made(None, "id", on="id") == (False, ("id",), ("id",))
    assert made("id", "number") == made("id", None, right_on="number") == (True, ("id",), ("number",))
    assert made(None, None, on=["id"], right_on=["number"]) == (False, ("id",), ("number",))
    for keys, options, message in (
        ((None, None), {}, "join needs on"),
        ((None, "id"), {}, "join needs on"),
        (("id", "id"), {"on": "number"}, r"on = \('number',\), but the stream has the key \('id',\)"),
        (("id", "id"), {"right_on": "number"}, r"right_on = \('number',\), but the stream has the key \('id',\)"),
        ((None, "number"), {"on": "id"}, r"on = \('id',\), but the stream has the key \('number',\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            joined(*keys, **options)
    with pytest.raises(ConfigError, match="join takes another stream, got"):
        readings().join(ROWS, "device", within="5s")


def test_join_passes_its_options_on():
    given = {
        "within": ("1s", "5s"),
        "how": "full",
        "suffix": "_r",
        "allowed_lateness": "2s",
        "max_ahead": "1h",
        "max_held": 9,
    }
    usual = joined("id", "id")[1]
    for option, value in given.items():
        task = joined("id", "id", **{option: value})[1]
        assert task == usual.replace(**{option: value}) != usual
    assert joined("id", "id", id="both")[0].id == "both"


def test_ids_are_names_of_functions_or_verbs():
    def _hidden(row):
        return row

    def errors(row):
        return row

    def level(row):
        return row

    level.__name__ = "ölstand"
    s = readings()
    ids = [s.map(f).id for f in (double, double, lambda row: row, _hidden, errors, level)]
    assert ids == ["double", "double_2", "map", "hidden", "errors_2", "map_2"]
    assert [s.filter("value > 1").id, s.filter("value > 1", id="some").id] == ["filter", "some"]
    assert [s.filter(lambda row: True).id, s.flat_map(lambda row: None).id] == ["filter_2", "flat_map"]
    assert s.key_by().fold(lambda state, row: (state, row)).id == "fold"
    assert s.apply(t.KalmanFilter()).id == "kalman_filter"
    for bad in ("", "a/b", 5, "_a", "ä", "a" * 201, "aä" * 67):
        with pytest.raises(ConfigError, match=r"only letters, digits.*first a letter.*at most 200 bytes"):
            s.map(double, id=bad)
    assert s.map(double, id="a" * 200).id


def test_key_stays_until_another_one():
    counts = readings().key_by("device").filter(low).map(double).apply(t.RunningCount(output="n"))
    whole = counts.partition_by("device").key_by().apply(t.RunningCount(output="all"))
    flow = whole.key_by("device") >> t.KalmanFilter()
    tasks = {id: node.task for id, node in flow.flow.nodes.items()}
    assert tasks["running_count"].by == tasks["kalman_filter"].by == ("device",)
    assert tasks["running_count_2"].by == ()
    result = flow.to("out").run(ROWS)
    assert result["kalman_filter"].select(["n", "all"]).to_pylist() == [{"n": 1, "all": 1}, {"n": 2, "all": 2}]


def test_key_of_a_task_is_the_streams_or_refused():
    keyed = readings().key_by("device")
    assert keyed.apply(t.KalmanFilter(by="device")).to(t.KalmanFilter()).id == "kalman_filter_2"
    assert keyed.to(t.RangeFilter(bounds={"value": (0, 5)}, by=None), id="plausible").by == ("device",)
    assert keyed.apply(t.AssembleMessage(), id="whole").flow.nodes["whole"].task.by == (
        "device",
    )  # by default ("seq",)
    with pytest.raises(ConfigError, match=r"kalman_filter has the key \('value',\), and the stream has \('device',\)"):
        keyed.apply(t.KalmanFilter(by="value"))
    with pytest.raises(ConfigError, match="has the key"):
        readings().key_by() >> t.KalmanFilter(by="value")
    with pytest.raises(ConfigError, match="range_filter has no key: append it before key_by, or by to"):
        keyed.apply(t.RangeFilter(bounds={"value": (0, 5)}, by=None))
    assert not [id for id in keyed.flow.nodes if "range" in id]


@pytest.mark.parametrize("fields", [(("a", "b"),), ("",), (None,), ("device", "device")])
def test_key_is_names_of_fields(fields):
    with pytest.raises(ConfigError, match="key_by"):
        readings().key_by(*fields)


def test_other_things_are_refused():
    s = readings()
    with pytest.raises(ConfigError, match="expected a task, a sink or the id of a sink, got 5"):
        s.to(5)
    with pytest.raises(ConfigError, match=r"expected a task, a sink .* appended by map, flat_map or filter"):
        s >> double
    with pytest.raises(ConfigError, match="expected a task"):
        s.apply(ro.MemorySink())
    with pytest.raises(ConfigError, match="expected a task"):
        s.key_by("device").apply(double)
    with pytest.raises(ConfigError, match="filter: revision = 1 is for a function, got the expression 'value > 1'"):
        s.filter("value > 1", revision=1)
    with pytest.raises(ConfigError, match="label = 'some' is for a function"):
        s.filter("value > 1", "some")
    with pytest.raises(ConfigError, match="condition"):
        s.filter("value >")
    with pytest.raises(ConfigError, match="'out' needs no id, got 'other'"):
        s.to("out", id="other")
    for broken in (lambda: s.flow.sink("out", "readings"), lambda: s.flow.add(t.KalmanFilter(), "readings")):
        with pytest.raises(ConfigError, match="expected a stream, got 'readings'"):
            broken()
    with pytest.raises(ConfigError, match="belongs to the dataflow 'other'"):
        s.flow.sink("out", readings("other"))
    with pytest.raises(ConfigError, match="bound must be a sink"):
        s.flow.sink("out", s, bound="results")
    assert list(s.flow.nodes) == ["readings"]


# -- sinks -----------------------------------------------------------------------------------------


def test_stream_ends_in_a_sink():
    flow = (readings() >> t.KalmanFilter()) >> "out"
    assert flow.edges[-1].target == "out" and flow.run(ROWS)["kalman_filter"].num_rows == 4
    kept = ro.MemorySink()
    flow = readings() >> kept
    assert flow.nodes["memory_sink"].sink is kept
    flow.stream("readings").to(kept)
    flow.stream("readings").to(ro.MemorySink(), id="more")
    assert [node.id for node in flow.nodes_of_kind("sink")] == ["memory_sink", "memory_sink_2", "more"]

    class _Sink(ro.MemorySink):
        pass

    assert "sink" in (readings() >> _Sink()).nodes


def test_descriptor_has_the_name_of_a_bound_sink_alone(tmp_path):
    flow = readings().to(ro.CSVSink(tmp_path / "secret"), id="kept")
    text = flow.to_json()
    assert "secret" not in text and text == readings().to("kept").to_json()
    again = ro.Dataflow.from_json(text)
    assert again.nodes["kept"].sink is None and again.run(ROWS)["readings"].num_rows == 4


def test_names_of_built_ins_are_not_exported():
    exported = {}
    exec("from riot_ops import *", exported)
    assert not set(ro.__all__) & set(dir(builtins))
    assert "map" not in exported and "filter" not in exported and exported["Dataflow"] is ro.Dataflow
    assert ro.map(double).name() == "map_function" and ro.filter(low).name() == "filter_function"
    assert {"map", "filter"} <= set(dir(ro))


@pytest.mark.parametrize("keyed", [False, True])
def test_lookup_appends_the_task_with_its_options(keyed):
    flow = ro.Dataflow("rooms")
    readings = flow.source("readings", {"house": "string", "sensor": "string"})
    table = {("A", "s1"): ("kitchen", "1")}
    options = {"columns": ("room", "floor"), "on_missing": "null", "default": ("?", "0")}
    stream = readings.key_by("house", "sensor") if keyed else readings
    found = stream.lookup(table, None if keyed else ("house", "sensor"), id="rooms", **options)
    assert type(found) is type(stream) and getattr(found, "by", None) == getattr(stream, "by", None)
    assert flow.nodes["rooms"].task == t.Lookup(table=table, on=("house", "sensor"), **options)
    readings.lookup({"s1": "x"}, "sensor", "room", on_missing="drop")
    assert flow.nodes["lookup"].task == t.Lookup(table={"s1": "x"}, on="sensor", columns="room", on_missing="drop")


def test_lookup_in_a_store_ignores_the_key_of_the_stream():
    table = ro.tables.StoreTable(store="memory", table="rows", partition="p", row="{house}", schema={"age": "int64"})
    flow = ro.Dataflow("ages")
    flow.source("houses", {"house": "string"}).key_by("house").lookup(table).to("out")
    assert flow.nodes["lookup"].task == t.Lookup(table=table)
    assert ro.Dataflow.from_json(flow.to_json()).nodes["lookup"].task == t.Lookup(table=table)


def test_lookup_without_a_key_is_refused():
    readings = ro.Dataflow("rooms").source("readings", {"sensor": "string"})
    with pytest.raises(ConfigError, match="on must name the field"):
        readings.lookup({"s1": "x"}, columns="room")
