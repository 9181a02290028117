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

console = Console(markup=False)

TaskCode = Annotated[str | None, typer.Argument(help="For micro: code of the task, such as KAL.")]
#: Parameters of the command that jobs get otherwise, or not at all.
NOT_OF_JOBS = ("name", "task", "input", "settings", "list_names", "as_json")
INPUT, OUTPUT, RUNNER, STORES, TRAINING = "Input", "Output", "Runner", "Stores and brokers", "For train"
WATCHING = "Watching"

EXAMPLES = """**Examples**

`riot-ops run stats` · over the generated stream city, in this process

`riot-ops run stats --runner spark` · over the same stream, on local Spark

`riot-ops run stats --stream grid --sensors 6000` · over the stream of smart meters

`riot-ops run stats --input city.csv --out results` · over a file of `<ms>,<SenML>` lines

`riot-ops run stats --input readings.csv --format csv --time time --key device` · over any CSV file with a header

`riot-ops run stats --mqtt mqtts://broker:8883 --topic 'city/#' --runner local` · over the messages of a broker

`riot-ops run stats --curve city --messages 3900000` · at the original benchmark's pace: a week in ten minutes

`riot-ops run stats --rate 7000 --messages 70000` · at 7,000 messages per second

`riot-ops run stats --checkpoint state` · the same command continues the run after Ctrl-C or a crash

`riot-ops run train --stream taxi` and `riot-ops run pred --stream taxi --models out/train/models` · train, then predict

`riot-ops run train --ticks benchmark` · from spans like the original benchmark's

`riot-ops run learn --stream taxi --servers` · train and predict at the same time: PRED switches to each new model

`riot-ops run wc --input books.txt` · DSPBench's word count over a text file

`riot-ops run fd --messages 1000000 --set window=10 --set threshold=0.98` · fraud detection with other parameters

`riot-ops run stats --live --live-report last.html` · watch the run in a browser, and keep its last state

`riot-ops run --list` · list the applications

`riot-ops run micro KAL` · one task between a source and a sink

`riot-ops run flow.json --input readings.csv` · a dataflow's JSON file, over records with the fields that it declares

**Exit codes**: 0 completed, 1 all records were rejected, 2 wrong options or a failure, 130 Ctrl-C, 143 SIGTERM"""


def _option(panel: str, text: str, *names: str, **input_options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **input_options)


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Application (see --list), learn (train with pred), micro (one task) or a dataflow's JSON file."
        ),
    ] = None,
    task: TaskCode = None,
    stream: Annotated[
        str, _option(INPUT, "Stream to generate, or schema of --input: city, taxi, fit or grid.")
    ] = "city",
    messages: Annotated[int, _option(INPUT, "Number of messages to generate.", min=1)] = 200_000,
    sensors: Annotated[int, _option(INPUT, "Number of sensors (taxis, subjects, meters) to generate.", min=1)] = 1_000,
    seed: Annotated[int, _option(INPUT, "Seed of the generator.")] = 0,
    input: Annotated[
        list[str] | None,
        _option(
            INPUT,
            "File or folder to read instead of a generated stream; NAME=FILE, repeatable, for several inputs.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        _option(INPUT, "Parameter of an application other than RIoTBench's, NAME=VALUE; repeatable.", "--set"),
    ] = None,
    format: Annotated[
        str | None,
        _option(INPUT, "Format of --input: senml (default) or csv; for a dataflow's JSON file: csv, jsonl or parquet."),
    ] = None,
    encoding: Annotated[
        str, _option(INPUT, "Encoding of --input, such as latin-1; for a dataflow's JSON file: of CSV.")
    ] = "utf-8",
    time: Annotated[
        str | None, _option(INPUT, "Column with the time, in CSV files and in the records of a dataflow's JSON file.")
    ] = None,
    time_unit: Annotated[
        str | None,
        _option(INPUT, "Unit of the numbers in --time, for a dataflow's JSON file: s, ms, us or ns since 1970."),
    ] = None,
    read: Annotated[
        list[str] | None,
        _option(
            INPUT,
            "Option of riot_ops.read for CSV, NAME=VALUE, for a dataflow's JSON file: delimiter, null_values, "
            "skip_rows, comment, decimal, time_format, tz and so on; repeatable.",
        ),
    ] = None,
    key: Annotated[str | None, _option(INPUT, "Column with the sensor's id, in CSV files.")] = None,
    mqtt: Annotated[
        str | None,
        _option(
            INPUT, "Broker to read messages of --stream from, such as mqtts://host:8883; until Ctrl-C or --messages."
        ),
    ] = None,
    topic: Annotated[list[str] | None, _option(INPUT, "With --mqtt: topic filter; repeatable; default: #.")] = None,
    client_id: Annotated[
        str | None, _option(INPUT, "With --mqtt: name of the client; default: one for the folder of the results.")
    ] = None,
    ca_file: Annotated[str | None, _option(INPUT, "With --mqtt: certificates of trusted authorities.")] = None,
    certificate: Annotated[str | None, _option(INPUT, "With --mqtt: the client's certificate (PEM).")] = None,
    private_key: Annotated[
        str | None, _option(INPUT, "With --mqtt: its private key; default: in the file of the certificate.")
    ] = None,
    rate: Annotated[float | None, _option(INPUT, "Messages per second; default: no limit.")] = None,
    speed: Annotated[
        float | None,
        _option(INPUT, "Event time per wall-clock time: 1 is the original pace, 1000 a thousand times as fast."),
    ] = None,
    curve: Annotated[
        str | None,
        _option(INPUT, "Stream whose seven-day rate curve sets the pace, at the benchmark's speed-up or at --speed."),
    ] = None,
    out: Annotated[
        str | None,
        _option(OUTPUT, "Folder of the results, or an address such as s3://bucket/folder; default: out/NAME."),
    ] = None,
    out_format: Annotated[
        str, _option(OUTPUT, "Format of the results: parquet, csv or jsonl (a JSON object per line).")
    ] = "parquet",
    overwrite: Annotated[
        bool, _option(OUTPUT, "Replace the results of an earlier run in that folder.", "--overwrite")
    ] = False,
    checkpoint: Annotated[
        str | None,
        _option(
            OUTPUT,
            "Folder for position and state (or an address, --runner local); the same command continues from there.",
        ),
    ] = None,
    restart: Annotated[
        str,
        _option(
            OUTPUT,
            "Whether --checkpoint may be of a dataflow that differs: same, or compatible, which keeps the state of the "
            "steps that did not change and shows which.",
        ),
    ] = "same",
    form: Annotated[
        str | None,
        _option(
            OUTPUT, "Variant of the application: stats has paper and plots, pred publish and paper; default: the first."
        ),
    ] = None,
    plot: Annotated[bool, _option(OUTPUT, "Draw a plot of the results as a PNG file.")] = True,
    runner: Annotated[
        str,
        _option(
            RUNNER,
            "spark, local (in this process) or auto: local for generated messages up to 1,000,000, for files up to "
            "256 MiB, and without Spark.",
        ),
    ] = "auto",
    cores: Annotated[
        int | None, _option(RUNNER, "Cores of local Spark or of this process; default: all.", min=1)
    ] = None,
    batch_size: Annotated[
        int | None, _option(RUNNER, "Maximum messages per batch or micro-batch; default on Spark: 100,000.", min=1)
    ] = None,
    buffering: Annotated[
        str | None, _option(RUNNER, "How records are gathered into batches: throughput, latency or immediate.")
    ] = None,
    trigger: Annotated[str | None, _option(RUNNER, "Interval between micro-batches on Spark, such as 1s.")] = None,
    target_duration: Annotated[
        str | None,
        _option(RUNNER, "Target duration of a micro-batch on Spark, such as 500ms; --batch-size is then its maximum."),
    ] = None,
    ticks: Annotated[
        str | None,
        _option(
            TRAINING,
            "Time spans to train on: a timer file, or 'benchmark' for spans like the original benchmark's; default: "
            "all readings, in equal spans. --speed 1 keeps the times of the ticks.",
        ),
    ] = None,
    spans: Annotated[
        int | None, _option(TRAINING, "Number of spans; default: 5, with --ticks benchmark 7 (fit, grid: 12).", min=1)
    ] = None,
    start: Annotated[
        int | None,
        _option(
            TRAINING, "With --ticks benchmark: start of the first span, ms since 1970; default: the first reading."
        ),
    ] = None,
    table: Annotated[
        str | None, _option(STORES, "Table store, such as azure-table://; default: a file in --out.")
    ] = None,
    models: Annotated[
        str | None, _option(STORES, "Model store: a folder or azure-blob://CONTAINER; default: in --out.")
    ] = None,
    broker: Annotated[
        str | None, _option(STORES, "Broker, such as mqtt://host:1883; default: a folder in --out.")
    ] = None,
    servers: Annotated[
        bool, _option(STORES, "Start Mosquitto and Azurite, and use them as stores and broker.", "--servers")
    ] = False,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="[=PORT or URL]",
            rich_help_panel=WATCHING,
            help="Show the run in the browser, on this machine, at a free port or that one; other addresses need a "
            "token in RIOT_OPS_LIVE_TOKEN.",
        ),
    ] = None,
    live_report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=WATCHING,
            help="Keep what the live page shows at the end, also after Ctrl-C or a failure, as one HTML file.",
        ),
    ] = None,
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            rich_help_panel=WATCHING,
            help="Offer the metrics to OpenTelemetry, as set up by opentelemetry-instrument riot-ops run ….",
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            rich_help_panel=WATCHING,
            help="Also print what the run logs: connections, commits, rejects, lag.",
        ),
    ] = False,
    log_json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=WATCHING,
            help="Write log messages, and the progress after each commit, to a file as one JSON object per line; "
            "- is standard error.",
        ),
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the applications and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    """Run an application and write its results as files, one folder per stream."""
    given = {option: value for option, value in locals().items() if value is not None and option not in NOT_OF_JOBS}
    if list_names:
        _list_applications(as_json)
        return
    if as_json:
        raise ConfigError("--json needs --list")
    if name is None:
        raise ConfigError("name an application; riot-ops run --list shows them")
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
        job_class, input_options = ApplicationJob, {"inputs": tuple(input or ()), "settings": tuple(settings or ())}
    else:
        if settings:
            raise ConfigError(f"--set is not for {name}, got {settings[0]!r}; leave it out")
        if len(input or ()) > 1:
            raise ConfigError(f"{name} takes one --input, got {', '.join(input or ())}")
        input_options = {"input": input[0] if input else None}
    options = {option: tuple(value) if isinstance(value, list) else value for option, value in given.items()}
    job = job_class(name=name, **options, **input_options)
    job.run(console)
    if job.all_rejected:
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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("code", "name", "suite", "purpose"):
        table.add_column(column, no_wrap=column != "purpose", overflow="fold")
    for one in APPLICATIONS.values():
        table.add_row(one.code, one.name, one.suite, one.purpose)
    console.print(table)


def check_task(name: str, task: str | None) -> None:
    """Raise unless a task is given exactly for ``micro``."""
    if (name == "micro") != (task is not None):
        raise ConfigError("micro needs the code of a task" if task is None else f"{name} takes no task, got {task!r}")
