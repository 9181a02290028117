"""The command ``riot-ops plan``: the stages of a dataflow, and the size of a deployment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import pyarrow as pa
import typer

from riot_ops.cli.run import TaskCode, check_task
from riot_ops.cli.settings import parse_assignments
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.paths import local_path
from riot_ops.dataflow import Dataflow

__all__ = ["EXAMPLES", "build_dataflow", "plan"]

EXAMPLES = (
    "**Examples**\n\n`riot-ops plan stats`\n\n`riot-ops plan stats --fuse coarse`\n\n"
    "`riot-ops plan flow.json` · a dataflow's JSON descriptor\n\n"
    "`riot-ops plan stats --rate 7000 --keys 90000` · size of a deployment, from short runs here\n\n"
    "`riot-ops plan stats --rate 7000 --keys 90000 --runner spark --json`\n\n"
    "`riot-ops plan flow.json --rate 500 --keys 2000 --input readings.csv`"
)
#: Most sensors, and messages of each, in the two runs from which keys per sensor follow.
MAX_SENSORS, MESSAGES_PER_SENSOR = (500, 2000), (80, 20)
#: Messages of a run in process, and on Spark, where the start of a query takes some CPU seconds, never the same.
MESSAGES, SPARK_MESSAGES = 40_000, 400_000
#: Most messages of a run: they take minutes already.
MAX_MESSAGES = 100_000_000


def plan(
    name: Annotated[str, typer.Argument(help="Application, micro, or a dataflow's JSON file.")],
    task: TaskCode = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="For RIoTBench's applications: city (default), taxi, fit or grid.")
    ] = None,
    fuse: Annotated[
        str, typer.Option(help="Keyed steps that share a stage: exact (equal keys) or coarse (overlapping keys).")
    ] = "exact",
    rate: Annotated[
        float | None, typer.Option(help="Messages per second: measure the dataflow, and print the size for them.")
    ] = None,
    keys: Annotated[int | None, typer.Option(help="Keys of the stream, such as sensors; with --rate.")] = None,
    runner: Annotated[str, typer.Option(help="With --rate: local (one process) or spark.")] = "local",
    head_room: Annotated[float, typer.Option(help="With --rate: how many times the load the size suffices for.")] = 2.0,
    messages: Annotated[
        int | None,
        typer.Option(help=f"With --rate: messages of a run; default {MESSAGES:,}, on Spark {SPARK_MESSAGES:,}."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="With --rate: FILE or SOURCE=FILE with records to measure with."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --rate: print JSON.")] = False,
) -> None:
    """Show the stages in which Spark runs a dataflow; with --rate and --keys the size of a deployment."""
    flow = build_dataflow(name, stream, task)
    if rate is None and keys is None:
        for option, given in (
            ("--input", bool(inputs)),
            ("--json", as_json),
            ("--runner", runner != "local"),
            ("--head-room", head_room != 2.0),
            ("--messages", messages is not None),
        ):
            if given:
                raise ConfigError(f"{option} is for the size of a deployment: give --rate and --keys")
        print(flow.plan(fuse=cast("Any", fuse)))
        return
    from riot_ops.cli.sizing import calibrate, check_load, size_for

    if rate is None or keys is None:
        raise ConfigError("the size of a deployment needs both --rate and --keys")
    check_load(rate, keys, head_room)
    if fuse != "exact":
        raise ConfigError("--fuse is for the stages of a dataflow: leave it out where --rate and --keys are given")
    if runner not in ("local", "spark"):
        raise ConfigError(f"--runner must be spark or local, got {runner!r}")
    if messages is None:
        messages = SPARK_MESSAGES if runner == "spark" else MESSAGES
    if not 100 <= messages <= MAX_MESSAGES:
        raise ConfigError(f"--messages must be a whole number from 100 to {MAX_MESSAGES:,}, got {messages:,}")
    sources, sizes = _sources(flow, name, stream, inputs or (), messages)
    measured = calibrate(flow, sources, sizes, messages, cast("Any", runner))
    size = size_for(flow.name, measured, rate, keys, head_room)
    print(json.dumps(size.to_dict(), indent=1) if as_json else size)


def _sources(
    flow: Dataflow, name: str, stream: str | None, inputs: Sequence[str], messages: int
) -> tuple[Any, tuple[int, ...]]:
    """Return what makes the sources of a run, and the numbers of keys to run with."""
    from riot_ops.dataflows import RIOTBENCH
    from riot_ops.dataflows.applications import APPLICATIONS
    from riot_ops.streams.catalog import CATALOG, LINES

    nodes = {node.id: node.schema for node in flow.nodes_of_kind("source")}
    empty = {id: pa.schema(schema or []).empty_table() for id, schema in nodes.items()}
    if inputs:
        files = _files(inputs, [*nodes])
        return (lambda keys, n: {**empty, **files}), ()
    label = stream or "city"
    if name in RIOTBENCH and label in nodes:
        entry = CATALOG[label]

        def generate(keys: int, n: int) -> Mapping[str, Any]:
            return {**empty, label: entry.generator(**{entry.counted: keys, "messages": n})}

        return generate, tuple(map(min, MAX_SENSORS, (messages // each for each in MESSAGES_PER_SENSOR)))
    known = next((one for one in APPLICATIONS.values() if name in (one.name, one.code)), None)
    feeds = (
        {} if known is None else {id: LINES[one] for id, one in known.inputs.items() if one in LINES and id in nodes}
    )
    if not feeds:
        raise ConfigError(f"{name} reads {', '.join(nodes)}: --input SOURCE=FILE names records to measure with")
    return (lambda keys, n: {**empty, **{id: make(messages=n) for id, make in feeds.items()}}), ()


def _files(inputs: Sequence[str], sources: Sequence[str]) -> dict[str, Path]:
    if len(inputs) == 1 and inputs[0].partition("=")[0] not in sources:
        if len(sources) > 1:
            raise ConfigError(f"the dataflow reads {', '.join(sources)}: --input SOURCE=FILE")
        named = {sources[0]: inputs[0]}
    else:
        named = parse_assignments(inputs, "--input")
    for source, text in named.items():
        if source not in sources:
            raise ConfigError(f"--input: the dataflow has no source {source!r}{did_you_mean(source, sources)}")
        if not local_path(text, "--input").exists():
            raise ConfigError(f"--input: no such file: {text}")
    return {source: local_path(text, "--input") for source, text in named.items()}


def build_dataflow(name: str, stream: str | None, task: str | None) -> Dataflow:
    """Build an application, one task over a stream, or the dataflow of a JSON file."""
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
            raise ConfigError(f"no such file: {name}")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read: {error}") from None
        return Dataflow.from_json(text)
    raise ConfigError(f"unknown application {name!r}; known are {', '.join(BUILDERS)}{did_you_mean(name, BUILDERS)}")
