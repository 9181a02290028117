"""Every command's help and main output fit a terminal of 80 columns: no line is longer, and no cell is cut."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import typer
from rich.console import Console

import riot_ops as ro
from riot_ops.cli import main as cli
from riot_ops.cli import reuse
from riot_ops.cli.plugins import KNOWN
from tests.cli.commands import call, invoke

WIDTH = 80
COMMAND = typer.main.get_command(cli.app)


def commands(command, path=()):
    """The words of each command, groups included."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def fitting(text):
    """Assert that a text of a terminal fits; a cell that is cut ends in "…"."""
    lines = re.sub("\x1b\\[[^a-zA-Z]*[a-zA-Z]", "", text).splitlines()
    for line in lines:
        assert len(line) <= WIDTH, line
        assert not re.search(r"…\s*[│┃]|\w…(?:\s|$)", line), line
    return lines


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns, for help and for the consoles of the commands."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERMINAL_WIDTH", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("main", "run", "plan", "streams", "reuse"):
        module = __import__(f"riot_ops.cli.{name}", fromlist=["console"])
        if hasattr(module, "console"):
            monkeypatch.setattr(
                module, "console", Console(width=WIDTH, force_terminal=True, markup=False, no_color=True)
            )
    return WIDTH


@pytest.mark.parametrize(
    "words", [w for w in commands(COMMAND) if not {*w} & {*KNOWN}], ids=lambda w: " ".join(w) or "-"
)
def test_help_fits(terminal, words):
    result = invoke(*words, "--help")
    assert result.exit_code == 0
    lines = fitting(result.stdout)
    assert any("Usage:" in line for line in lines)


#: Commands whose output is for people; diagrams, JSON and tables for ``cut`` are not wrapped.
OUTPUTS = (
    "",
    "tasks",
    "run --list",
    "streams",
    "streams city",
    "streams fit",
    "streams text",
    "show KAL",
    "show MQS",
    "plan stats",
    "plan pred",
    "new my-project --template k8s",
    "run stats --messages 400 --sensors 4 --out a",
    "run stats --messages 400 --sensors 4 --rate 4000 --out b --checkpoint kept --no-plot",
    "checkpoint show kept",
    "checkpoint check kept",
    "run wc --messages 300 --out c",
    "run flow.json --input readings.csv --out d",
    "errors replay d flow.json --out e",
)


@pytest.mark.long
def test_outputs_fit(terminal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("readings")
    readings = flow.source("readings", schema={"device": "string", "value": "double"})
    readings.filter("value > 1", id="a_step_with_a_name_that_is_much_longer_than_any_column_of_eighty_characters_can_be").to("out")  # fmt: skip
    Path("flow.json").write_text(flow.to_json(), encoding="utf-8")
    Path("readings.csv").write_text("device,value\na,1\nb,x\nc,3\n", encoding="utf-8")
    for words in OUTPUTS:
        result = invoke(*words.split())
        assert result.exit_code == 0, f"{words}: {result.output} {result.exception!r}"
        assert fitting(result.stdout), words


@pytest.mark.long
def test_size_of_a_deployment_fits(terminal):
    fitting(call("plan", "stats", "--rate", "7000", "--keys", "1000", "--messages", "2000"))


def test_lines_of_doctor_fit_but_for_paths(terminal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = invoke("doctor").stdout.splitlines()
    assert all(len(line) <= WIDTH or max(map(len, line.split())) > 40 or "→" in line for line in lines)


def test_tables_of_a_running_job_fold_long_names(terminal, monkeypatch):
    flow = {"name": "n" * 120, "owner": "o" * 90, "steps": 3, "rows": 10**9, "dropped": 0, "paused": False, "failed": "", "waiting_bytes": 10**9}  # fmt: skip
    monkeypatch.setattr(reuse, "_send", lambda *args, **given: [flow])
    out = io.StringIO()
    monkeypatch.setattr(reuse, "console", Console(file=out, width=WIDTH, force_terminal=True, no_color=True))
    invoke("reuse", "list", "--dir", "shared")
    lines = fitting(out.getvalue())
    assert "".join(lines).count("n") >= 120
