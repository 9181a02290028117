"""Which files of the driver workers must see."""

from __future__ import annotations

from dataclasses import fields

import pytest

import riot_ops as ro
from riot_ops import tables
from riot_ops import tasks as t
from riot_ops.spark.driver_files import FILE_PARAMETERS, FOLDER_PARAMETERS, files_of_tasks, source_files
from riot_ops.task import registered_tasks
from riot_ops.testing.parameter_table import PARAMETERS

#: Fields whose meaning speaks of files, but that name none of a machine.
OTHERS = {
    "folder": "a part of the names in a store",
    "wrapper": "a path within a record",
    "credential": "of a store",
    "blob": "a name in a store",
}


def found(task, schema=None):
    flow = ro.Dataflow("files")
    flow.sink("out", flow.source("raw", schema=schema or {"value": "double", "key": "string"}).to(task, id="step"))
    return [(one.path, one.what, one.marked) for one in files_of_tasks(flow)]


def test_parameters_that_name_files_are_known():
    kinds = [*registered_tasks(), tables.CSVTable, tables.KeyFile, tables.Networks, tables.RoadNetwork]
    names = {field.name for kind in [*kinds, tables.StoreTable] for field in fields(kind)}
    words = ("Path", "path", "Folder", "file", "File", "Address")
    speaking = {name for name in names if any(word in PARAMETERS.get(name, ("", ""))[1] for word in words)}
    assert speaking - FILE_PARAMETERS - FOLDER_PARAMETERS - OTHERS.keys() == set()
    assert (FILE_PARAMETERS | FOLDER_PARAMETERS) - names == set()


@pytest.mark.parametrize(
    ("task", "path", "parameter", "marked"),
    [
        (t.CheckBloomFilter(models={"key": "/a/keys.bloom"}), "/a/keys.bloom", "models", False),
        (t.PredictLinearRegression(inputs=("value",), model="/a/model.json"), "/a/model.json", "model", False),
        (t.PredictLinearRegression(inputs=("value",), model="M", store="/a/models"), "/a/models", "store", True),
        (t.PredictLinearRegression(inputs=("value",), model="M", store="file:///a%20b"), "/a b", "store", True),
        (t.Zip(to="/a/zips"), "/a/zips", "to", True),
        (t.PublishMQTT(url="file:///a/broker", topic="x", payload="key"), "/a/broker", "url", True),
        (t.PublishMQTT(url="mqtts://h", topic="x", payload="key", ca_file="/a/ca"), "/a/ca", "ca_file", False),
        (t.InsertTable(store="sqlite:////a/rows.db", table="rows", partition="key", row="key"), "/a", "store", True),
    ],
)
def test_files_of_a_task_are_found(task, path, parameter, marked):
    assert found(task) == [(path, f"{path}, {parameter} of the step 'step'", marked)]


@pytest.mark.parametrize(
    "task",
    [
        t.Lookup(table={"a": "b"}, on="key", columns="name"),
        t.CheckBloomFilter(models={"key": ["a", "b"]}),
        t.PredictLinearRegression(inputs=("value",), model="M", store="azure-blob://models"),
        t.PredictLinearRegression(inputs=("value",), model="M", store="memory://m"),
        t.PublishMQTT(url="mqtt://broker", topic="a/b", payload="key"),
        t.KalmanFilter(),
    ],
)
def test_addresses_in_the_network_are_no_files(task):
    assert found(task) == []


def test_files_of_tables_are_found(tmp_path):
    (tmp_path / "names.csv").write_text("key,name\na,Anna\n")
    path = str(tmp_path / "names.csv")
    for table in (path, tables.CSVTable(path)):
        assert found(t.Lookup(table=table, on="key", columns="name")) == [
            (path, f"{path}, table.path of the step 'step'", False)
        ]


def test_files_of_sources_are_found(tmp_path):
    (tmp_path / "a.csv").write_text("value\n1\n")
    (tmp_path / "b.txt").write_text("0,x\n")
    read = {"rows": ro.read(tmp_path / "a.csv"), "lines": ro.streams.replay(tmp_path / "b.txt")}
    assert [one.path for one in source_files(read)] == [str(tmp_path / "a.csv"), str(tmp_path / "b.txt")]
    assert "which the source 'rows' reads" in source_files(read)[0].what
    assert source_files({"city": ro.streams.city(sensors=2, messages=2), "frame": object()}) == []
