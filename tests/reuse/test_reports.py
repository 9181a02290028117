"""Reports show any name of a dataflow or owner as that text, and as nothing else."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from riot_ops.cli import reuse as cli_reuse
from riot_ops.reuse import ReuseManager

NAMES = [
    "[red]",
    "[/]",
    "[/red]x",
    "[link=http://x]y[/link]",
    "a\nb",
    "a\tb",
    "\x1b[31mred",
    "\x9b31m",
    "a\rb",
    "\u202eb",
    ":skull:",
]


def flow(name, window=5):
    made = ro.Dataflow(name)
    stream = made.source("readings", schema={"value": "double"}).to(t.MovingAverage(window=window), id="average")
    return made.sink("out", stream)


def spelt(name):
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


@pytest.fixture
def managed(monkeypatch):
    """A manager with dataflows of unusual names, which answers the commands."""
    manager = ReuseManager()
    for name in NAMES:
        manager.submit(flow("f"), name=name, owner=f"of {name}")

    def listed():
        more = {"rows": 0, "failed": None, "dropped": 0, "waiting_bytes": 0}
        found = [{"name": name, **what, **more} for name, what in manager.stats()["dataflows"].items()]
        found[-1]["failed"] = "ValueError: [/]\n\x1b[2J"
        return found

    answers = {"list": listed, "stats": manager.stats, "show": lambda form: manager.diagram(),
               "remove": lambda name: vars(manager.remove(name))}  # fmt: skip
    monkeypatch.setattr(cli_reuse, "send_request", lambda folder, request: answers[request.pop("do")](**request))
    return manager


def call(*args):
    result = CliRunner().invoke(cli.app, ["reuse", *args, "--dir", "x"])
    assert result.exit_code == 0, result.exception
    return result.output


def test_list_has_one_line_per_dataflow(managed):
    lines = call("list").split("\n")
    assert [line.split("\t")[:2] for line in lines[1:-1]] == [[spelt(name), f"of {spelt(name)}"] for name in NAMES]
    assert lines[-2].endswith(r"failed: ValueError: [/]\n\x1b[2J")


def test_table_shows_names_unchanged(managed, monkeypatch):
    with open("/dev/null", "w") as nowhere:
        console = Console(force_terminal=True, color_system="truecolor", width=400, record=True, file=nowhere)
        monkeypatch.setattr(cli_reuse, "console", console)
        call("list")
    text = console.export_text(styles=True)
    rows = [line.rstrip() for line in text.splitlines() if "running" in line or "failed" in line]
    assert len(rows) == len(NAMES)
    for row, name in zip(rows, NAMES, strict=True):
        assert row.lstrip().startswith(spelt(name)) and f"of {spelt(name)}" in row and "\x1b" not in row


def test_stats_and_explanation_keep_their_lines(managed):
    found = dict(line.split(": ", 1) for line in call("stats").splitlines())
    assert set(json.loads(found["dataflows"])) == set(NAMES) and found["steps"] == "3"
    explanation = str(managed.explain(flow("\x1b[1m")))
    assert (
        len(explanation.splitlines()) == 4 and explanation.startswith(r"\x1b[1m: 3 of 3") and "\x1b" not in explanation
    )
    assert r"a\nb" in explanation
    assert call("remove", "a\nb").splitlines() == [r"a\nb: 0 steps ended, 3 continue"]


@pytest.mark.parametrize("name", NAMES)
def test_diagrams_stay_valid_for_any_name(name):
    manager = ReuseManager()
    manager.submit(flow("f"), name=name)
    assert len(manager.diagram().splitlines()) == 8 and "\x1b" not in manager.diagram()
    texts = [one.text for one in ET.fromstring(manager.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert spelt(name) in texts
