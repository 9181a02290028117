"""The ``riot-ops`` command."""

from __future__ import annotations

import io
import json
import sys
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from riot_ops import __version__
from riot_ops.cli import checkpoint as cli_checkpoint
from riot_ops.cli import doctor as cli_doctor
from riot_ops.cli import errors as cli_errors
from riot_ops.cli import new as cli_new
from riot_ops.cli import plan as cli_plan
from riot_ops.cli import run as cli_run
from riot_ops.cli import streams as cli_streams
from riot_ops.cli import warm as cli_warm
from riot_ops.cli.live_option import LiveCommand
from riot_ops.cli.plan import build_dataflow
from riot_ops.cli.plugins import add_plugins
from riot_ops.cli.run import TaskCode
from riot_ops.core.errors import ConfigError, RiotError, escape_control
from riot_ops.core.interrupts import TERMINATED, handle_termination
from riot_ops.core.source import Source, registered_sources
from riot_ops.task import Task, find_task, registered_tasks
from riot_ops.tasks import PRESETS

__all__ = ["app", "main"]

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="markdown",
    help="IoT streaming operators, in process and on Spark.",
)
console = Console(markup=False)

#: What ``riot-ops`` alone prints.
FIRST_STEPS = f"""riot_ops {__version__}: IoT streaming operators, in process and on Spark

try
  riot-ops run stats                  statistics of sensors, with a picture
  riot-ops run stats --input my.csv --format csv --time time --key device
                                      the same over a CSV file of yours
  riot-ops run --list                 the other applications
  riot-ops tasks                      all tasks; riot-ops show KAL: one
  riot-ops new my-project             write a project of your own, with tests
  riot-ops doctor                     whether this machine has what it needs
  riot-ops --help                     all commands"""

StreamName = Annotated[
    str | None, typer.Option("--stream", help="For RIoTBench's applications: city (default), taxi, fit or grid.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """IoT streaming operators, in process and on Spark."""
    if context.invoked_subcommand is None:
        print(FIRST_STEPS)


app.command("run", epilog=cli_run.EXAMPLES, cls=LiveCommand)(cli_run.run)


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
    purposes = [(cls.__doc__ or "").splitlines()[0] for cls in classes]
    for code, (_, purpose) in PRESETS.items():
        found = next(entry for entry in entries if entry["name"] == find_task(code).name())
        entries.append({**found, "code": code})
        purposes.append(purpose)
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    columns = ("code", "name", "category", "pattern", "selectivity", "state", "purpose")
    rows = [
        (*(str(entry[c]) for c in columns[:5]), "yes" if entry["stateful"] else "", purpose)
        for entry, purpose in zip(entries, purposes, strict=True)
    ]
    if not console.is_terminal:  # whole lines, for grep and cut
        print(*("\t".join(row) for row in (columns, *rows)), sep="\n")
        return
    console.print(_task_table(rows))


def _task_table(rows: list[tuple[str, ...]]) -> Table:
    """Build a table of the tasks by category that fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("code", "name", "rate", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("purpose")
    category = ""
    for code, name, row_category, _, rate, state, purpose in rows:
        if row_category != category:
            table.add_section()
            table.add_row("", Text(row_category, "bold"))
            category = row_category
        table.add_row(code, name, rate, state, purpose)
    return table


@app.command(
    epilog="**Examples**\n\n`riot-ops show KAL` · a task's documentation\n\n"
    "`riot-ops show stats` · an application's diagram\n\n`riot-ops show stats --format json`"
)
def show(
    name: Annotated[str, typer.Argument(help="Task (name or code) or application.")],
    task: TaskCode = None,
    stream: StreamName = None,
    format: Annotated[str | None, typer.Option(help="For applications: mermaid (default), svg or json.")] = None,
) -> None:
    """Show the documentation of a task, or the graph of an application."""
    from riot_ops.dataflows import BUILDERS

    if name in BUILDERS or name == "micro":
        flow = build_dataflow(name, stream, task)
        formats = {"mermaid": flow.diagram, "svg": flow.svg, "json": flow.to_json}
        if format not in (None, *formats):
            raise ConfigError(f"--format must be one of {', '.join(formats)}, got {format!r}")
        print(formats[format or "mermaid"]())
        return
    import inspect

    for option, value in (("--stream", stream), ("--format", format), ("a second name", task)):
        if value is not None:
            raise ConfigError(f"{option} is for applications, got {value!r} for {name}")

    sources = {label: cls for cls in registered_sources() for label in (cls.code, cls.name())}
    kind: type[Task] | type[Source] = sources.get(name) or find_task(name)
    console.print(f"{kind.__name__} ({kind.code}, {kind.category}, {kind.pattern} {kind.selectivity})\n")
    console.print(inspect.getdoc(kind) or "", highlight=False)


app.command("plan", epilog=cli_plan.EXAMPLES)(cli_plan.plan)
app.command("streams", epilog=cli_streams.EXAMPLES)(cli_streams.streams)
app.command("new", epilog=cli_new.EXAMPLES)(cli_new.new)
app.command("doctor", epilog=cli_doctor.EXAMPLES)(cli_doctor.doctor)
app.command("warm", epilog=cli_warm.EXAMPLES)(cli_warm.warm)
app.add_typer(cli_checkpoint.app, name="checkpoint")
app.add_typer(cli_errors.app, name="errors")
add_plugins(app)


def main() -> Any:
    """Run the command; an error of riot_ops is one line and exit code 2, Ctrl-C is exit code 130 (by Typer).

    SIGTERM ends any command like Ctrl-C, with exit code 143, so that files and processes are cleaned up.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal lacks become "?"
    with handle_termination() as terminated:
        try:
            return app()
        except RiotError as error:
            # notes say where it happened, such as the step
            text = "; ".join([str(error), *getattr(error, "__notes__", ())])
            print("riot-ops:", escape_control(text), file=sys.stderr)
            sys.exit(2)
        except (SystemExit, KeyboardInterrupt):
            if terminated.is_set():
                sys.exit(TERMINATED)
            raise
