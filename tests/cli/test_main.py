"""The command: its output, its files and its refusals."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from rich.console import Console

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops.cli import main as cli
from riot_ops.core.source import registered_sources
from riot_ops.dataflows import RIOTBENCH
from riot_ops.task import registered_tasks
from riot_ops.tasks import PRESETS
from tests.cli.commands import call


def test_tasks_lists_every_task_and_source():
    listed = json.loads(call("tasks", "--json"))
    assert {"KAL", "SML", "MQS", "JON"} <= {entry["code"] for entry in listed}
    assert all(set(entry) == {"code", "name", "category", "pattern", "selectivity", "stateful"} for entry in listed)
    assert {kind.code for kind in registered_tasks()} < {entry["code"] for entry in listed}
    head, *rows = [line.split("\t") for line in call("tasks").splitlines()]
    purposes = {kind.code: kind.__doc__.splitlines()[0] for kind in (*registered_tasks(), *registered_sources())}
    purposes |= {code: purpose for code, (_, purpose) in PRESETS.items()}
    assert {row[0]: row[-1] for row in rows} == purposes, "piped, nothing is cut off"
    assert [dict(zip(head, row, strict=True))["name"] for row in rows] == [entry["name"] for entry in listed]


def test_tasks_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setattr(cli, "console", Console(force_terminal=True, width=80, no_color=True, highlight=False))
    lines = [re.sub("\x1b[^m]*m", "", line) for line in call("tasks").splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:3] == ["ATR", "read_table_range", "1:1"] for line in lines), "names and rates are not cut"


@pytest.mark.long
def test_tasks_prints_to_an_ascii_terminal():
    command = [sys.executable, "-m", "riot_ops", "tasks"]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(registered_tasks()) + len(registered_sources()) + len(PRESETS) + 1


def test_command_alone_names_commands_that_exist():
    lines = call().splitlines()
    named = [
        shlex.split(part)[1:] for line in lines for part in re.findall(r"riot-ops [\w -.]+?(?=  |;|$| explains)", line)
    ]
    assert len(named) >= 6 and all(len(line) <= 80 for line in lines)
    commands = typer.main.get_command(cli.app)
    for name, *words in named:
        if name != "--help":
            commands.commands[name].make_context(name, words)  # raises where an option does not exist
    assert call("--help") != call(), "the help is still there"


COMPLETING = """
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_riot_ops_completion riot-ops
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.long
def test_bash_completes_commands_and_options(tmp_path):
    """The script of --show-completion, in a bash that has nothing else."""
    program = tmp_path / "riot-ops"
    program.write_text(f"#!{sys.executable}\nfrom riot_ops.cli.main import main\nmain()\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    base = os.environ | {"HOME": str(tmp_path), "PATH": path, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run([program, "--show-completion", "bash"], env=base, capture_output=True, text=True, check=True)
    subprocess.run([program, "--install-completion", "bash"], env=base, capture_output=True, check=True)
    (script,) = (tmp_path / ".bash_completions").glob("*.sh")
    assert script.read_text().strip() == shown.stdout.strip()
    assert str(script) in (tmp_path / ".bashrc").read_text()

    def completed(*words):
        command = ["bash", "--noprofile", "--norc", "-c", COMPLETING, "bash", str(script), "riot-ops", *words]
        return subprocess.run(command, env=base, capture_output=True, text=True, check=True).stdout.split()

    assert completed("st") == ["streams"]
    assert completed("run", "--out-") == ["--out-format"]


def test_version_is_printed():
    assert call("--version").strip() == ro.__version__


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RIOTBENCH))
@pytest.mark.parametrize("stream", ["city", "grid"])
def test_show_and_plan_describe_applications(name, stream):
    assert call("show", name, "--stream", stream).startswith("flowchart")
    assert call("show", name, "--stream", stream, "--format", "svg").startswith("<svg")
    assert json.loads(call("show", name, "--format", "json"))["name"] == name
    assert "stage 0" in call("plan", name, "--stream", stream, "--fuse", "coarse")


def test_show_and_plan_describe_a_task():
    assert "KAL" in call("show", "micro", "KAL")
    assert call("show", "micro", "MQS").count("-->") == 1
    assert "stage 1" in call("plan", "micro", "kal")
    assert "Kalman filter" in call("show", "KAL")
    assert "MQTTSource" in call("show", "MQS")


def test_plan_of_a_json_file_equals_that_of_its_dataflow(tmp_path):
    (tmp_path / "flow.json").write_text(call("show", "etl", "--format", "json"), encoding="utf-8")
    assert call("plan", str(tmp_path / "flow.json")) == call("plan", "etl")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("run", "stat"), "unknown application 'stat'; known are etl, stats, pred, train, word_count, wc"),
        (("run", "stats", "--runner", "flink"), "--runner must be auto, spark or local, got 'flink'"),
        (("run", "stats", "--stream", "sity"), "sity"),
        (("run", "stats", "KAL"), "stats takes no task, got 'KAL'"),
        (("run", "micro"), "micro needs the code of a task"),
        (("run", "stats", "--runner", "local", "--input", "missing.csv"), "missing.csv"),
        (("run", "stats", "--runner", "local", "--out", "/dev/null"), "--out must be a writable folder"),
        (("run", "stats", "--form", "x"), "--form must be paper or plots for stats, got 'x'"),
        (("run", "pred", "--form", "plots"), "--form must be publish or paper for pred, got 'plots'"),
        (("run", "etl", "--form", "paper"), "--form must be left out for etl, got 'paper'"),
        (("run", "stats", "--out", "s4://bucket/x"), "--out is an address of the kind s4:"),
        (("run", "stats", "--runner", "local", "--checkpoint", "s4://x"), "--checkpoint is an address of the kind s4:"),
        (("run", "stats", "--input", "s4://bucket/x"), "--input is an address of the kind s4:"),
        (("run", "learn", "--out", "memory://x"), "--out must be a folder for pred, which reads its results"),
        (
            ("run", "stats", "--runner", "spark", "--checkpoint", "hdfs://host/x"),
            "--checkpoint is an address of the kind hdfs:",
        ),
        (("show", "KALL"), "unknown task 'KALL'"),
        (("show", "stats", "--format", "png"), "--format must be one of mermaid, svg, json, got 'png'"),
        (("plan", "stats", "--fuse", "x"), "fuse"),
        (("plan", "flow.json"), "no such file: flow.json"),
        (("run", "flow.json"), "no such file: flow.json"),
        (("run", "learn", "--checkpoint", "state"), "learn takes no --checkpoint"),
        (("run", "pred", "--input", "grid.csv", "--format", "csv", "--stream", "grid"), "--format csv is for stats"),
        (("plan", "nothing"), "unknown application 'nothing'"),
    ],
)
def test_misuse_is_one_line_with_exit_code_2(args, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.csv").write_text("m1,1000,2.5\n")
    monkeypatch.setattr(sys, "argv", ["riot-ops", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    messages = capsys.readouterr().err.strip().splitlines()
    assert len(messages) == 1 and messages[0].startswith("riot-ops: ") and text in messages[0]


def test_error_names_the_step(monkeypatch, capsys):
    error = ConfigError("it cannot go on")
    error.add_note("in the step 'avg' (MovingAverage)")

    def fails():
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == "riot-ops: it cannot go on; in the step 'avg' (MovingAverage)\n"
