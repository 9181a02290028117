"""Project: kept fields and added texts, for values of any type."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Task
from riot_ops.tasks.parse.project import Project
from riot_ops.testing import exact
from tests.reference import project as reference
from tests.reference.splits import READINGS
from tests.search import depth

UTC = pa.timestamp("us", tz="UTC")
KINDS = {
    "seq": pa.int64(),
    "ordinal": pa.int64(),
    "event_time": UTC,
    "sensor_id": pa.string(),
    "größe": pa.float64(),
    "tags": pa.list_(pa.string()),
    "place": pa.struct([("lat", pa.float32()), ("lon", pa.float32())]),
    "kind": pa.dictionary(pa.int32(), pa.string()),
    "raw": pa.large_binary(),
    "nothing": pa.null(),
}
TEXTS = st.one_of(st.none(), st.sampled_from(["", "Zürich", "温度", "\x00", "🌡️"]), st.text(max_size=8))
VALUES = {
    "seq": st.integers(0, 2**62),
    "ordinal": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "event_time": st.one_of(st.none(), st.integers(-(2**50), 2**50)),
    "sensor_id": TEXTS,
    "größe": READINGS,
    "tags": st.one_of(st.none(), st.lists(TEXTS, max_size=3)),
    "place": st.one_of(st.none(), st.just({"lat": 1.5, "lon": None})),
    "kind": TEXTS,
    "raw": st.one_of(st.none(), st.binary(max_size=6)),
    "nothing": st.none(),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    n = draw(st.integers(0, 12))
    return pa.RecordBatch.from_arrays(
        [pa.array(draw(st.lists(VALUES[name], min_size=n, max_size=n)), KINDS[name]) for name in names], names=names
    )


def apply(task: Project, batch: pa.RecordBatch) -> pa.RecordBatch:
    rejects = RejectedRecords("project")
    out = task.apply(batch, rejects)
    assert rejects.count == 0
    out.validate(full=True)
    assert out.schema.equals(task.output_schema(batch.schema))
    return out


@pytest.mark.long
@given(batches(), st.data(), st.integers(0, 12))
@settings(max_examples=depth(120))
def test_output_equals_the_reference(batch, data, cut):
    fields = tuple(data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True)))
    constants = tuple(
        data.draw(st.dictionaries(st.sampled_from(["analytic", "größter", ""]), st.text(max_size=5))).items()
    )
    assume(fields or constants or {"seq", "ordinal", "event_time"} & set(batch.schema.names))
    task = Project(fields=fields, constants=constants)
    whole = apply(task, batch)
    expected = reference.project(batch.to_pylist(), fields, constants)
    assert [exact(row) for row in whole.to_pylist()] == [exact(row) for row in expected]
    assert [f.type for f in whole.schema if f.name in KINDS] == [KINDS[n] for n in whole.schema.names if n in KINDS]
    # slices, whose arrays begin inside their buffers
    parts = [apply(task, batch.slice(0, cut)), apply(task, batch.slice(cut))]
    assert exact([row for part in parts for row in part.to_pylist()]) == exact(whole.to_pylist())


def test_columns_are_passed_on_without_copying():
    batch = pa.RecordBatch.from_pydict({"seq": [1, 2], "value": [1.0, None], "other": ["a", "b"]})
    out = apply(Project(fields=("value",)), batch)
    assert out.schema.names == ["seq", "value"]
    assert out.column("value").buffers()[1].address == batch.column("value").buffers()[1].address


def test_named_order_field_has_the_named_place():
    batch = pa.RecordBatch.from_pydict({"value": [1.0], "ordinal": [3], "seq": [2]})
    assert apply(Project(fields=("value", "seq")), batch).schema.names == ["ordinal", "value", "seq"]
    assert apply(Project(fields=()), batch).schema.names == ["seq", "ordinal"]


def test_fields_keep_their_nullability():
    schema = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("value", pa.float64())])
    out = Project(fields=("value",), constants=(("analytic", "AVG"),)).output_schema(schema)
    assert [(f.name, f.nullable) for f in out] == [("seq", False), ("value", True), ("analytic", True)]


def test_projected_streams_can_be_merged():
    flow = ro.Dataflow("labels")
    source = flow.source("in", schema={"key": "string", "value": "double"})
    average = source.to(ro.tasks.MovingAverage(window=2, by=("key",)), id="avg")
    fields = ("key", "value")
    labelled = [
        source.to(Project(fields=fields, constants=(("analytic", "RAW"),)), id="raw"),
        average.to(Project(fields=fields, constants=(("analytic", "AVG"),)), id="mean"),
    ]
    flow.sink("out", ro.merge(*labelled).to(ro.tasks.MovingAverage(window=1, by=("analytic",)), id="all"))
    rows = flow.run([{"key": "ü", "value": 1.0}, {"key": "ü", "value": 3.0}])["all"].to_pylist()
    assert sorted((r["analytic"], r["value"]) for r in rows) == [("AVG", 2.0), ("RAW", 1.0), ("RAW", 3.0)]


def test_null_fields_have_the_declared_type():
    task = Project(fields="key", nulls={"model": "string", "error": pa.float64()})
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"key": ["ü", None], "value": [1.0, 2.0]}))
    assert out.schema == pa.schema({"key": pa.string(), "model": pa.string(), "error": pa.float64()})
    assert out.to_pylist() == [{"key": k, "model": None, "error": None} for k in ("ü", None)]
    assert Task.from_dict(task.to_dict()) == task
    assert task.writes() == {"model", "error"}
    with pytest.raises(ConfigError, match="must not name a field twice"):
        Project(fields="key", nulls={"key": "string"})


def test_descriptor_restores_the_task():
    task = Project(fields=("größe",), constants=(("analytic", "Mittel\n\u2028"),))
    assert Task.from_dict(task.to_dict()) == task
    assert Task.from_dict({"task": "PRJ", "fields": ["a"], "constants": [["b", "c"]]}) == Project(
        fields=("a",), constants=(("b", "c"),)
    )


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"fields": ("value", "value")}, r"must not name a field twice, got \['value', 'value'\]"),
        ({"fields": ("value",), "constants": (("value", "x"),)}, "must not name a field twice"),
        ({"fields": (), "constants": (("a", "x"), ("a", "y"))}, "must not name a field twice"),
        ({"fields": (), "constants": (("seq", "x"),)}, "must not name 'seq'.* are kept unchanged"),
        ({"fields": (), "constants": (("a", "\ud800"),)}, "not Unicode text"),
        ({"fields": (1,)}, "fields = "),
        ({"fields": (), "constants": (("a", 1),)}, "constants = "),
        ({"fields": (), "constants": (("a",),)}, "constants = "),
    ],
)
def test_wrong_parameters_are_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        Project(**parameters)


def test_unknown_field_is_refused_with_a_hint():
    flow = ro.Dataflow("wrong")
    source = flow.source("in", schema={"value": "double"})
    flow.sink("out", source.to(Project(fields=("valeu",)), id="label"))
    with pytest.raises(ConfigError, match=r"label: project reads the field 'valeu'.*did you mean \"value\"\?"):
        flow.validate()


def test_constant_may_replace_a_dropped_field():
    batch = pa.RecordBatch.from_pydict({"value": [1.0], "analytic": [7]})
    assert apply(Project(fields=("value",), constants=(("analytic", "AVG"),)), batch).to_pylist() == [
        {"value": 1.0, "analytic": "AVG"}
    ]


def test_records_without_fields_are_refused():
    with pytest.raises(ConfigError, match="no field; name some of value"):
        Project(fields=()).output_schema(pa.schema([("value", pa.float64())]))


@given(batches())
def test_dictionary_columns_are_decoded(batch):
    assume(batch.num_columns)
    task = Project(fields=tuple(batch.schema.names), decoded=True)
    out = apply(task, batch)
    assert out.schema == task.output_schema(batch.schema)
    assert not any(pa.types.is_dictionary(kind) for kind in out.schema.types)
    for name in batch.schema.names:
        assert exact(out.column(name).to_pylist()) == exact(batch.column(name).to_pylist())
