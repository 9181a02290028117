"""The commands of ``riot-ops errors``: what becomes of rejected records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riot_ops.core.errors import escape_control
from riot_ops.core.paths import local_path

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Send records that a run has rejected through a mended dataflow again.",
    epilog="**Examples**\n\n`riot-ops errors replay out/greenhouse flow.json`\n\n"
    "`riot-ops errors replay out/greenhouse/errors flow.json --out mended`",
)


@app.callback()
def commands() -> None:
    """Send records that a run has rejected through a mended dataflow again."""


@app.command()
def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of results, or of its stream errors (Parquet).")
    ],
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The mended dataflow: a JSON file, or an application.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results, a folder per step; default: replayed-N beside errors.")
    ] = None,
) -> None:
    """Send rejected records from the step that rejected them on, and note them, so that they are sent once."""
    from riot_ops.cli.plan import build_dataflow
    from riot_ops.cli.replay import replay_errors

    found = replay_errors(
        local_path(folder, "DIR"), build_dataflow(flow, None, None), None if out is None else local_path(out, "--out")
    )
    if not found.sent:
        print("nothing to replay: all rejected records were sent again before, or there are none")
        return
    for step, n in found.sent.items():
        print(escape_control(f"{step}: {n:,} records sent again"))
    for stream, n in found.results.items():
        print(escape_control(f"records in {stream}: {n:,}"))
    if found.stateful:
        print(escape_control(f"begun without state, from these records alone: {', '.join(found.stateful)}"))
    print(escape_control(f"results: {found.folder}/<step>/<stream>/*.parquet"))
