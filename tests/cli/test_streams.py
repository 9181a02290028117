"""``riot-ops streams``: the streams of lines."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from riot_ops.cli import main as cli
from riot_ops.core.errors import ConfigError
from riot_ops.streams.catalog import LINES as STREAMS


def call(*args):
    result = CliRunner().invoke(cli.app, [*map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


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
    for options in (["--plot", "x.png"], ["--speedup", "2"], ["--write", "x", "--sensors", "2"]):
        result = CliRunner().invoke(cli.app, ["streams", "text", *options])
        assert isinstance(result.exception, ConfigError), options
