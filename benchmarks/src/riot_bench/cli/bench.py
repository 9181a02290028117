"""The ``riot-ops bench`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLES", "bench"]

EXAMPLES = (
    "**Examples**\n\n`riot-ops bench --list`\n\n`riot-ops bench kernels`\n\n`riot-ops bench keyed --json`\n\n"
    "`riot-ops bench micro --task KAL --task XML` · single tasks, with the RIoTBench paper's values\n\n"
    "`riot-ops bench app --name stats --stream city --runner spark --out results`\n\n"
    "`riot-ops bench dspbench --app wc --app fd --runner local`\n\n"
    "`riot-ops bench reuse --workload riot --trace seq --backend local`"
)


def bench(
    name: Annotated[str | None, typer.Argument(help="Benchmark to run; default: list them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per measure, one per line.")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Use small data, for a trial and not for figures.")] = False,
    repeat: Annotated[
        int,
        typer.Option(min=1, help="Number of runs; a measure is their median, or their worst if all must hold."),
    ] = 1,
    task: Annotated[list[str] | None, typer.Option(help="micro: code of a task; default: all.")] = None,
    application: Annotated[
        list[str] | None, typer.Option("--name", help="app: an application; edges: a pair; default: all.")
    ] = None,
    stream: Annotated[list[str] | None, typer.Option(help="app: a stream; default: city and taxi.")] = None,
    apps: Annotated[list[str] | None, typer.Option("--app", help="dspbench: an application; default: all.")] = None,
    runner: Annotated[
        str | None,
        typer.Option(help="micro, app: local (default) or spark; dspbench: all (default), local or spark."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="micro, app, dspbench: folder for the page and its plots.")] = None,
    duration: Annotated[
        float | None, typer.Option(help="app: seconds at the stream's pace; default: 604.8, a week of the stream.")
    ] = None,
    trace: Annotated[list[str] | None, typer.Option(help="reuse: seq, rw1 or rw2; default: all.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="reuse: riot (default) or opmw.")] = None,
    backend: Annotated[str | None, typer.Option(help="reuse: local (default), null or spark.")] = None,
    many: Annotated[int | None, typer.Option(min=1, help="reuse: number of dataflows over one stream.")] = None,
    carried: Annotated[
        bool, typer.Option("--carried", help="reuse on Spark: measure how many dataflows two cores can run.")
    ] = False,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="reuse on Spark: maximum number of running dataflows; default: 12.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="streambench: performance, saturation, recipients, faults, durability or knobs; threat: "
            "classifier, throughput, failure or at-most-once; default: all."
        ),
    ] = None,
    program: Annotated[list[str] | None, typer.Option(help="streambench: a program; default: all.")] = None,
    scale: Annotated[
        float | None, typer.Option(help="streambench: factor for the number of records; 50 is the paper's size.")
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="streambench durability: records per minute; default: 10000 and 200000."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="streambench durability: seconds (1800, quick 120); edges mqtt-stats-mqtt: (600, quick 20)."),
    ] = None,
) -> None:
    """Compare riot_ops with other ways of doing the same work."""
    from riot_bench.suites import registry

    if list_names or name is None:
        for known, description in registry.describe_suites().items():
            print(f"{known:10} {description}")
        return
    options = {
        "task": task,
        "name": application,
        "stream": stream,
        "app": apps,
        "runner": runner,
        "out": out,
        "duration": duration,
        "trace": trace,
        "workload": workload,
        "backend": backend,
        "many": many,
        "carried": carried or None,
        "at_once": at_once,
        "suite": suite,
        "program": program,
        "scale": scale,
        "rate": rate,
        "seconds": seconds,
    }
    registry.run_suite(
        name, as_json=as_json, quick=quick, repeat=repeat, **{k: v for k, v in options.items() if v not in (None, [])}
    )
