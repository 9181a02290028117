"""``riot-ops streams``: descriptions, plots of rates, and files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops.cli import main as cli
from riot_ops.core.errors import ConfigError
from riot_ops.streams.catalog import LINES as STREAMS
from tests.cli.commands import call


@pytest.mark.long
def test_streams_of_lines_are_described_and_written(tmp_path):
    text = json.loads(call("streams", "text", "--json"))
    assert text["name"] == "text"
    assert text["bytes"] == pytest.approx(57, rel=0.05)
    assert text["rate"] == 1000
    assert text["parameters"]["vocabulary"] == 10_000
    names = [entry["name"] for entry in json.loads(call("streams", "--json"))]
    assert names == ["city", "taxi", "fit", "grid", *STREAMS]
    assert "vocabulary : int" in call("streams", "text")
    shown = call("streams")
    assert all(name in shown for name in STREAMS)
    call("streams", "text", "--write", tmp_path / "text", "--messages", 70)
    assert len((tmp_path / "text").read_bytes().splitlines()) == 70
    for options in (["--plot", "x.png"], ["--speed", "2"], ["--write", "x", "--sensors", "2"]):
        result = CliRunner().invoke(cli.app, ["streams", "text", *options])
        assert isinstance(result.exception, ConfigError), options


def test_written_file_equals_the_generators_messages(tmp_path):
    file = tmp_path / "grid.csv"
    options = ("--messages", "300", "--sensors", "7", "--seed", "3")
    assert call("streams", "grid", "--write", str(file), *options) == f"300 messages: {file}\n"
    again = tmp_path / "again.csv"
    ro.streams.write(ro.streams.grid(meters=7, messages=300, seed=3), again)
    assert file.read_bytes() == again.read_bytes()
    call("streams", "grid", "--write", str(file))
    assert len(file.read_bytes().splitlines()) == 10_000


class Recorder:
    """A stand-in for the function that a command starts; records its arguments."""

    def __init__(self):
        self.positional, self.given = (), {}

    def __call__(self, *positional, **given):
        self.positional, self.given = positional, given
        return SimpleNamespace(run=lambda console: None, all_rejected=False, **given)


@pytest.mark.long
def test_speedup_reaches_plot_and_description(monkeypatch):
    kept = Recorder()
    monkeypatch.setattr("riot_ops.streams.rate_plot.draw_rates", kept)
    call("streams", "city", "--plot", "x.png", "--speed", "12")
    assert kept.positional[1:] == (Path("x.png"), 12.0)
    rates = [json.loads(call("streams", "city", "--json", "--speed", n))["rate"]["mean"] for n in (10, 20)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=1e-4)
