"""``riot-ops warm``: names, processes, progress and the archive of Spark's classes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from riot_ops.cli import kernel_warm_up
from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError
from tests.cli.commands import invoke

#: Prints the kernels compiled after warming, by an application and the command.
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


def test_names_reach_the_command(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    given = []
    monkeypatch.setattr(kernel_warm_up, "warm", lambda processes, progress, units: given.append(units) or {})
    assert CliRunner().invoke(app, ["warm"]).exit_code == 0
    assert CliRunner().invoke(app, ["warm", "stats", "wc"]).exit_code == 0
    assert given == [kernel_warm_up.UNITS, ("application stats", "application wc")]
    refused = CliRunner().invoke(app, ["warm", "stats", "--spark"]).exception
    assert isinstance(refused, ConfigError)
    assert str(refused).endswith("got stats")


@pytest.mark.long
def test_progress_is_printed_per_unit(monkeypatch):
    monkeypatch.setattr(kernel_warm_up, "UNITS", ("task PI",))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    out = CliRunner().invoke(app, ["warm", "--processes", "1"]).output
    assert "warm: compiled 1 of 1 (task PI)" in out
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "nothing to do" in CliRunner().invoke(app, ["warm"]).output


@pytest.mark.slow
def test_warmed_commands_compile_nothing(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-m", "riot_ops", "warm"], env=environment, check=True, cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], env=environment, check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "compiled:"


def test_number_of_processes_reaches_the_compilation(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    given = []
    monkeypatch.setattr("riot_ops.cli.kernel_warm_up.warm", lambda processes, *_: given.append(processes) or {})
    invoke("warm")
    invoke("warm", "--processes", 3)
    assert given == [None, 3]


@pytest.mark.parametrize(("archive", "code", "message"), [("a.jsa", 0, "wrote a.jsa"), (None, 1, "not from this")])
def test_spark_option_archives_classes_instead(archive, code, message, monkeypatch):
    monkeypatch.setattr("riot_ops.cli.kernel_warm_up.warm", lambda *_: pytest.fail("it compiled"))
    monkeypatch.setattr("riot_ops.spark.launcher.archive_classes", lambda: archive)
    result = invoke("warm", "--spark")
    assert (result.exit_code, message in result.output) == (code, True)
