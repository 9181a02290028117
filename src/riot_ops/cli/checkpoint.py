"""The commands of ``riot-ops checkpoint``: what a checkpoint holds, and whether it can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from riot_ops.core.errors import StateError, escape_control
from riot_ops.core.paths import local_path

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look into a checkpoint, of either runner, without running anything.",
    epilog="**Examples**\n\n`riot-ops checkpoint show state`\n\n`riot-ops checkpoint show state --json`\n\n"
    "`riot-ops checkpoint check state`\n\n**Exit codes**: 0 it can be read, 2 it is damaged or no checkpoint",
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder given as checkpoint=.")]


@app.command()
def show(
    folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
) -> None:
    """Show dataflow, positions, commits, and the state of each step."""
    from riot_ops.runtime.checkpoint_report import describe_checkpoint

    found = describe_checkpoint(local_path(folder, "DIR"))
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for part, detail in value.items():
                print(escape_control(f"  {part}: {_text(detail)}"))
        elif isinstance(value, list):
            print(
                escape_control(f"{name}: {len(value)} parts"), *(escape_control(f"  {one}") for one in value), sep="\n"
            )
        else:
            print(escape_control(f"{name}: {_text(value)}"))


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    return str(value)


@app.command()
def check(folder: Folder) -> None:
    """Compare all files with their checksums; a damaged one ends with its path and code 2."""
    from riot_ops.runtime.checkpoint_report import checkpoint_problems, describe_checkpoint

    place = local_path(folder, "DIR")
    problems = list(checkpoint_problems(place))
    if problems:
        raise StateError("; ".join(problems))
    found = describe_checkpoint(place)
    print(
        escape_control(f"{place}: {found['runner']}, {found['committed']:,} committed, {found['bytes']:,} bytes, sound")
    )
