"""The ``riot-ops run`` command."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from riot_ops.core.errors import ConfigError

__all__ = ["EXAMPLES", "TaskCode", "check_task", "run"]

console = Console()

TaskCode = Annotated[str | None, typer.Argument(help="Of micro: code of the task.")]
INPUT, OUTPUT, RUNNER, STORES, TRAINING = "Input", "Output", "Runner", "Stores and brokers", "Of train"

EXAMPLES = """**Examples**

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

`riot-ops run wc --input books.txt` · word count of DSPBench, over a file in its format

`riot-ops run fd --messages 1000000 --set window=10 --set threshold=0.98` · fraud detection, with parameters

`riot-ops run --list` · all applications

`riot-ops run micro KAL --runner local` · a single task between a source and a sink

`riot-ops run flow.json --input readings.csv` · a dataflow from its JSON descriptor, over the fields that it declares

**Exit codes**: 0 done, 1 nothing was accepted, 2 misuse or failure, 130 Ctrl-C"""


def _option(panel: str, text: str, *names: str, **input_options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **input_options)


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An application (--list names them), learn (pred and train at once), micro, or a dataflow's file."
        ),
    ] = None,
    task: TaskCode = None,
    stream: Annotated[str, _option(INPUT, "Generated stream and schema: city, taxi, fit or grid.")] = "city",
    messages: Annotated[int, _option(INPUT, "Messages to generate.", min=1)] = 200_000,
    sensors: Annotated[int, _option(INPUT, "Sensors (taxis, subjects, meters) to generate.", min=1)] = 1_000,
    seed: Annotated[int, _option(INPUT, "Seed of the generator.")] = 0,
    input: Annotated[
        list[str] | None,
        _option(
            INPUT,
            "Replay this file or folder instead of generating. Of an application with several: NAME=FILE, repeatedly.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None, _option(INPUT, "Of DSPBench: a parameter, NAME=VALUE, repeatedly.", "--set")
    ] = None,
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
    buffering: Annotated[
        str | None, _option(RUNNER, "throughput, latency or immediate: how records are gathered into batches.")
    ] = None,
    trigger: Annotated[str | None, _option(RUNNER, "Micro-batch interval on Spark, such as '1 second'.")] = None,
    target_s: Annotated[
        float | None, _option(RUNNER, "Seconds that a micro-batch should take: on Spark --batch then is the most.")
    ] = None,
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
    list_names: Annotated[bool, typer.Option("--list", help="List the applications.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: as JSON.")] = False,
) -> None:
    """Run an application and write its results as Parquet files, one folder per stream."""
    if list_names:
        _list_applications(as_json)
        return
    if as_json:
        raise ConfigError("--json goes with --list")
    if name is None:
        raise ConfigError("say which application to run; riot-ops run --list names them")
    from riot_ops.cli.application_job import ApplicationJob
    from riot_ops.cli.flow_job import FlowJob
    from riot_ops.cli.job import Job
    from riot_ops.cli.learning_job import LearningJob
    from riot_ops.cli.micro_job import MicroJob
    from riot_ops.cli.train_job import TrainJob
    from riot_ops.dataflows import BUILDERS, RIOTBENCH

    name = name.lower() if name.lower() in BUILDERS else name
    check_task(name, task)
    input_options: dict[str, Any]
    job_classes: dict[str, Any] = {
        "learn": LearningJob,
        "train": TrainJob,
        "micro": functools.partial(MicroJob, task=task or ""),
    }
    job_class = job_classes.get(name, FlowJob if name.endswith(".json") else Job)
    if name in BUILDERS and name not in RIOTBENCH:
        job_class, input_options = ApplicationJob, {"inputs": tuple(input or ()), "given": tuple(given or ())}
    else:
        if given:
            raise ConfigError(f"--set is for applications of DSPBench; got {given[0]!r} for {name}")
        if len(input or ()) > 1:
            raise ConfigError(f"{name} has one --input, got {', '.join(input or ())}")
        input_options = {"input": Path(input[0]) if input else None}
    job = job_class(
        name=name,
        stream=stream,
        messages=messages,
        sensors=sensors,
        seed=seed,
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
        buffering=buffering,
        trigger=trigger,
        target_s=target_s,
        ticks=ticks,
        spans=spans,
        start=start,
        table=table,
        models=models,
        broker=broker,
        servers=servers,
        **input_options,
    )
    job.run(console)
    if job.nothing_accepted:
        raise typer.Exit(1)


def _list_applications(as_json: bool) -> None:
    from riot_ops.dataflows import APPLICATIONS

    if as_json:
        entries = []
        for one in APPLICATIONS.values():
            flow = one.builder()
            entries.append(
                {
                    "code": one.code,
                    "name": one.name,
                    "suite": one.suite,
                    "streams": [edge.source for node in flow.nodes_of_kind("sink") for edge in flow.inputs(node.id)],
                    "sources": [node.id for node in flow.nodes_of_kind("source")],
                }
            )
        print(json.dumps(entries, indent=1))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("code", "name", "suite", "what it does"):
        table.add_column(column, no_wrap=column != "what it does")
    for one in APPLICATIONS.values():
        table.add_row(one.code, one.name, one.suite, one.purpose)
    console.print(table)


def check_task(name: str, task: str | None) -> None:
    """Raise unless a task is named where one is to be run by itself, and only there."""
    if (name == "micro") != (task is not None):
        raise ConfigError("micro needs the code of a task" if task is None else f"{name} takes no task, got {task!r}")
