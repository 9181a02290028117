"""An operator that fails, or returns nothing, is named; what an engine makes of the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.runtime.batches import as_others
from riot_ops.task import KeyedTask, StateField, StatelessTask

READINGS = [{"value": 1.0}]


@dataclass(frozen=True, kw_only=True)
class Stateless(StatelessTask):
    made: Any = None

    def apply(self, batch, dead):
        return self.made(batch)


@dataclass(frozen=True, kw_only=True)
class Keyed(KeyedTask):
    made: Any = None
    method: str = "update"

    def state_fields(self):
        return {"n": StateField("int64")}

    def admit(self, batch, dead):
        return self.made(batch) if self.method == "admit" else batch

    def update(self, batch, slots, state, dead):
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
        (Keyed(made=lambda batch: None, method="admit"), "Keyed.admit"),
    ],
)
def test_an_operator_that_returns_nothing_is_named_with_its_step(task, method):
    text = re.escape(f"{method} returned None; it must return a pyarrow.RecordBatch")
    with pytest.raises(ConfigError, match=text) as caught:
        run(task)
    assert caught.value.__notes__ == [f"in the step 'third' ({type(task).__name__})"]
    with pytest.raises(ConfigError, match=text):
        task.session().push(READINGS[0])


def test_what_else_is_no_batch_is_named_by_its_type():
    with pytest.raises(ConfigError, match=r"Stateless\.apply returned a Table; it must"):
        run(Stateless(made=lambda batch: pa.Table.from_batches([batch])))


@pytest.mark.parametrize("task", [Stateless(made=fail), *(Keyed(made=fail, method=m) for m in ("update", "flush"))])
def test_an_operator_that_raises_is_named_with_its_step(task):
    with pytest.raises(ZeroDivisionError) as caught:
        run(task)
    assert caught.value.__notes__ == [f"in the step 'third' ({type(task).__name__})"]


def test_what_came_of_no_record_has_the_fields_of_what_did():
    fields = {"seq": pa.int64(), "sub": pa.int64(), "unit": pa.string(), "value": pa.float32()}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()])
    made = as_others(pa.RecordBatch.from_pydict({"value": [2.0], "seq": [1]}), schema)
    assert made.to_pylist() == [{"seq": 1, "sub": 0, "unit": None, "value": 2.0}]
    assert made.schema.types == schema.types
    assert [field.nullable for field in made.schema] == [False, False, True, False]
