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

**Exit codes**: 0 equal, 1 different, 2 misuse"""


def validate(
    name: Annotated[str, typer.Argument(help="An application that reads lines, by name or code.")],
    input: Annotated[list[str], typer.Option(help="The file of the run, or NAME=FILE, repeatedly.")],
    out: Annotated[Path, typer.Option(help="The folder with its results.")],
    given: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the run, NAME=VALUE, repeatedly.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per stream.")] = False,
) -> None:
    """Hold the results of a run against the application in plain Python, in any order of the records."""
    from riot_ops.bench import validation
    from riot_ops.command.settings import files_of, named, settings
    from riot_ops.core.errors import ConfigError
    from riot_ops.core.paths import local_path
    from riot_ops.dataflows.applications import application

    one = application(name)
    if not one.results:
        raise ConfigError(f"{one.name} has no plain-Python counterpart; it is of the suite {one.suite}")
    files = files_of(one, input)
    parameters = settings(one.builder, named(given or (), "--set"))
    parameters |= {parameter: str(files.pop(parameter)) for parameter in one.files if parameter in files}
    if not files:
        raise ConfigError(f"--input must name a file for {', '.join(one.inputs)}")
    for path in files.values():
        if not path.exists():
            raise ConfigError(f"no such file: {path}")
    found = validation.validate(one, files, local_path(out, "--out"), parameters)
    console = Console()
    if as_json:
        for comparison in found:
            print(json.dumps({**asdict(comparison), "equal": comparison.equal}, default=str))
    else:
        table = Table()
        for column in ("stream", "plain Python", "found", "differing"):
            table.add_column(column, justify="left" if column == "stream" else "right")
        for c in found:
            table.add_row(c.stream, f"{c.wanted:,}", f"{c.found:,}", f"{c.differing:,}")
        console.print(table)
        for c in found:
            for what, rows in (("missing", c.missing), ("unexpected", c.unexpected)):
                for row in rows:
                    console.print(f"{c.stream}, {what}: {row}", markup=False, highlight=False, soft_wrap=True)
    if not all(c.equal for c in found):
        raise typer.Exit(1)
