"""The runner that ``riot-ops run`` takes where none is named, and what it says about it."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest

from riot_ops.cli import runner_choice
from riot_ops.cli.application_job import ApplicationJob
from riot_ops.cli.job import Job
from riot_ops.cli.runner_choice import MAX_LOCAL_BYTES, MAX_LOCAL_MESSAGES, choose_runner, is_small
from tests.cli.commands import call


def sparse(path, size):
    """A file of a size, without its bytes."""
    path.write_bytes(b"")
    os.truncate(path, size)
    return path


def test_small_input_runs_in_this_process_and_the_first_line_says_so(tmp_path):
    first, second, *_ = call("run", "stats", "--messages", "50", "--no-plot", "--out", tmp_path).splitlines()
    assert first == "running in this process, as the input is small (--runner spark: on Spark)"
    assert second.startswith("stats over 50 messages") and second.endswith("runner local")
    assert json.loads((tmp_path / "run.json").read_text())["run"]["runner"] == "local"


def test_nothing_is_said_about_a_runner_that_was_named(tmp_path):
    text = call("run", "stats", "--runner", "local", "--messages", "50", "--no-plot", "--out", tmp_path)
    assert text.startswith("stats over 50 messages")


@pytest.mark.parametrize(
    ("options", "runner"),
    [
        ({"messages": MAX_LOCAL_MESSAGES}, "local"),
        ({"messages": MAX_LOCAL_MESSAGES + 1}, "spark"),
        ({"trigger": "1s"}, "spark"),
        ({"target_duration": "1s"}, "spark"),
        ({"mqtt": "mqtt://h"}, "spark"),
        ({"messages": MAX_LOCAL_MESSAGES + 1, "checkpoint": "memory://kept"}, "local"),
        ({"runner": "spark"}, "spark"),
        ({"messages": MAX_LOCAL_MESSAGES + 1, "runner": "local"}, "local"),
    ],
)
def test_rule(options, runner, tmp_path):
    assert Job("stats", out=tmp_path / "out", **options).runner == runner


@pytest.mark.parametrize(("size", "runner"), [(MAX_LOCAL_BYTES, "local"), (MAX_LOCAL_BYTES + 1, "spark")])
def test_size_of_files_decides(tmp_path, size, runner):
    (tmp_path / "lines" / "more").mkdir(parents=True)
    one = sparse(tmp_path / "lines" / "a.csv", size - 5)
    assert Job("stats", input=one).runner == "local"
    sparse(tmp_path / "lines" / "more" / "b.csv", 5)
    assert Job("stats", input=tmp_path / "lines").runner == runner
    two = sparse(tmp_path / "b.csv", 5)
    assert ApplicationJob("bargain_index", inputs=(f"quotes={one}", f"trades={two}")).runner == runner
    assert ApplicationJob("bargain_index", inputs=(str(two),)).runner == "local"
    assert is_small([tmp_path / "lines" / "*.csv"])


def test_packed_file_counts_as_what_it_may_hold(tmp_path):
    assert is_small([sparse(tmp_path / "a.csv.gz", MAX_LOCAL_BYTES // runner_choice.EXPANSION)])
    assert not is_small([sparse(tmp_path / "b.csv.gz", MAX_LOCAL_BYTES // runner_choice.EXPANSION + 1)])


def test_without_spark_everything_runs_in_this_process(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "pyspark" else find(name))
    job = Job("stats", messages=MAX_LOCAL_MESSAGES + 1)
    assert job.runner == "local"
    assert choose_runner(None) == ("local", "running in this process, as Spark is not installed")


@pytest.mark.parametrize("runner", ["spark", "local"])
def test_continued_run_keeps_its_runner(tmp_path, runner):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "offset").write_text("1")
    (tmp_path / "out").mkdir()
    manifest = {"run": {"runner": runner}, "made": [], "checkpoint": str(tmp_path / "kept")}
    (tmp_path / "out" / "run.json").write_text(json.dumps(manifest))
    for messages in (10, MAX_LOCAL_MESSAGES + 1):
        assert Job("stats", messages=messages, out=tmp_path / "out", checkpoint=tmp_path / "kept").runner == runner


@pytest.mark.parametrize("small", [True, False, None])
@pytest.mark.parametrize("more", [{}, {"option": "--target-duration"}, {"earlier": "spark"}, {"address": True}])
def test_sentence_fits_80_columns(small, more):
    assert len(choose_runner(small, **more)[1]) <= 80
