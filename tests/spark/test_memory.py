"""``memory="small"`` of a query on Spark."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.graph.plan import plan
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark import runner, source, stage
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.spark.session import ARROW_BYTES, ARROW_RECORDS
from riot_ops.spark.source import Part, SourceStage
from riot_ops.spark.stage import StageProcessor
from riot_ops.testing import exact

pytestmark = pytest.mark.spark

TABLE = pa.Table.from_pylist([{"device": f"d{i % 7}", "value": float(i * i % 31)} for i in range(12_000)])


def dataflow():
    flow = ro.Dataflow("small")
    readings = flow.source("readings", schema={"device": "string", "value": "double"})
    flow.sink("out", readings.to(t.KalmanFilter(by="device"), id="smooth"))
    return flow


def record(monkeypatch, *names):
    """Return the list of what the runner makes of these classes."""
    made = []
    for name in names:
        kind = getattr(runner, name)
        monkeypatch.setattr(runner, name, lambda *a, kind=kind, **k: made.append(kind(*a, **k)) or made[-1])
    return made


def test_small_memory_bounds_micro_batches_and_what_crosses_to_python(spark, tmp_path, monkeypatch):
    applied, before = [], runner.query_settings
    monkeypatch.setattr(runner, "query_settings", lambda session, s: applied.append(s) or before(session, s))
    made = record(monkeypatch, "SourceStage", "StageProcessor")
    query = dataflow().start(spark, MemorySource(TABLE), out=tmp_path / "small", memory="small")
    query.wait()
    assert [one["messages"] for one in query.micro_batches] == [10_000, 2_000]
    assert (applied[0][ARROW_RECORDS], applied[0][ARROW_BYTES]) == ("1024", "65536")
    assert [one.small_memory for one in made] == [True, True]
    whole = dataflow().run(TABLE)
    assert Counter(map(exact, query["smooth"].to_pylist())) == Counter(map(exact, whole["smooth"].to_pylist()))


def test_given_options_precede_those_of_small_memory(spark, tmp_path, monkeypatch):
    applied, before = [], runner.query_settings
    monkeypatch.setattr(runner, "query_settings", lambda session, s: applied.append(s) or before(session, s))
    given = {"max_records": 12_000, "buffering": ro.Buffering(capacity=1 << 20)}
    query = dataflow().start(spark, MemorySource(TABLE), out=tmp_path / "given", memory="small", **given)
    query.wait()
    assert [one["messages"] for one in query.micro_batches] == [12_000]
    assert (applied[0][ARROW_RECORDS], applied[0][ARROW_BYTES]) == ("65536", str(1 << 20))


def test_other_value_is_refused(tmp_path):
    with pytest.raises(ro.ConfigError, match="memory must be 'normal' or 'small', got 'tiny'"):
        dataflow().start(None, MemorySource(TABLE), out=tmp_path, memory="tiny")


@pytest.mark.parametrize("small", [False, True])
def test_worker_returns_freed_memory_only_if_it_is_small(monkeypatch, small):
    returned = []
    for module in (source, stage):
        monkeypatch.setattr(module, "return_freed_memory", lambda module=module: returned.append(module))
    planned = plan(dataflow())
    labels, buffering = assign_labels(planned, 1), Buffering()
    reading = SourceStage(
        planned, "readings", MemorySource(TABLE), None, labels, ARRIVAL, buffering, None, 1, small_memory=small
    )
    assert [batch.num_rows for batch in reading.blocks(Part(None, True, 0.0))] == [1]
    processor = StageProcessor(planned, 1, labels, "run", ARRIVAL, buffering, small_memory=small)
    assert not list(processor.process(labels[1][0], iter([]), {}))
    assert returned == ([source, stage] if small else [])
