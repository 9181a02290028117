"""The engine: errors that name the operator and its step, and lazy batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.graph.lowering import lower
from riot_ops.kernels.arrays import lazy_rows
from riot_ops.runtime import engine as engines
from riot_ops.runtime.batches import conform_to
from riot_ops.runtime.engine import Engine
from riot_ops.task import KeyedTask, StateField, StatelessTask
from riot_ops.testing.checks import exact

READINGS = [{"value": 1.0}]


@dataclass(frozen=True, kw_only=True)
class Stateless(StatelessTask):
    made: Any = None

    def apply(self, batch, rejects):
        return self.made(batch)


@dataclass(frozen=True, kw_only=True)
class Keyed(KeyedTask):
    made: Any = None
    method: str = "update"

    def state_fields(self):
        return {"n": StateField("int64")}

    def validate_rows(self, batch, rejects):
        return self.made(batch) if self.method == "validate_rows" else batch

    def update(self, batch, slots, state, rejects):
        return self.made(batch) if self.method == "update" else batch

    def flush(self, keys, state):
        return self.made(keys) if self.method == "flush" else None


def fail(batch):
    raise ZeroDivisionError("division by zero")


def run(task):
    flow = ro.Dataflow("flow")
    flow.sink("out", flow.source("in", schema={"value": "float64"}).to(task, id="third"))
    return flow.run(READINGS)


@pytest.mark.parametrize(
    ("task", "method"),
    [
        (Stateless(made=lambda batch: None), "Stateless.apply"),
        (Keyed(made=lambda batch: None), "Keyed.update"),
        (Keyed(made=lambda batch: None, method="validate_rows"), "Keyed.validate_rows"),
    ],
)
def test_error_for_none_names_operator_and_step(task, method):
    text = re.escape(f"{method} returned None; it must return a pyarrow.RecordBatch")
    with pytest.raises(ConfigError, match=text) as caught:
        run(task)
    assert caught.value.__notes__ == [f"in the step 'third' ({type(task).__name__})"]
    with pytest.raises(ConfigError, match=text):
        task.session().push(READINGS[0])


def test_error_for_another_type_names_the_type():
    with pytest.raises(ConfigError, match=r"Stateless\.apply returned a Table; it must"):
        run(Stateless(made=lambda batch: pa.Table.from_batches([batch])))


@pytest.mark.parametrize("task", [Stateless(made=fail), *(Keyed(made=fail, method=m) for m in ("update", "flush"))])
def test_exception_of_operator_names_its_step(task):
    with pytest.raises(ZeroDivisionError) as caught:
        run(task)
    assert caught.value.__notes__ == [f"in the step 'third' ({type(task).__name__})"]


def test_conform_to_fills_missing_fields():
    fields = {"seq": pa.int64(), "ordinal": pa.int64(), "unit": pa.string(), "value": pa.float32()}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()])
    made = conform_to(pa.RecordBatch.from_pydict({"value": [2.0], "seq": [1]}), schema)
    assert made.to_pylist() == [{"seq": 1, "ordinal": 0, "unit": None, "value": 2.0}]
    assert made.schema.types == schema.types
    assert [field.nullable for field in made.schema] == [False, False, True, False]


def _filtering_engine():
    """An engine in which filters read filters, keyed steps read filters, and filters read keyed steps."""
    t, flow = ro.tasks, ro.Dataflow("late")
    readings = flow.source("in", schema=pa.schema([("seq", pa.int64()), ("key", pa.string()), ("value", pa.float64())]))
    some = readings.to(t.RangeFilter(by=None, bounds={"value": (0, 10)}), id="some")
    fewer = some.to(t.RangeFilter(by=None, bounds={"value": (1, 20)}, on_error="reject"), id="fewer")
    means = fewer.to(t.MovingAverage(by=("key",), window=2, output="mean"), id="means")
    named = means.to(t.Filter("key in ('s0', 's1')"), id="named")
    streams = [
        *(some, fewer, means, named),
        some.to(t.RangeFilter(by=None, bounds={"value": (1, 20)}, on_error="null"), id="mended"),
        some.to(t.KalmanFilter(by=("key",)), id="smooth"),
        readings.to(t.MovingAverage(window=3, partial=True), id="all"),
        named.to(t.MovingAverage(value="mean", window=2, partial=True), id="top"),
        ro.merge(fewer, some).to(t.MovingAverage(window=3), id="both"),
        fewer.shuffle(2).to(t.RangeFilter(by=None, bounds={"value": (2, 9)}), id="spread"),
    ]
    for stream in streams:
        flow.sink(f"{stream.id}-out", stream)
    return Engine(lower(flow), [stream.id for stream in streams])


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_lazy_batches_equal_eager_ones(monkeypatch, size, backwards):
    random = np.random.default_rng(3)
    values = random.choice([0.5, 3.0, 7.0, 12.0, np.inf, np.nan], 60)
    columns = {
        "seq": range(60),
        "key": [f"s{i % 3}" for i in range(60)],
        "value": pa.array(values, mask=np.isnan(values)),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    found = []
    for small in (1024, -1):
        monkeypatch.setattr(lazy_rows, "SMALL", small)
        monkeypatch.setattr(engines, "SMALL", small)
        engine, rows = _filtering_engine(), list[str]()
        for start in range(0, 60, size):
            part = batch.slice(start, size)
            part = part.take(pa.array(np.arange(part.num_rows)[:: -1 if backwards else 1]))
            for stream, made in engine.process({"in": [part]}).items():
                rows += [f"{stream} {exact(row)}" for one in made for row in one.to_pylist()]
        for stream, made in engine.process({}, flush=True).items():
            rows += [f"{stream} at the end {exact(row)}" for one in made for row in one.to_pylist()]
        found.append((rows, engine.counts(), engine.snapshot()))
    late, at_once = found
    assert late[0] == at_once[0]
    assert late[1:] == at_once[1:]
    assert {row.partition(" ")[0] for row in late[0]} == {*engine.outputs, "errors"}


def test_on_step_receives_inputs_and_outputs_of_each_step(monkeypatch):
    calls = []
    monkeypatch.setattr(
        Engine, "on_step", lambda engine, step, inputs, out, seconds: calls.append((step.name, inputs, out, seconds))
    )
    flow = ro.Dataflow("observed")
    source = flow.source("in", schema={"value": "double"})
    passed = source.to(ro.tasks.NoOp(), id="copy")
    flow.sink("out", passed.to(ro.tasks.MovingAverage(window=2), id="average"))
    flow.run(pa.table({"value": [1.0, 2.0, 9.0, 3.0, 3.0]}), batch_size=2, cores=1)
    rows = {
        name: tuple(sum(b.num_rows for n, *both, _ in calls if n == name for b in both[k]) for k in (0, 1))
        for name in ("copy", "average")
    }
    assert rows == {"copy": (5, 5), "average": (5, 2)}
    assert all(isinstance(b, pa.RecordBatch) for _, given, out, _ in calls for b in [*given, *out])
    assert all(seconds >= 0 for *_, seconds in calls)
