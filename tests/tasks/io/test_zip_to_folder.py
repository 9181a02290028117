"""Zip archives as files: atomic writes, and charts packed in a dataflow."""

import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import ConfigError, ConnectorError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks import Collect, PlotLines, ZipToFolder


def test_second_run_replaces_the_archive(tmp_path):
    folder = tmp_path / "new" / "ü"
    pack = ZipToFolder(directory=str(folder), size=2, prefix="plots").session()
    row = pack.push_many([{"name": "a.svg", "data": "text"}, {"name": "a.svg", "data": "more"}])[0]
    path = Path(row["path"])
    assert path.parent == folder and path.name == row["name"] and path.stat().st_size == row["bytes"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert zipfile.ZipFile(path).namelist() == ["a.svg", "a-2.svg"] and row["entries"] == 2
    again = ZipToFolder(directory=str(folder), size=2, prefix="plots").session()
    assert again.push_many([{"name": "a.svg", "data": "text"}, {"name": "a.svg", "data": "more"}]) == [row]
    assert os.listdir(folder) == [row["name"]]


def test_failed_write_leaves_no_file(tmp_path, monkeypatch):
    pack = ZipToFolder(directory=str(tmp_path), size=1).session()

    def fails(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(ConnectorError, match="No space left"):
        pack.push({"name": "a", "data": "text"})
    assert os.listdir(tmp_path) == []


def test_dataflow_packs_charts_for_any_batch_size(tmp_path):
    n = 40
    table = pa.table(
        {
            "seq": pa.array(range(n), pa.int64()),
            "event_time": pa.array([i * 1_000_000 for i in range(n)], TIMESTAMP),
            "sensor_id": pa.array([f"s{i % 4}" for i in range(n)]),
            "obs_type": pa.array(["t"] * n),
            "analytic": pa.array(["AVG"] * n),
            "value": pa.array([float(i) for i in range(n)]),
        }
    )
    flow = ro.Dataflow("plots")
    collected = flow.source("in", schema=table.schema).to(Collect(size=20), id="collect")
    charts = collected.to(PlotLines(), id="chart")
    flow.sink("out", charts.to(ZipToFolder(directory=str(tmp_path), size=6), id="zip"))
    rows = flow.run(table, batch_size=7)["zip"].to_pylist()
    assert [row["entries"] for row in rows] == [6, 2]
    names = [name for row in rows for name in zipfile.ZipFile(row["path"]).namelist()]
    assert names == [f"s{i}~t~{block}.svg" for block in (0, 1) for i in range(4)]
    assert flow.run(table, batch_size=100)["zip"].to_pylist() == rows


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="directory must name a folder"):
        ZipToFolder(directory=str(tmp_path / "x"))
