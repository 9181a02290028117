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

`riot-ops validate wc --input books.txt --out results` · compare with plain Python, record by record

`riot-ops validate fd --input cards.csv --out results --set threshold=0.98` · with the parameters of the run

`riot-ops validate --all --quick` · every application on both runners, whole, cut and restarted; takes minutes

`riot-ops validate --all wc fd` · two applications in all variants

**Exit codes**: 0 equal, 1 different, 2 misuse"""


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Application that reads lines, by name or code; with --all, any applications."
        ),
    ] = None,
    input: Annotated[
        list[str] | None, typer.Option(help="Input file or folder of the run, or NAME=FILE; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder with the results of the run.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Parameter of the run, NAME=VALUE; may be repeated.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per stream; with --all per application and variant.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Run applications in all variants over generated data and compare the results."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="With --all: on Spark, only cut on two partitions and restarted on one."),
    ] = False,
) -> None:
    """Compare the results of a run with plain Python, or those of all variants with each other.

    The order of the records does not matter.
    """
    from riot_bench.cli.validate_all import validate_all
    from riot_bench.harness import validation
    from riot_ops.cli.settings import configure
    from riot_ops.core.errors import ConfigError, ConnectorError
    from riot_ops.core.paths import local_path
    from riot_ops.dataflows.applications import application
    from riot_ops.ingest.replay import find_files

    if everything:
        if input or out or settings:
            raise ConfigError("--all generates its input: it takes no --input, --out or --set")
        if not validate_all(names or (), quick, as_json):
            raise typer.Exit(1)
        return
    if quick:
        raise ConfigError("--quick needs --all")
    if not names or len(names) > 1:
        raise ConfigError(f"NAME must be one application without --all, got {', '.join(names or ()) or 'none'}")
    if not input or out is None:
        raise ConfigError("name --input and --out of a run, or use --all")
    app = application(names[0])
    if not app.results:
        raise ConfigError(f"{app.name} of the suite {app.suite} has no counterpart in plain Python")
    configured = configure(app, input, settings or ())
    if not configured.files:
        raise ConfigError(f"--input must name a file for {', '.join(app.inputs)}")
    files = {name: local_path(str(path), "--input") for name, path in configured.files.items()}
    try:
        for path in files.values():
            find_files(path)
    except ConnectorError as error:  # exit code 1 would say that results differ
        raise ConfigError(str(error)) from None
    compared = validation.validate(app, files, local_path(out, "--out"), configured.parameters)
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
