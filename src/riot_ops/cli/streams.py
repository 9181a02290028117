"""The ``riot-ops streams`` command."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["EXAMPLES", "streams"]

EXAMPLES = """**Examples**

`riot-ops streams` · compare all streams

`riot-ops streams city` · fields, message rates and gaps between messages

`riot-ops streams taxi --plot taxi.png` · the distribution of the message rates

`riot-ops streams grid --speed 1 --json`

`riot-ops streams city --write city.csv --messages 5000` · a file for `riot-ops run --input`

`riot-ops streams text` · a stream of lines: an example, and the generator's parameters"""


def streams(
    name: Annotated[str | None, typer.Argument(help="Stream to describe; default: all.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File to draw the message rates of the stream into.")] = None,
    speed: Annotated[
        float | None, typer.Option(help="Event time per wall-clock time; default: the benchmark's.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="File to write messages to, as lines of `<ms>,<SenML>`; compressed if it ends in .gz."),
    ] = None,
    messages: Annotated[
        int | None, typer.Option(min=1, help="With --write: number of messages; default: 10,000.")
    ] = None,
    sensors: Annotated[
        int | None,
        typer.Option(min=1, help="With --write: number of sensors (taxis, subjects, meters); default: the stream's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --write: seed of the generator; default: 0.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list, or an object for one stream.")] = False,
) -> None:
    """Describe the generated streams with their fields, sizes and message rates, or write one to a file."""
    from riot_ops.core.errors import ConfigError
    from riot_ops.streams.catalog import CATALOG, LINES, catalog_entry

    written = {"messages": messages, "sensors": sensors, "seed": seed}
    shown = {"plot": plot, "speed": speed, "json": as_json or None}
    for option in (o for o, value in (written if write is None else shown).items() if value is not None):
        raise ConfigError(f"--{option} {'needs' if write is None else 'is not for'} --write")
    if write is not None:
        if name is None:
            raise ConfigError(f"--write needs the name of a stream: {', '.join((*CATALOG, *LINES))}")
        count = _write(name, write, 10_000 if messages is None else messages, sensors, seed or 0)
        Console(markup=False).print(f"{count:,} messages: {write}", soft_wrap=True)
        return
    if plot is not None:
        if name is None:
            raise ConfigError(f"--plot needs the name of a stream: {', '.join(CATALOG)}")
        if name in LINES:
            raise ConfigError(f"--plot and --speed are for {', '.join(CATALOG)}, got {name!r}")
        from riot_ops.streams.rate_plot import draw_rates

        draw_rates(catalog_entry(name), plot, speed)
    console = Console(markup=False)
    if name is None:
        entries = [entry.describe(speed) for entry in CATALOG.values()]
        lines = [kind().describe() for kind in LINES.values()]
        if as_json:
            print(json.dumps([*entries, *lines], indent=1, ensure_ascii=False))
        else:
            console.print(_overview(entries), _lines(lines))
        return
    if name in LINES:
        if speed is not None:
            raise ConfigError(f"--plot and --speed are for {', '.join(CATALOG)}, got {name!r}")
        description = LINES[name]().describe()
        if as_json:
            print(json.dumps(description, indent=1, ensure_ascii=False))
            return
        console.print(
            f"{name}: {description['domain']}, {description['bytes']} bytes a line, {description['rate']:g} lines/s"
        )
        console.print(description["example"], highlight=False)
        console.print(inspect.getdoc(LINES[name]) or "", highlight=False)
        return
    description = catalog_entry(name).describe(speed)
    if as_json:
        print(json.dumps(description, indent=1, ensure_ascii=False))
        return
    console.print(_details(description))
    console.print(_fields(description))
    if plot is not None:
        console.print(f"plot: {plot}", soft_wrap=True)


def _write(name: str, path: Path, messages: int, sensors: int | None, seed: int) -> int:
    from riot_ops.core.errors import ConfigError
    from riot_ops.streams.catalog import generate
    from riot_ops.streams.files import write

    try:
        return write(generate(name, sensors, messages=messages, seed=seed), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


def _overview(entries: list[dict[str, Any]]) -> Table:
    """Build a table with a column for each stream, which fits 80 columns."""
    table = Table(title="Streams (rates at the benchmark's speed-up, or at --speed)")
    for column in ("stream", *(f["name"] for f in entries)):
        table.add_column(column, overflow="fold")
    rates = [f["rate"] for f in entries]
    rows: dict[str, Iterable[str]] = {
        "domain": (f["domain"] for f in entries),
        "sensors": (f"{f['sensors']:,}" for f in entries),
        "period": (f["period"] for f in entries),
        "columns": (str(len(f["fields"])) for f in entries),
        "observed": (str(sum(field["observed"] for field in f["fields"])) for f in entries),
        "bytes as SenML": (f"{f['bytes']['senml']:,}" for f in entries),
        "bytes as CSV": (f"{f['bytes']['csv']:,}" for f in entries),
        "speed-up": (f"{rate['speed']:g}×" for rate in rates),
        "messages/s, mean": (_number(rate["mean"]) for rate in rates),
        "messages/s, max": (_number(rate["max"]) for rate in rates),
        "distribution": (f["distribution"] for f in entries),
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _lines(entries: list[dict[str, Any]]) -> Table:
    table = Table(title="Streams of lines")
    table.add_column("stream", overflow="fold")
    table.add_column("domain", overflow="fold")
    for column in ("bytes", "lines/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for f in entries:
        table.add_row(f["name"], f["domain"], f"{f['bytes']:g}", _number(f["rate"]))
    return table


def _details(f: dict[str, Any]) -> Table:
    rate, gap = f["rate"], f["gap_ms"]
    table = Table(title=f"{f['name'].upper()}: {f['domain']}", show_header=False)
    for _ in range(2):
        table.add_column(overflow="fold")
    table.add_row("sensors", f"{f['sensors']:,} at these rates; {f['parameter']}= sets another number")
    table.add_row("period", f["period"])
    table.add_row("message", f"{f['bytes']['senml']:,} bytes as <ms>,<SenML>, {f['bytes']['csv']} as CSV")
    table.add_row("distribution", f["distribution"])
    table.add_row(
        f"messages/s at {rate['speed']:g}×",
        f"mean {_number(rate['mean'])}, standard deviation {_number(rate['std'])}, "
        f"from {_number(rate['min'])} to {_number(rate['max'])}",
    )
    table.add_row("repeats after", f"{rate['messages']:,} messages in {_number(rate['seconds'])} s")
    table.add_row("gap between messages", ", ".join(f"{k} {_number(v)}" for k, v in gap.items()) + " ms")
    return table


def _fields(f: dict[str, Any]) -> Table:
    table = Table(title="Fields")
    for column in ("field", "unit", "kind", "observed", "valid range"):
        table.add_column(column, overflow="fold")
    for field in f["fields"]:
        unit = field["unit"] + (f" (labelled {field['label']})" if field["label"] != field["unit"] else "")
        kind = "number" if field["kind"] == "v" else "text"
        bounds = f"{field['bounds'][0]:g} … {field['bounds'][1]:g}" if field["bounds"] else ""
        table.add_row(field["name"], unit, kind, "yes" if field["observed"] else "", bounds)
    return table


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.4g}"
