"""Functions and schemas as data: labels, descriptors, declared types."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.task import Task
from riot_ops.tasks.functions.filter_function import FilterFunction
from riot_ops.tasks.functions.flat_map_function import flat_map
from riot_ops.tasks.functions.keyed_function import keyed
from riot_ops.tasks.functions.map_function import MapFunction


def double(row):
    return {**row, "value": 2 * row["value"]}


def triple(row):
    return {**row, "value": 3 * row["value"]}


def test_label_is_the_given_one_or_the_name_of_the_function():
    builders = (ro.map, flat_map, ro.filter, keyed)
    assert [builder(double, label="mine").label for builder in builders] == ["mine"] * 4
    assert [builder(double).label for builder in builders] == ["double"] * 4


def test_descriptor_names_the_function_and_needs_it_to_make_the_task():
    task = ro.map(double, schema={"value": pa.float64(), "at": TIMESTAMP})
    data = json.loads(json.dumps(task.to_dict()))
    assert data["function"].endswith("test_function_task:double")
    assert data["label"] == "double"
    assert MapFunction.with_function(data, double) == task
    assert pickle.loads(pickle.dumps(task)) == task
    with pytest.raises(ConfigError, match="with_function"):
        Task.from_dict(data)
    with pytest.raises(ConfigError, match="names the function"):
        MapFunction.with_function(data, triple)
    with pytest.raises(ConfigError, match="not of filter_function"):
        FilterFunction.with_function(data, double)
    with pytest.raises(ConfigError, match="cannot be found by name"):
        ro.map(lambda row: row).to_dict()


def test_types_of_python_are_those_of_a_source():
    types = {"f": float, "n": int, "s": str, "b": bool, "raw": bytes, "day": date, "at": datetime}
    declared = ro.Dataflow("x").source("in", types).flow.nodes["in"].schema
    pairs = tuple((field.name, str(field.type)) for field in declared if field.name != "seq")
    assert ro.map(double, schema=types).schema == pairs
    assert ro.map(double, adds=types).adds == pairs
    assert tasks.Project(fields=(), nulls=types).nulls == pairs


@pytest.mark.parametrize("schema", [{}, {"x": "flot"}, 3, {"x": pa.map_(pa.string(), pa.int8())}, {"x": set}], ids=str)
def test_wrong_schemas_are_refused(schema):
    with pytest.raises(ConfigError, match="schema"):
        ro.map(double, schema=schema)
