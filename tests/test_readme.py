"""The README is short, and the commands of the page about the command run in their order, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops.cli import learning_job
from riot_ops.cli import main as cli
from riot_ops.core.schema import TIMESTAMP

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "howto" / "command_line.md").read_text(encoding="utf-8")
#: Smaller, in this process and without servers; the commands are otherwise unchanged.
SMALL = {"run": ("--runner", "local", "--messages", "600", "--sensors", "6"), "streams": ("--messages", "600")}


def commands():
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words[0] == "riot-ops"]


def smaller(words):
    """The command with the options that make it small, each once."""
    words = [word for word in words if word != "--servers"]
    if "--list" in words:
        return words
    added = list(SMALL.get(words[0], ()))
    if words[-1] != words[0] and words[1] in ro.dataflows.BUILDERS and words[1] not in ro.dataflows.RIOTBENCH:
        added = added[:4] if words[0] == "run" else []  # lines have no sensors
    if words[:2] == ["run", "micro"]:
        added = added[:4]  # nor has one task
    if words[:2] == ["streams", "city"] and "--write" not in words:
        return words
    for option in added[::2]:
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
    return words + added


def test_the_readme_fits_on_a_page_and_explains_its_terms():
    assert len(README.splitlines()) <= 120
    for term in ("dataflow", "task", "record", "stream", "window", "stream time", "rejected record", "checkpoint"):
        first = re.search(rf"\*\*{term}\*\*", README)
        assert first, term
    for term, words in {"SenML": "a JSON format", "CITY": "a\ngenerated stream", "STATS": "is one of the"}.items():
        assert words in README[README.rindex("## Try it") :], term
    assert f"one of the {len(ro.dataflows.APPLICATIONS)} applications" in README


@pytest.mark.long
def test_commands_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(learning_job.SPAN_INTERVAL_S, "local", 0.3)
    rows = [f"2024-05-01T00:{n // 60:02}:{n % 60:02}Z,d{n % 2},{n / 10}" for n in range(600)]
    Path("readings.csv").write_text("\n".join(["time,device,temperature", *rows]) + "\n", encoding="utf-8")
    flow = ro.Dataflow("mine")
    readings = flow.source("readings", schema={"device": "string", "event_time": TIMESTAMP, "temperature": "double"})
    flow.sink("out", readings.to(ro.tasks.MovingAverage(value="temperature", by="device", window=5), id="avg"))
    Path("flow.json").write_text(flow.to_json(), encoding="utf-8")
    ran = commands()
    assert len(ran) >= 14
    for words in ran:
        result = CliRunner().invoke(cli.app, smaller(words))
        assert result.exit_code == 0, f"{' '.join(words)}:\n{result.output}\n{result.exception!r}"
    for left in ("city.csv", "city.png", "results/avg", "mine/avg", "out/etl", "out/train/models", "out/pred"):
        assert Path(left).exists(), left
