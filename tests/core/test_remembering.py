"""An operator keeps the last schema that it was asked for, and nothing of it goes along."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.remembering import MADE
from riot_ops.task import StatelessTask, with_field

ONE, OTHER = pa.schema({"value": pa.float64()}), pa.schema({"value": pa.int64(), "more": pa.string()})
ASKED: list[pa.Schema] = []


@dataclass(frozen=True, kw_only=True)
class Below(StatelessTask):
    def output_schema(self, schema):
        ASKED.append(schema)
        return with_field(schema, pa.field("below", pa.bool_()))

    def apply(self, batch, dead):
        return batch


@dataclass(frozen=True, kw_only=True)
class Above(Below):
    def output_schema(self, schema):
        return with_field(super().output_schema(schema), pa.field("above", pa.bool_()))


def test_a_schema_is_worked_out_once_and_another_one_anew():
    ASKED.clear()
    below = Below()
    assert [below.output_schema(s).names for s in (ONE, ONE, OTHER, OTHER)] == [
        ["value", "below"],
        ["value", "below"],
        ["value", "more", "below"],
        ["value", "more", "below"],
    ]
    assert ASKED == [ONE, OTHER]
    told = ONE.with_metadata({"a": "b"})
    assert below.output_schema(told).metadata == told.metadata
    assert below.output_schema(ONE).metadata is None


def test_what_extends_another_has_an_answer_of_its_own():
    assert [Above().output_schema(ONE).names for _ in range(2)] == [["value", "below", "above"]] * 2


def test_what_will_not_do_is_refused_each_time():
    smooth = t.KalmanFilter(value="speed")
    for _ in range(2):
        with pytest.raises(ConfigError, match="speed"):
            smooth.output_schema(ONE)


@pytest.mark.parametrize("again", [copy.copy, lambda task: pickle.loads(pickle.dumps(task))])
def test_it_stays_behind(again):
    task = t.KalmanFilter()
    before = pickle.dumps(task)
    task.output_schema(ONE)
    assert pickle.dumps(task) == before
    made = again(task)
    assert made == task
    assert vars(made) == {name: value for name, value in vars(task).items() if name != MADE}
