"""The ``riot-ops`` command."""

from __future__ import annotations

import functools
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
from riot_ops.command import cli_streams, cli_warm
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.core.source import Source, sources
from riot_ops.dataflow import Dataflow
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
INPUT, OUTPUT, RUNNER, STORES, TRAINING = "Input", "Output", "Runner", "Stores and brokers", "Of train"


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


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


@app.command(
    epilog="""**Examples**

`riot-ops run stats` · generated CITY stream on local Spark

`riot-ops run stats --runner local --messages 1000000` · the same records, in this process

`riot-ops run stats --stream grid --sensors 6000` · smart meters

`riot-ops run stats --input city.csv --out results` · a file of `<ms>,<SenML>` lines

`riot-ops run stats --input readings.csv --format csv --time time --key device` · any CSV file with a header

`riot-ops run stats --curve city --messages 3900000` · at the pace of the original benchmark: a week in ten minutes

`riot-ops run stats --rate 7000 --messages 70000` · 7,000 messages per second

`riot-ops run stats --checkpoint state` · and the same again after Ctrl-C or a crash: it goes on

`riot-ops run train --stream taxi` and `riot-ops run pred --stream taxi --models out/train/models` · learn, then predict

`riot-ops run train --ticks benchmark` · from spans like those that the original benchmark learns from

`riot-ops run learn --stream taxi --servers` · both at once: PRED goes over to each new model while it runs

`riot-ops run micro KAL --runner local` · a single task between a source and a sink

`riot-ops run flow.json --input readings.csv` · a dataflow from its JSON descriptor, over the fields that it declares

**Exit codes**: 0 done, 1 nothing was accepted, 2 misuse or failure, 130 Ctrl-C"""
)
def run(
    name: Annotated[
        str,
        typer.Argument(help="etl, stats, pred, train, learn (pred and train at once), micro, or a dataflow's file."),
    ],
    task: TaskCode = None,
    stream: Annotated[str, _option(INPUT, "Generated stream and schema: city, taxi, fit or grid.")] = "city",
    messages: Annotated[int, _option(INPUT, "Messages to generate.", min=1)] = 200_000,
    sensors: Annotated[int, _option(INPUT, "Sensors (taxis, subjects, meters) to generate.", min=1)] = 1_000,
    seed: Annotated[int, _option(INPUT, "Seed of the generator.")] = 0,
    input: Annotated[Path | None, _option(INPUT, "Replay this file or folder instead of generating.")] = None,
    format: Annotated[
        str | None,
        _option(INPUT, "Lines of --input: senml (default) or csv; of a dataflow's records: csv, jsonl or parquet."),
    ] = None,
    time: Annotated[str | None, _option(INPUT, "Of CSV and of records: the column with the time.")] = None,
    time_unit: Annotated[
        str | None, _option(INPUT, "Of records: what numbers in --time count since 1970: s, ms, us or ns.")
    ] = None,
    key: Annotated[str | None, _option(INPUT, "Of CSV: the column that names the sensor.")] = None,
    rate: Annotated[float | None, _option(INPUT, "Messages per second; default: as fast as possible.")] = None,
    speed: Annotated[float | None, _option(INPUT, "Pace by event time: 1 original, 1000 a thousandfold.")] = None,
    curve: Annotated[
        str | None,
        _option(INPUT, "Pace by a stream's seven-day rate curve; at the benchmark's speed, or --speed."),
    ] = None,
    out: Annotated[Path | None, _option(OUTPUT, "Folder for the results; default: out/NAME.")] = None,
    overwrite: Annotated[bool, _option(OUTPUT, "Replace an earlier run's results there.", "--overwrite")] = False,
    checkpoint: Annotated[
        Path | None, _option(OUTPUT, "Keep position and state here; the same again goes on from there.")
    ] = None,
    form: Annotated[
        str | None, _option(OUTPUT, "Of stats: paper or plots; of pred: publish or paper; default: the first.")
    ] = None,
    plot: Annotated[bool, _option(OUTPUT, "Draw one sensor's series as a PNG.")] = True,
    runner: Annotated[str, _option(RUNNER, "spark or local (in this process).")] = "spark",
    cores: Annotated[
        int | None, _option(RUNNER, "Cores for local Spark, or in this process; default: all.", min=1)
    ] = None,
    batch: Annotated[int | None, _option(RUNNER, "Most messages per (micro-)batch.", min=1)] = None,
    trigger: Annotated[str | None, _option(RUNNER, "Micro-batch interval on Spark, such as '1 second'.")] = None,
    ticks: Annotated[
        str | None,
        _option(
            TRAINING,
            "What to learn from: a timer file, or 'benchmark' for spans like its timers'; default: all readings, in "
            "equal spans. --speed 1 keeps to the times of the ticks.",
        ),
    ] = None,
    spans: Annotated[
        int | None, _option(TRAINING, "How many spans; default: 5, of the benchmark 7 (fit, grid: 12).", min=1)
    ] = None,
    start: Annotated[
        int | None,
        _option(TRAINING, "Of the benchmark's: where they begin, in ms since 1970; default: at the first reading."),
    ] = None,
    table: Annotated[str | None, _option(STORES, "Table, such as azure-table://; default: a file in --out.")] = None,
    models: Annotated[
        str | None, _option(STORES, "Models: folder or azure-blob://container; default: in --out.")
    ] = None,
    broker: Annotated[str | None, _option(STORES, "Such as mqtt://host:1883; default: a folder in --out.")] = None,
    servers: Annotated[bool, _option(STORES, "Start Mosquitto and Azurite, and use them.", "--servers")] = False,
) -> None:
    """Run an application and write its results as Parquet files, one folder per stream."""
    from riot_ops.command.job import Job
    from riot_ops.command.learning_job import LearningJob
    from riot_ops.command.single_jobs import FlowJob, MicroJob
    from riot_ops.command.train_job import TrainJob

    _check_task(name, task)
    kinds: dict[str, Any] = {
        "learn": LearningJob,
        "train": TrainJob,
        "micro": functools.partial(MicroJob, task=task or ""),
    }
    kind = kinds.get(name, FlowJob if name.endswith(".json") else Job)
    job = kind(
        name=name,
        stream=stream,
        messages=messages,
        sensors=sensors,
        seed=seed,
        input=input,
        format=format,
        time=time,
        time_unit=time_unit,
        key=key,
        rate=rate,
        speed=speed,
        curve=curve,
        out=out,
        overwrite=overwrite,
        checkpoint=checkpoint,
        form=form,
        plot=plot,
        runner=runner,
        cores=cores,
        batch=batch,
        trigger=trigger,
        ticks=ticks,
        spans=spans,
        start=start,
        table=table,
        models=models,
        broker=broker,
        servers=servers,
    )
    job.run(console)
    if job.nothing_accepted:
        raise typer.Exit(1)


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
    columns = ("code", "name", "category", "pattern", "selectivity", "state", "purpose")
    rows = [
        (*(str(entry[c]) for c in columns[:5]), "yes" if entry["stateful"] else "", (k.__doc__ or "").splitlines()[0])
        for k, entry in zip(kinds, entries, strict=True)
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
    repeat: Annotated[int, typer.Option(min=1, help="Runs; figures are then medians, with their ranges.")] = 1,
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
    suites.run(
        name, as_json=as_json, quick=quick, repeat=repeat, **{k: v for k, v in options.items() if v not in (None, [])}
    )


app.command("streams", epilog=cli_streams.EXAMPLES)(cli_streams.streams)
app.command("warm", epilog=cli_warm.EXAMPLES)(cli_warm.warm)


def _check_task(name: str, task: str | None) -> None:
    if (name == "micro") != (task is not None):
        raise ConfigError("micro needs the code of a task" if task is None else f"{name} takes no task, got {task!r}")


def _dataflow(name: str, stream: str, task: str | None) -> Dataflow:
    from riot_ops.dataflows import BUILDERS, micro

    _check_task(name, task)
    if task is not None:
        return micro(task)
    if name in BUILDERS:
        return BUILDERS[name](stream)
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
