"""Log lines and progress as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.cli.progress import show_log
from riot_ops.core.errors import ConfigError
from riot_ops.measure.json_log import JSONFormatter


def _run():
    flow = ro.Dataflow("kept")
    flow.source("in", schema={"device": "string", "value": "double"}).to(
        ro.tasks.KalmanFilter(by=("device",)), id="smooth"
    ).to("out")
    table = pa.table({"device": ["a", "b", "c", "a"], "value": [1.0, 2.0, float("inf"), 4.0]})
    flow.run(table, sinks=ro.MemorySink(), epoch_rows=2, batch_size=2)


def _lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_events_of_a_run(tmp_path):
    path = tmp_path / "log.jsonl"
    with show_log(json_lines=str(path)):
        _run()
    found = _lines(path.read_text())
    assert [one["event"] for one in found if one["event"] != "log"] == [
        "started",
        "progress",
        "progress",
        "progress",
        "ended",
    ]
    assert (
        found[0].items() >= {"level": "info", "logger": "riot_ops.run", "dataflow": "kept", "continued": False}.items()
    )
    last = [one for one in found if one["event"] == "progress"][-1]
    counts = {"messages": 4, "records": {"smooth": 3, "errors": 1}, "rejected": 1, "late": 0, "state_keys": 2}
    assert (last.items() >= counts.items() and last["reasons"] == {"smooth: not_finite": 1}) or last["rejected"] == 1
    assert last["lag_seconds"] >= 0 and last["messages_per_second"] > 0 and last["batches"] == 2
    assert found[-1]["error"] is None and {"time", "message"} <= found[-1].keys()
    assert not logging.getLogger("riot_ops.progress").isEnabledFor(logging.DEBUG)  # as before


def test_standard_error_has_json_only(capsys):
    with show_log(json_lines="-"):
        _run()
        logging.getLogger("riot_ops").warning("more than %d", 3)
    found = _lines(capsys.readouterr().err)
    assert found[-1].items() >= {"level": "warning", "event": "log", "message": "more than 3"}.items()


def test_text_is_the_default(capsys):
    with show_log():
        _run()
        logging.getLogger("riot_ops").warning("text")
    assert capsys.readouterr().err.splitlines()[-1] == "riot-ops: warning: text"


def test_an_error_has_its_type():
    try:
        raise KeyError("secret")
    except KeyError:
        record = logging.LogRecord("riot_ops", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    found = json.loads(JSONFormatter().format(record))
    assert found["error"] == "KeyError" and "secret" not in str(found)


def test_file_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match="--log-json cannot be written"), show_log(json_lines=str(tmp_path)):
        pass
