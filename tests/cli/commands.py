"""The command within the process of a test, and inputs and results of its runs."""

from __future__ import annotations

import pyarrow.parquet as pq
from typer.testing import CliRunner

from riot_ops.cli import main as cli

#: Result streams of STATS.
STREAMS = ("avg", "slr", "dac", "errors")


def invoke(*args):
    """Run the command; return its exit code, output and exception."""
    return CliRunner().invoke(cli.app, [*map(str, args)])


def call(*args):
    """Run the command successfully; return its output."""
    result = CliRunner().invoke(cli.app, [*map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def failure(*args):
    """Run the command; return exit code, output and exception."""
    result = invoke(*args)
    return result.exit_code, result.output, result.exception


def stats(out, *args):
    """Run STATS into a folder; return the output."""
    return call("run", "stats", *args, "--out", out)


def results(out):
    """Return the records of each stream of STATS, in order."""
    found = {name: pq.read_table(sorted((out / name).glob("*.parquet"))) for name in STREAMS}
    return {
        name: t.sort_by([(c, "ascending") for c in ("seq", "obs_type") if c in t.column_names])
        for name, t in found.items()
    }


def csv_file(path, rows=40, header="time,device,temperature,note"):
    """Write readings of two devices as CSV."""
    lines = [f"2024-01-01T00:00:{i:02d}Z,d{i % 2},{20 + i % 7},fine" for i in range(rows)]
    path.write_text("\n".join([header, *lines]))
    return path
