"""The ``riot-ops validate`` command."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["EXAMPLES", "validate"]

EXAMPLES = """**Examples**

`riot-ops run wc --input books.txt --out results` and then

`riot-ops validate wc --input books.txt --out results` · the same in plain Python, record by record

`riot-ops validate fd --input cards.csv --out results --set threshold=0.98` · with the parameters of the run

`riot-ops validate --all --quick` · every application on both runners, whole, cut and restarted; minutes

`riot-ops validate --all wc fd` · two of them, in all variants

**Exit codes**: 0 equal, 1 different, 2 misuse"""


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="An application that reads lines, by name or code; with --all any, several."
        ),
    ] = None,
    input: Annotated[
        list[str] | None, typer.Option(help="The file or folder of the run, or NAME=FILE, repeatedly.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder with its results.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the run, NAME=VALUE, repeatedly.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per stream; with --all per application and variant.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Run applications in all variants over generated data, and hold these against each other."
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of --all: on Spark cut on two partitions and restarted on one alone.")
    ] = False,
) -> None:
    """Hold the results of a run against the application in plain Python, or all variants of runs against each other.

    Records are compared in any order.
    """
    from riot_bench.cli.validate_all import validate_all
    from riot_bench.harness import validation
    from riot_ops.cli.settings import setting
    from riot_ops.core.errors import ConfigError, ConnectorError
    from riot_ops.core.paths import local_path
    from riot_ops.dataflows.applications import application
    from riot_ops.ingest.replay import find_files

    if everything:
        if input or out or given:
            raise ConfigError("--all generates what it reads: it takes no --input, --out or --set")
        if not validate_all(names or (), quick, as_json):
            raise typer.Exit(1)
        return
    if quick:
        raise ConfigError("--quick goes with --all")
    if not names or len(names) > 1:
        raise ConfigError(f"NAME must be one application without --all, got {', '.join(names or ()) or 'none'}")
    if not input or out is None:
        raise ConfigError("--input and --out must tell of a run; or give --all")
    one = application(names[0])
    if not one.results:
        raise ConfigError(f"{one.name} has no plain-Python counterpart; it is of the suite {one.suite}")
    found = setting(one, input, given or ())
    if not found.files:
        raise ConfigError(f"--input must name a file for {', '.join(one.inputs)}")
    try:
        for path in found.files.values():
            find_files(path)
    except ConnectorError as error:  # exit code 1 would say that results differ
        raise ConfigError(str(error)) from None
    compared = validation.validate(one, found.files, local_path(out, "--out"), found.parameters)
    console = Console()
    if as_json:
        for comparison in compared:
            print(json.dumps({**asdict(comparison), "equal": comparison.equal}, default=str))
    else:
        table = Table()
        for column in ("stream", "plain Python", "found", "differing"):
            table.add_column(column, justify="left" if column == "stream" else "right")
        for c in compared:
            table.add_row(c.stream, f"{c.wanted:,}", f"{c.found:,}", f"{c.differing:,}")
        console.print(table)
        for c in compared:
            for what, rows in (("missing", c.missing), ("unexpected", c.unexpected)):
                for row in rows:
                    console.print(f"{c.stream}, {what}: {row}", markup=False, highlight=False, soft_wrap=True)
    if not all(c.equal for c in compared):
        raise typer.Exit(1)
