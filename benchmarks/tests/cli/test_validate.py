"""``riot-ops validate``: runs that agree with plain Python, differences and misuse."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from riot_ops.cli import main as cli
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import APPLICATIONS, application
from riot_ops.streams import generate, write

#: Messages until there is a result of each kind.
LONG = {"equipment_monitoring": 20_000}
LINES = [name for name, one in APPLICATIONS.items() if one.suite != "riotbench"]


def call(*args):
    result = CliRunner().invoke(cli.app, [*map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def generated(one, folder, messages=2000):
    """The arguments of ``--input`` for generated files."""
    found = []
    for source, stream in one.inputs.items():
        path = folder / f"{stream}.txt"
        write(generate(stream, messages=messages, seed=5), path)
        found += ["--input", f"{source}={path}"]
    return found


@pytest.mark.parametrize("name", LINES)
def test_run_agrees_with_plain_python(name, tmp_path):
    inputs = generated(application(name), tmp_path, LONG.get(name, 2000))
    call("run", name, "--runner", "local", "--batch-size", 300, "--out", tmp_path / "out", *inputs)
    lines = call("validate", name, "--out", tmp_path / "out", *inputs, "--json").splitlines()
    found = {entry["stream"]: entry for entry in map(json.loads, lines)}
    assert set(found) == set(application(name).results)
    for entry in found.values():
        assert entry["equal"] is True
        assert entry["wanted"] == entry["found"]
        assert entry["found"] > 0 or name in LONG  # those differ by the seed


def test_difference_is_reported(tmp_path):
    inputs = generated(application("wc"), tmp_path, 40)
    out = tmp_path / "out"
    call("run", "wc", "--runner", "local", "--out", out, *inputs)
    result = CliRunner().invoke(cli.app, ["validate", "wc", "--out", str(out), *inputs, "--set", "lowercase=true"])
    assert result.exit_code == 1
    assert "counts, missing: ('" in result.output
    (tmp_path / "none").mkdir()
    for arguments, error_text in (
        (["validate", "wc", "--out", str(tmp_path / "none"), *inputs], "has no stream 'counts'"),
        (["validate", "stats", "--out", str(out), *inputs], "has no counterpart in plain Python"),
        (["validate", "wc", "--out", str(out), "--input", str(tmp_path / "gone")], "no such file"),
        (["validate", "wc", "--out", str(out), "--input", str(tmp_path / "none")], "holds no files"),
    ):
        result = CliRunner().invoke(cli.app, arguments)
        assert isinstance(result.exception, ConfigError)
        assert error_text in str(result.exception)


def test_run_over_a_folder_is_validated(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.txt").write_text("a b\nc")
    (folder / "2.txt").write_text("b b\n")
    for n, given in enumerate((folder, folder / "*.txt")):
        call("run", "wc", "--runner", "local", "--out", tmp_path / str(n), "--input", given)
        (entry,) = map(
            json.loads, call("validate", "wc", "--out", tmp_path / str(n), "--input", given, "--json").splitlines()
        )
        assert (entry["equal"], entry["found"]) == (True, 5)
