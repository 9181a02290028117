"""The command ``riot-ops bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLES", "bench"]

EXAMPLES = (
    "**Examples**\n\n`riot-ops bench --list`\n\n`riot-ops bench kernels`\n\n`riot-ops bench keyed --json`\n\n"
    "`riot-ops bench micro --task KAL --task XML` · single tasks, beside the RIoTBench paper\n\n"
    "`riot-ops bench app --name stats --stream city --runner spark --out results`\n\n"
    "`riot-ops bench dspbench --app wc --app fd --runner local`\n\n"
    "`riot-ops bench reuse --workload riot --trace seq --backend local`"
)


def bench(
    name: Annotated[str | None, typer.Argument(help="Benchmark to run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per measure and line.")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small data, for a look; not for quoting.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; figures are medians, what must hold the worst.")] = 1,
    task: Annotated[list[str] | None, typer.Option(help="Of micro: code of a task; default: all.")] = None,
    application: Annotated[
        list[str] | None, typer.Option("--name", help="Of app: an application; default: all.")
    ] = None,
    stream: Annotated[list[str] | None, typer.Option(help="Of app: a stream; default: city and taxi.")] = None,
    apps: Annotated[list[str] | None, typer.Option("--app", help="Of dspbench: an application; default: all.")] = None,
    runner: Annotated[
        str | None, typer.Option(help="Of micro and app: local (default) or spark; of dspbench also all (default).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Of micro, app and dspbench: folder for page and pictures.")] = None,
    duration: Annotated[
        float | None, typer.Option(help="Of app: seconds at the stream's pace; default: its week in 604.8.")
    ] = None,
    trace: Annotated[list[str] | None, typer.Option(help="Of reuse: seq, rw1 or rw2; default: all.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Of reuse: riot (default) or opmw.")] = None,
    backend: Annotated[str | None, typer.Option(help="Of reuse: local (default), null or spark.")] = None,
    many: Annotated[int | None, typer.Option(min=1, help="Of reuse: so many dataflows over one stream.")] = None,
    carried: Annotated[
        bool, typer.Option("--carried", help="Of reuse on Spark: how many dataflows two cores carry.")
    ] = False,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Of reuse on Spark: so many dataflows at once; default: 12.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Of streambench: performance, saturation, recipients, faults, durability or knobs; of threat: "
            "classifier, throughput …; default: all."
        ),
    ] = None,
    program: Annotated[list[str] | None, typer.Option(help="Of streambench: a program; default: all.")] = None,
    scale: Annotated[float | None, typer.Option(help="Of streambench: times the records; 50 is the paper's.")] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Of streambench's durability: records per minute; default: 10000 and 200000."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of streambench's durability: for how long; default: 1800, quick 120.")
    ] = None,
) -> None:
    """Measure riot_ops against other ways to do the same work, side by side."""
    from riot_bench.harness import registry as suites

    if list_names or name is None:
        for known, purpose in suites.describe().items():
            print(f"{known:10} {purpose}")
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
    suites.run(
        name, as_json=as_json, quick=quick, repeat=repeat, **{k: v for k, v in options.items() if v not in (None, [])}
    )
