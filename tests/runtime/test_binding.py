"""Sources bound to a dataflow deliver the declared fields, or are refused before anything runs."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.errors import ConfigError
from riot_ops.runtime.binding import bind_sources
from riot_ops.testing import EOF, PAUSE, ScriptedSource

WIDE = pa.table(
    {
        "extra": [[1], None, [2, 3]],
        "value": [1.0, None, 3.0],
        "seq": pa.array([4, 5, 6], pa.int64()),
        "größe`": [1, 2, 3],
        "device": ["a", "b", "ü"],
    }
)
DECLARED = {"device": "string", "value": "double"}


def flow(schema=DECLARED) -> ro.Dataflow:
    made = ro.Dataflow("bound")
    source = made.source("readings", schema=schema)
    made.sink("out", source, source.to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made


def test_fields_that_are_not_declared_go_no_further():
    result = flow().run(WIDE)
    assert result["readings"].schema.names == ["seq", "device", "value"]
    assert result["smooth"].schema.names == ["seq", "device", "value"]
    assert result["readings"].to_pylist() == WIDE.select(["seq", "device", "value"]).to_pylist()
    for source in (WIDE.to_batches()[0], WIDE.to_pylist(), ro.MemorySource(WIDE)):
        again = flow().run(source)
        assert again["readings"].schema.names == ["seq", "device", "value"]
        assert again["readings"].to_pylist() == result["readings"].to_pylist()


def test_a_source_whose_fields_fit_is_bound_as_it_is():
    source = ro.MemorySource(WIDE.select(["value", "device", "seq"]))
    assert bind_sources(flow(), source)["readings"] is source


def test_the_rest_of_a_source_is_as_it_was():
    script = [WIDE.to_batches()[0].slice(0, 2), PAUSE(), WIDE.to_batches()[0].slice(2), EOF, WIDE.to_batches()[0]]
    for wide in (ro.MemorySource(WIDE), ScriptedSource(script)):
        bound = pickle.loads(pickle.dumps(bind_sources(flow(), wide)["readings"]))
        start = wide.initial()
        assert bound.initial() == start
        assert bound.waits() == wide.waits()
        end = wide.latest(start, 2)
        assert bound.latest(start, 2) == end
        assert bound.count(start, end) == wide.count(start, end) == 2
        assert bound.finished(end) == wide.finished(end)
        assert bound.splits(start, end, 2) == wide.splits(start, end, 2)
        assert [b for s in bound.splits(start, end, 2) for b in bound.read(s)] == [
            b.select(bound.schema.names) for s in wide.splits(start, end, 2) for b in wide.read(s)
        ]
        bound.commit(end)
        bound.close()


def test_commits_reach_the_source(tmp_path):
    class Counting(ro.MemorySource):
        committed = None
        closed = 0

        def commit(self, end):
            self.committed = end

        def close(self):
            self.closed += 1

    source = Counting(WIDE)
    flow().run(source, checkpoint=tmp_path)
    assert source.closed
    bind_sources(flow(), source)["readings"].commit({"row": 2})
    assert source.committed == {"row": 2}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {"divice": "string"},
            r"'readings' lacks the field 'divice'; it has extra, value, .*did you mean \"device\"\?",
        ),
        (
            {"device": "string", "value": "float"},
            "'readings': the field 'value' is double, the dataflow declares float",
        ),
        ({"device": "string", "seq": "int32", "value": "double"}, "'seq' is int64, the dataflow declares int32"),
    ],
)
def test_what_does_not_fit_is_refused(schema, text):
    made = ro.Dataflow("wrong")
    made.sink("out", made.source("readings", schema=schema))
    for source in (WIDE, ro.MemorySource(WIDE)):
        with pytest.raises(ConfigError, match=text):
            made.run(source)


def test_a_field_that_stands_twice_is_refused():
    twice = pa.Table.from_arrays([*WIDE.columns, WIDE["value"]], names=[*WIDE.schema.names, "value"])
    with pytest.raises(ConfigError, match="'readings' has 2 fields 'value'"):
        flow().run(twice)


def test_records_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="do not fit the source's schema"):
        flow().run([{"device": "a", "value": "warm"}])
    with pytest.raises(ConfigError, match="must hold dicts"):
        flow().run([1.0])
    with pytest.raises(ConfigError, match="cannot read from str"):
        flow().run("readings.csv")


@pytest.mark.spark
def test_on_spark_both_sources_and_frames_are_fitted(spark):
    declared = {"device": "string", "größe`": "int64", "value": "double"}
    wanted = flow(declared).run(WIDE)
    query = flow(declared).start(spark, WIDE)
    query.wait(timeout_s=120)
    for stream in ("readings", "smooth"):
        assert query[stream].sort_by("seq").select(wanted[stream].schema.names).equals(wanted[stream])
        assert set(query[stream].schema.names) == set(wanted[stream].schema.names)

    frame = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("'a' as device", "double(value) as value", "value as `größe```", "timestamp as extra")
    )
    bound = bind_sources(flow(declared), frame)["readings"]
    assert bound.columns == ["device", "größe`", "value"]
    with pytest.raises(ConfigError, match="lacks the field 'device'"):
        flow(declared).start(spark, frame.drop("device"))
    with pytest.raises(ConfigError, match="'value' is float, the dataflow declares double"):
        flow(declared).start(spark, frame.withColumn("value", frame["value"].cast("float")))
