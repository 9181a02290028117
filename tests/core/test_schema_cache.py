"""The cached output schema: computed once per input schema, and neither pickled nor copied."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema_cache import uncached_attributes
from riot_ops.task import StatelessTask, with_field

ONE, OTHER = pa.schema({"value": pa.float64()}), pa.schema({"value": pa.int64(), "more": pa.string()})
CALLS: list[pa.Schema] = []


@dataclass(frozen=True, kw_only=True)
class Below(StatelessTask):
    def output_schema(self, schema):
        CALLS.append(schema)
        return with_field(schema, pa.field("below", pa.bool_()))

    def apply(self, batch, rejects):
        return batch


@dataclass(frozen=True, kw_only=True)
class Above(Below):
    def output_schema(self, schema):
        return with_field(super().output_schema(schema), pa.field("above", pa.bool_()))


def test_schema_is_computed_once_per_input_schema():
    CALLS.clear()
    below = Below()
    assert [below.output_schema(s).names for s in (ONE, ONE, OTHER, OTHER)] == [
        ["value", "below"],
        ["value", "below"],
        ["value", "more", "below"],
        ["value", "more", "below"],
    ]
    assert CALLS == [ONE, OTHER]
    annotated = ONE.with_metadata({"a": "b"})
    assert below.output_schema(annotated).metadata == annotated.metadata
    assert below.output_schema(ONE).metadata is None


def test_subclass_caches_its_own_schema():
    assert [Above().output_schema(ONE).names for _ in range(2)] == [["value", "below", "above"]] * 2


def test_unsuitable_schema_raises_each_time():
    smooth = t.KalmanFilter(value="speed")
    for _ in range(2):
        with pytest.raises(ConfigError, match="speed"):
            smooth.output_schema(ONE)


@pytest.mark.parametrize("duplicate", [copy.copy, lambda task: pickle.loads(pickle.dumps(task))])
def test_copy_and_pickle_omit_the_cache(duplicate):
    task = t.KalmanFilter()
    before = pickle.dumps(task)
    task.output_schema(ONE)
    assert pickle.dumps(task) == before
    second = duplicate(task)
    assert second == task
    assert vars(second) == uncached_attributes(task) != vars(task)
