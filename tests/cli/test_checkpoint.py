"""``riot-ops checkpoint``."""

from __future__ import annotations

import json

import pyarrow as pa

import riot_ops as ro
from tests.cli.commands import call, failure


def _checkpoint(folder):
    flow = ro.Dataflow("kept")
    flow.source("in", schema={"value": "double"}).to(ro.tasks.KalmanFilter(by=()), id="smooth").to("out")
    flow.run(pa.table({"value": [1.0] * 2000}), sinks=ro.MemorySink(), checkpoint=folder)
    return folder


def test_show_and_check(tmp_path):
    folder = _checkpoint(tmp_path / "state")
    text = call("checkpoint", "show", folder)
    assert "runner: in process\n" in text and "  smooth: task kalman_filter, state_rows 1, bytes" in text
    assert "  in: row 2,000\n" in text and "dataflow: 5 parts\n  edge 'in' -> 'smooth'" in text
    assert json.loads(call("checkpoint", "show", folder, "--json"))["steps"]["smooth"]["state_rows"] == 1
    assert call("checkpoint", "check", folder).rstrip().endswith("bytes, sound")


def test_check_of_a_damaged_one_fails(tmp_path):
    folder = _checkpoint(tmp_path / "state")
    path = max(folder.glob("state-*"))
    path.write_bytes(path.read_bytes()[:-1])
    code, _, error = failure("checkpoint", "check", folder)
    assert code != 0 and path.name in str(error) and "bytes instead of" in str(error)
