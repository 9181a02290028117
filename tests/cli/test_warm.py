"""``riot-ops warm``: names, processes, progress and the archive of Spark's classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from riot_ops.cli import kernel_warm_up
from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError
from tests.cli.commands import invoke

#: Prints the kernels compiled by the rest of a program.
LISTENER = """
compiled = []
from numba.core import event
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
event.register("numba:compile", Listener())
import atexit
atexit.register(lambda: print("compiled:", *compiled))
"""
#: A command after warming.
AFTERWARDS = (
    LISTENER
    + """
from riot_ops.cli.main import app
app(["run", "wc", "--runner", "local", "--messages", "2000", "--out", "wc", "--overwrite"], standalone_mode=False)
"""
)
#: Prints the kernels that no unit calls, and those that applications call with other types than the units, both over
#: other messages in other batches.
UNWARMED = """
import importlib, json, pkgutil
import riot_ops
from riot_ops.cli import kernel_warm_up as warm
from riot_ops.dataflows.applications import RIOTBENCH, application
from riot_ops.kernels.jit import KERNELS
from riot_ops.streams import generate
from riot_ops.streams.catalog import CATALOG

def name(kernel):
    return f"{kernel.python.__module__}.{kernel.python.__qualname__}"

def signatures():
    return {name(k): set(k._compiled.signatures) for k in KERNELS if k._compiled is not None}

failed = {unit: error for unit in warm.UNITS if (error := warm.warm_unit(unit)) is not None}
for module in pkgutil.walk_packages(riot_ops.__path__, "riot_ops."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
uncalled = sorted(name(k) for k in KERNELS if k._compiled is None and k._inlined is None)
warmed, options = signatures(), {"messages": 3000, "seed": 7}
for label in warm.SELF_CONTAINED:
    app = application(label)
    if app.inputs:
        app.builder().run({s: generate(stream, **options) for s, stream in app.inputs.items()}, batch_size=700)
        continue
    for stream, entry in CATALOG.items():
        RIOTBENCH[label](stream).run(entry.generator(**options), batch_size=700)
more = sorted(name for name, found in signatures().items() if found - warmed.get(name, set()))
print(json.dumps({"failed": failed, "uncalled": uncalled, "more": more}))
"""
#: Kernels that no task, stream or application calls: numba's intrinsic takes the place of the first, the second is of
#: a sketch for programs.
EXEMPT = {
    "riot_ops.kernels.arrays.byte_masks.byteswap",
    "riot_ops.sketches.hyperloglog._insert_all",
}


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


@pytest.mark.slow  # it compiles the kernels of an application
def test_warmed_command_compiles_nothing(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)

    def run(*arguments):
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, check=True, cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.splitlines()[-1]

    run("-m", "riot_ops", "warm", "wc")
    assert run("-c", AFTERWARDS) == "compiled:"
    cache = tmp_path / "numba"
    cache.rename(tmp_path / "gone")
    assert "compiled: " in run("-c", AFTERWARDS), "the listener hears nothing"


@pytest.mark.slow  # where the machine code of the kernels is not cached yet, it compiles all of them
def test_units_call_every_kernel_with_the_types_of_the_applications():
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    command = [sys.executable, "-c", UNWARMED]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["uncalled"]) == EXEMPT
    assert (found["failed"], found["more"]) == ({}, [])


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
