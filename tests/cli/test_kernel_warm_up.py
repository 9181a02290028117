"""What ``riot-ops warm`` compiles."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from riot_ops.cli import kernel_warm_up as warm
from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.applications import APPLICATIONS
from riot_ops.task import registered_tasks

#: Prints what is compiled after warming, by an application and the command.
AFTERWARDS = """
compiled = []
from numba.core import event
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
event.register("numba:compile", Listener())
from riot_ops.cli.main import app
for name, stream in (("stats", "city"), ("stats", "taxi"), ("etl", "grid")):
    app(["run", name, "--runner", "local", "--stream", stream, "--messages", "2000", "--out", f"{name}-{stream}"],
        standalone_mode=False)
for code in ("tt", "sf", "ca", "sm", "identity", "equipment"):
    app(["run", code, "--runner", "local", "--messages", "2000", "--out", code], standalone_mode=False)
print("compiled:", *compiled)
"""


def test_every_task_stream_and_application_has_a_unit():
    assert {u.split()[1] for u in warm.UNITS if u.startswith("task ")} == {kind.code for kind in registered_tasks()}
    assert {u for u in warm.UNITS if u.startswith("stream ")} == {
        f"stream {s}" for s in ("city", "taxi", "fit", "grid")
    }
    alone = {one.code for one in APPLICATIONS.values() if one.suite != "riotbench"}
    assert {u.split()[1] for u in warm.UNITS if u.startswith("application ")} == {"stats", "etl"} | alone
    assert len(set(warm.UNITS)) == len(warm.UNITS)


def test_units_of_applications_are_theirs_alone():
    assert warm.units_of(["stats"]) == ("application stats",)
    assert warm.units_of(["word_count", "WC", "fd"]) == ("application wc", "application fd")
    for name, message in (("pred", "NAME must be one of stats, etl, "), ("stast", "unknown application 'stast'")):
        with pytest.raises(ConfigError, match=message):
            warm.units_of([name])


def test_names_reach_the_command(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    given = []
    monkeypatch.setattr(warm, "warm", lambda processes, progress, units: given.append(units) or {})
    assert CliRunner().invoke(app, ["warm"]).exit_code == 0
    assert CliRunner().invoke(app, ["warm", "stats", "wc"]).exit_code == 0
    assert given == [warm.UNITS, ("application stats", "application wc")]
    refused = CliRunner().invoke(app, ["warm", "stats", "--spark"]).exception
    assert isinstance(refused, ConfigError)
    assert str(refused).endswith("got stats")


@pytest.mark.long
def test_units_run_in_processes_and_failures_are_told(monkeypatch):
    monkeypatch.setattr(warm, "UNITS", ("task PI", "task NONE"))
    seen = []
    failed = warm.warm(1, lambda *args: seen.append(args), warm.UNITS)
    assert sorted((done, total) for done, total, _ in seen) == [(1, 2), (2, 2)]
    assert {unit for _, _, unit in seen} == {"task PI", "task NONE"}
    assert list(failed) == ["task NONE"]
    assert "unknown task 'NONE'" in failed["task NONE"]


@pytest.mark.long
def test_the_command_shows_how_far_it_is(monkeypatch):
    monkeypatch.setattr(warm, "UNITS", ("task PI",))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    out = CliRunner().invoke(app, ["warm", "--processes", "1"]).output
    assert "warm: compiled 1 of 1 (task PI)" in out
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "nothing to do" in CliRunner().invoke(app, ["warm"]).output


@pytest.mark.slow
def test_nothing_is_compiled_afterwards(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-m", "riot_ops", "warm"], env=environment, check=True, cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], env=environment, check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "compiled:"
