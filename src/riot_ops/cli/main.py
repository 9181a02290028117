"""The ``riot-ops`` command."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from riot_ops import __version__
from riot_ops.cli import reuse as cli_reuse
from riot_ops.cli import run as cli_run
from riot_ops.cli import streams as cli_streams
from riot_ops.cli import warm as cli_warm
from riot_ops.cli.plugins import add_plugins
from riot_ops.cli.run import TaskCode, check_task
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.core.source import Source, registered_sources
from riot_ops.dataflow import Dataflow
from riot_ops.task import Task, find_task, registered_tasks

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="IoT streaming operators, in process and on Spark.",
)
console = Console()

StreamName = Annotated[
    str | None, typer.Option("--stream", help="Of RIoTBench: stream and schema: city (default), taxi, fit or grid.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """IoT streaming operators, in process and on Spark."""


app.command("run", epilog=cli_run.EXAMPLES)(cli_run.run)


@app.command("tasks", epilog="**Examples**\n\n`riot-ops tasks`\n\n`riot-ops tasks --json`")
def list_tasks(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the registered tasks and sources."""
    classes: list[type[Task] | type[Source]] = [*registered_tasks(), *registered_sources()]
    entries = [
        {
            "code": cls.code,
            "name": cls.name(),
            "category": cls.category,
            "pattern": cls.pattern,
            "selectivity": cls.selectivity,
            "stateful": cls.stateful,
        }
        for cls in classes
    ]
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    columns = ("code", "name", "category", "pattern", "selectivity", "state", "purpose")
    rows = [
        (*(str(entry[c]) for c in columns[:5]), "yes" if entry["stateful"] else "", (cls.__doc__ or "").splitlines()[0])
        for cls, entry in zip(classes, entries, strict=True)
    ]
    if not console.is_terminal:  # whole lines, for grep and cut
        print(*("\t".join(row) for row in (columns, *rows)), sep="\n")
        return
    console.print(_task_table(rows))


def _task_table(rows: list[tuple[str, ...]]) -> Table:
    """The tasks by category, readable at 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("code", "name", "rate", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("purpose")
    category = ""
    for code, name, of, _, rate, state, purpose in rows:
        if of != category:
            table.add_section()
            table.add_row("", f"[bold]{of}[/]")
            category = of
        table.add_row(code, name, rate, state, purpose)
    return table


@app.command(
    epilog="**Examples**\n\n`riot-ops show KAL` · a task\n\n`riot-ops show stats` · a dataflow as a diagram\n\n"
    "`riot-ops show stats --format json`"
)
def show(
    name: Annotated[str, typer.Argument(help="A task (name or code) or an application.")],
    task: TaskCode = None,
    stream: StreamName = None,
    format: Annotated[str | None, typer.Option(help="Of an application: mermaid (default), svg or json.")] = None,
) -> None:
    """Show a task's documentation, or an application's graph."""
    from riot_ops.dataflows import BUILDERS

    if name in BUILDERS or name == "micro":
        flow = _dataflow(name, stream, task)
        forms = {"mermaid": flow.diagram, "svg": flow.svg, "json": flow.to_json}
        if format not in (None, *forms):
            raise ConfigError(f"--format must be {', '.join(forms)}, got {format!r}")
        print(forms[format or "mermaid"]())
        return
    import inspect

    for option, given in (("--stream", stream), ("--format", format), ("a second name", task)):
        if given is not None:
            raise ConfigError(f"{option} is for applications, got {given!r} for {name}")

    known = {label: s for s in registered_sources() for label in (s.code, s.name())}
    kind: type[Task] | type[Source] = known.get(name) or find_task(name)
    console.print(f"[bold]{kind.__name__}[/bold] ({kind.code}, {kind.category}, {kind.pattern} {kind.selectivity})\n")
    console.print(inspect.getdoc(kind) or "", markup=False, highlight=False)


@app.command(
    epilog="**Examples**\n\n`riot-ops plan stats`\n\n`riot-ops plan stats --fuse coarse`\n\n"
    "`riot-ops plan flow.json` · a dataflow from its JSON descriptor"
)
def plan(
    name: Annotated[str, typer.Argument(help="An application, or a file with a JSON descriptor.")],
    task: TaskCode = None,
    stream: StreamName = None,
    fuse: Annotated[str, typer.Option(help="exact or coarse.")] = "exact",
) -> None:
    """Show the stages in which Spark runs a dataflow."""
    print(_dataflow(name, stream, task).plan(fuse=fuse))


app.command("streams", epilog=cli_streams.EXAMPLES)(cli_streams.streams)
app.add_typer(cli_reuse.app, name="reuse")
app.command("warm", epilog=cli_warm.EXAMPLES)(cli_warm.warm)
add_plugins(app)


def _dataflow(name: str, stream: str | None, task: str | None) -> Dataflow:
    from riot_ops.dataflows import BUILDERS, RIOTBENCH, micro

    check_task(name, task)
    if name in RIOTBENCH:
        return BUILDERS[name](stream or "city")
    if stream is not None:
        raise ConfigError(f"--stream is for {', '.join(RIOTBENCH)}, got {stream!r} for {name}")
    if task is not None:
        return micro(task)
    if name in BUILDERS:
        return BUILDERS[name]()
    path = Path(name)
    if path.suffix == ".json":
        if not path.exists():
            raise ConfigError(f"no file {name}")
        return Dataflow.from_json(path.read_text(encoding="utf-8"))
    raise ConfigError(f"unknown application {name!r}; known are {', '.join(BUILDERS)}{did_you_mean(name, BUILDERS)}")


def main() -> Any:
    """Entry point: errors of riot_ops end in a line; Ctrl-C ends in exit code 130, by Typer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without the signs shows others, and nothing breaks
    try:
        return app()
    except RiotError as error:
        # notes say where it happened, such as in which step
        print("riot-ops:", "; ".join([str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        sys.exit(2)
