"""The ``riot-ops`` command."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from riot_ops import __version__, cli_streams, cli_warm
from riot_ops.dataflow import Dataflow
from riot_ops.errors import ConfigError, RiotError, did_you_mean
from riot_ops.source import Source, sources
from riot_ops.task import Task, find_task, tasks

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="IoT streaming operators, in process and on Spark.",
)
console = Console()

TaskCode = Annotated[str | None, typer.Argument(help="Of micro: code of the task.")]
StreamName = Annotated[str, typer.Option("--stream", help="Generated stream and schema: city, taxi, fit or grid.")]


@app.command(
    epilog="""**Examples**

`riot-ops run stats` · generated CITY stream on local Spark

`riot-ops run stats --runner local --messages 1000000` · the same records, in this process

`riot-ops run stats --stream grid --sensors 6000` · smart meters

`riot-ops run stats --input city.csv --out results` · a file of `<ms>,<SenML>` lines

`riot-ops run stats --curve city --messages 3900000` · at the pace of the original benchmark: a week in ten minutes

`riot-ops run stats --rate 7000 --messages 70000` · 7,000 messages per second

`riot-ops run train --stream taxi --out taxi` and `riot-ops run pred --stream taxi --out taxi` · learn, then predict

`riot-ops run learn --stream taxi --servers` · both at once: PRED goes over to each new model while it runs

`riot-ops run micro KAL --runner local` · a single task between a source and a sink"""
)
def run(
    name: Annotated[str, typer.Argument(help="etl, stats, pred, train, learn (pred and train at once) or micro.")],
    task: TaskCode = None,
    stream: StreamName = "city",
    messages: Annotated[int, typer.Option(min=1, help="Messages to generate.")] = 200_000,
    sensors: Annotated[int, typer.Option(min=1, help="Sensors (taxis, subjects, meters) to generate.")] = 1_000,
    input: Annotated[Path | None, typer.Option(help="Replay this file instead of generating.")] = None,
    runner: Annotated[str, typer.Option(help="spark or local.")] = "spark",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out"),
    rate: Annotated[float | None, typer.Option(help="Messages per second; default: as fast as possible.")] = None,
    speed: Annotated[float | None, typer.Option(help="Pace by event time: 1 original, 1000 a thousandfold.")] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            help="Pace by the seven-day rate curve of city, taxi, fit or grid; at the benchmark's speed, or --speed."
        ),
    ] = None,
    form: Annotated[str, typer.Option(help="Of stats and pred: paper or plots.")] = "paper",
    batch: Annotated[int | None, typer.Option(min=1, help="Most messages per micro-batch.")] = None,
    trigger: Annotated[str | None, typer.Option(help="Micro-batch interval on Spark, such as '1 second'.")] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores for local Spark; default: all.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 0,
    plot: Annotated[bool, typer.Option(help="Draw one sensor's series as a PNG.")] = True,
    table: Annotated[
        str | None, typer.Option(help="Table store, such as azure-table://; default: a file in --out.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Store of models: folder or azure-blob://container.")] = None,
    broker: Annotated[str | None, typer.Option(help="Such as mqtt://host:1883; default: a folder in --out.")] = None,
    servers: Annotated[bool, typer.Option("--servers", help="Start Mosquitto and Azurite, and use them.")] = False,
) -> None:
    """Run an application and write its results as Parquet files, one folder per stream."""
    from riot_ops.job import Job, MicroJob
    from riot_ops.learning_job import LearningJob

    _check_task(name, task)
    kinds: dict[str, Any] = {"learn": LearningJob, "micro": functools.partial(MicroJob, task=task or "")}
    kind = kinds.get(name, Job)
    job = kind(
        name=name,
        stream=stream,
        messages=messages,
        sensors=sensors,
        input=input,
        runner=runner,
        out=out,
        rate=rate,
        speed=speed,
        curve=curve,
        form=form,
        batch=batch,
        trigger=trigger,
        cores=cores,
        seed=seed,
        plot=plot,
        table=table,
        models=models,
        broker=broker,
        servers=servers,
    )
    job.run(console)


@app.command("tasks", epilog="**Examples**\n\n`riot-ops tasks`\n\n`riot-ops tasks --json`")
def list_tasks(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the registered tasks and sources."""
    kinds: list[type[Task] | type[Source]] = [*tasks(), *sources()]
    entries = [
        {
            "code": k.code,
            "name": k.name(),
            "category": k.category,
            "pattern": k.pattern,
            "selectivity": k.selectivity,
            "stateful": k.stateful,
        }
        for k in kinds
    ]
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    table = Table(title="Tasks")
    for column in ("code", "name", "category", "pattern", "selectivity", "state", "purpose"):
        table.add_column(column)
    for kind, entry in zip(kinds, entries, strict=True):
        table.add_row(
            kind.code,
            kind.name(),
            kind.category,
            kind.pattern,
            kind.selectivity,
            "yes" if entry["stateful"] else "",
            (kind.__doc__ or "").splitlines()[0],
        )
    console.print(table)


@app.command(
    epilog="**Examples**\n\n`riot-ops show KAL` · a task\n\n`riot-ops show stats` · a dataflow as a diagram\n\n"
    "`riot-ops show stats --format json`"
)
def show(
    name: Annotated[str, typer.Argument(help="A task (name or code) or an application.")],
    task: TaskCode = None,
    stream: StreamName = "city",
    format: Annotated[str, typer.Option(help="Of an application: mermaid, svg or json.")] = "mermaid",
) -> None:
    """Show a task's documentation, or an application's graph."""
    from riot_ops.dataflows import BUILDERS

    if name in BUILDERS or name == "micro":
        flow = _dataflow(name, stream, task)
        forms = {"mermaid": flow.diagram, "svg": flow.svg, "json": flow.to_json}
        if format not in forms:
            raise ConfigError(f"--format must be {', '.join(forms)}, got {format!r}")
        print(forms[format]())
        return
    import inspect

    known = {label: s for s in sources() for label in (s.code, s.name())}
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
    stream: StreamName = "city",
    fuse: Annotated[str, typer.Option(help="exact or coarse.")] = "exact",
) -> None:
    """Show the stages in which Spark runs a dataflow."""
    print(_dataflow(name, stream, task).plan(fuse=fuse))


@app.command(
    epilog="**Examples**\n\n`riot-ops bench --list`\n\n`riot-ops bench kernels`\n\n`riot-ops bench keyed --json`\n\n"
    "`riot-ops bench micro --task KAL --task XML` · single tasks, beside the RIoTBench paper\n\n"
    "`riot-ops bench app --name stats --stream city --runner spark --out results`"
)
def bench(
    name: Annotated[str | None, typer.Argument(help="Benchmark to run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per measure and line.")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small data, for a look; not for quoting.")] = False,
    task: Annotated[list[str] | None, typer.Option(help="Of micro: code of a task; default: all.")] = None,
    application: Annotated[
        list[str] | None, typer.Option("--name", help="Of app: an application; default: all.")
    ] = None,
    stream: Annotated[list[str] | None, typer.Option(help="Of app: a stream; default: city and taxi.")] = None,
    runner: Annotated[str | None, typer.Option(help="Of micro and app: local (default) or spark.")] = None,
    out: Annotated[Path | None, typer.Option(help="Of micro and app: folder for page and pictures.")] = None,
    duration: Annotated[
        float | None, typer.Option(help="Of app: seconds at the stream's pace; default: its week in 604.8.")
    ] = None,
) -> None:
    """Measure riot_ops against other ways to do the same work, side by side."""
    from riot_ops import bench as suites

    if list_names or name is None:
        for suite, purpose in suites.describe().items():
            print(f"{suite:10} {purpose}")
        return
    options = {"task": task, "name": application, "stream": stream, "runner": runner, "out": out, "duration": duration}
    suites.run(name, as_json=as_json, quick=quick, **{k: v for k, v in options.items() if v not in (None, [])})


app.command("streams", epilog=cli_streams.EXAMPLES)(cli_streams.streams)
app.command("warm", epilog=cli_warm.EXAMPLES)(cli_warm.warm)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _check_task(name: str, task: str | None) -> None:
    if (name == "micro") != (task is not None):
        raise ConfigError("micro needs the code of a task" if task is None else f"{name} takes no task, got {task!r}")


def _dataflow(name: str, stream: str, task: str | None) -> Dataflow:
    from riot_ops.dataflows import BUILDERS, micro

    _check_task(name, task)
    if task is not None:
        return micro(find_task(task).code)
    if name in BUILDERS:
        return BUILDERS[name](stream)
    path = Path(name)
    if path.suffix == ".json":
        if not path.exists():
            raise ConfigError(f"no file {name}")
        return Dataflow.from_json(path.read_text(encoding="utf-8"))
    raise ConfigError(f"unknown application {name!r}; known are {', '.join(BUILDERS)}{did_you_mean(name, BUILDERS)}")


def main() -> Any:
    """Entry point: errors of riot_ops end in one line; Ctrl-C ends in exit code 130, by Typer."""
    try:
        return app()
    except RiotError as error:
        print(f"riot-ops: {error}", file=sys.stderr)
        sys.exit(2)
