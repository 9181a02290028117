"""The ``riot-ops reuse`` commands: run a manager, and send requests to it."""

from __future__ import annotations

import contextlib
import getpass
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from riot_ops.cli.live_option import LiveCommand
from riot_ops.cli.reuse_socket import send_request, stop_manager
from riot_ops.cli.settings import parse_assignments
from riot_ops.core.errors import ConfigError, RiotError, escape_control, value_text

if TYPE_CHECKING:
    from riot_ops.cli.reuse_server import ReuseServer
    from riot_ops.dataflow import Dataflow

__all__ = ["add_reuse", "app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Add, change and remove dataflows while others run, and share equal steps: serve runs a manager, the other "
    "commands use it.",
    epilog="**Examples**\n\n`riot-ops reuse serve --dir shared &`\n\n"
    "`riot-ops reuse serve --dir shared --live --allow-actions` · watch, submit and remove dataflows in a browser\n\n"
    "`riot-ops reuse submit flow.json --source city=city --dir shared`\n\n`riot-ops reuse list --dir shared`\n\n"
    "`riot-ops reuse show --format svg --out shared.svg --dir shared`\n\n`riot-ops reuse stop --dir shared`\n\n"
    "**Exit codes**: 0 completed, 1 the manager failed or did not stop in time, 2 refused, with the reason, 130 Ctrl-C",
)
console = Console(markup=False)

#: How long ``stop`` waits for the manager, which waits for its sinks.
STOP_SECONDS = 120.0

Dir = Annotated[Path, typer.Option("--dir", help="Folder of the manager.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of a dataflow.")]


def add_reuse(command: typer.Typer) -> None:
    """Add the commands to ``riot-ops``."""
    command.add_typer(app, name="reuse")


@app.command(cls=LiveCommand)
def serve(
    folder: Dir,
    backend: Annotated[
        str | None,
        typer.Option(help="local (in this process) or spark; default: that of the folder's earlier manager, or local."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Stateful steps that a new dataflow shares: always (all), stateless (those that have seen no record) "
            "or bounded_warm (also those with a bounded past, such as windows)."
        ),
    ] = "always",
    epoch: Annotated[
        str | None, typer.Option(help="For local: time between commits of the output, such as 500ms; default: 10s.")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="For spark: number of cores; default: all.", min=1)] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="[=PORT or URL]",
            help="Show the dataflows, and what sharing saves, in the browser, on this machine, at a free port or that "
            "one; other addresses need a token in RIOT_OPS_LIVE_TOKEN.",
        ),
    ] = None,
    live_report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what the live page shows at the end as one HTML file.")
    ] = None,
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Offer the metrics to OpenTelemetry, as set up by opentelemetry-instrument riot-ops reuse serve ….",
        ),
    ] = False,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Let readers of the live page submit and remove dataflows, which read and write files as this user; "
            "its address then has a token.",
        ),
    ] = False,
) -> None:
    """Run a manager until stop, Ctrl-C or SIGTERM ends it; continue the dataflows of the folder's earlier manager."""
    from riot_ops.cli.live_page import LivePage
    from riot_ops.cli.reuse_server import ReuseServer
    from riot_ops.monitoring.shared_monitor import SharedMonitor

    server: ReuseServer | None = None

    def act(request: dict[str, Any]) -> Any:
        assert server is not None
        return server.act(request)

    with LivePage(live, live_report, console, otel, act if allow_actions else None) as page:
        server = ReuseServer(folder, backend, policy, epoch, cores)
        try:
            signal.signal(signal.SIGTERM, lambda *_: server.stopping.set())
            with page.show(SharedMonitor(server.manager)) if page.wanted else contextlib.nullcontext():
                running = len(server.manager.names)
                print(f"serving in {server.folder}" + (f", {running} dataflows resume" if running else ""), flush=True)
                server.serve()
        except RiotError as error:  # exit code 2 would mean that the manager has not started
            print("riot-ops:", error, file=sys.stderr)
            raise typer.Exit(1) from None
        finally:
            server.close()


@app.command()
def submit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="JSON file with a dataflow, or with {dataflow: …, sources: …, sinks: …}; several files are submitted "
            "all or none.",
        ),
    ],
    folder: Dir,
    name: Annotated[
        str | None, typer.Option(help="For one file: name to run the dataflow under; default: its own.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Owner of the dataflows; default: the current user.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Source, as NAME=STREAM, NAME=FILE or NAME={JSON}; repeatable.")
    ] = None,
    sink: Annotated[
        list[str] | None, typer.Option(help="Sink, as NAME=FOLDER, NAME=discard or NAME={JSON}; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for all sinks; default: out/NAME in the manager's folder.")
    ] = None,
    on_slow: Annotated[
        str, typer.Option(help="What to do if a sink is slow: detach, drop_oldest or block.")
    ] = "detach",
    on_failure: Annotated[
        str, typer.Option(help="What to do if a step fails: detach its branch, or stop the dataflow.")
    ] = "detach",
    fold: Annotated[bool, typer.Option("--fold", help="Merge equal steps within a dataflow.")] = False,
    flag_warm: Annotated[
        bool,
        typer.Option("--flag-warm", help="Add a field warm: whether a record depends on none from before the start."),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="For one file: report what would be shared, and submit nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit dataflows; the manager adds only the steps that do not run yet. Options apply to all files."""
    for is_given, option in ((name is not None, "--name"), (explain, "--explain")):
        if is_given and len(files) > 1:
            raise ConfigError(f"{option} is for one file, got {len(files)}")
    sources, sinks = parse_assignments(source or [], "--source"), parse_assignments(sink or [], "--sink")
    requests = [_request(file, sources, sinks, out) for file in files]
    if explain:
        answers = [_send(folder, "explain", **requests[0], fold=fold, flag_warm=flag_warm)]
    else:
        options: dict[str, Any] = {"owner": owner or getpass.getuser(), "on_slow": on_slow, "on_failure": on_failure}
        options |= {"fold": fold, "flag_warm": flag_warm} | ({} if name is None else {"name": name})
        answers = _send(folder, "submit", dataflows=[{**request, **options} for request in requests])
    texts = [answer.pop("text") for answer in answers]
    print(json.dumps(answers if len(files) > 1 else answers[0]) if as_json else "\n".join(texts))


def _request(file: Path, sources: dict[str, Any], sinks: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Build the request for a file; options override its sources and sinks."""
    from riot_ops.cli.reuse_endpoints import parse_endpoint

    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    try:
        flow, endpoints = _parse_file(data)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if out is not None:
        endpoints["sinks"] = {
            **{node.id: parse_endpoint(str(out), node.id, "sink") for node in flow.nodes_of_kind("sink")},
            **endpoints["sinks"],
        }
    for kind, overrides in (("source", sources), ("sink", sinks)):
        endpoints[f"{kind}s"] |= {name: parse_endpoint(value, name, kind) for name, value in overrides.items()}
    return {"dataflow": flow.to_dict(), **endpoints}


def _parse_file(data: Any) -> tuple[Dataflow, dict[str, dict[str, Any]]]:
    """Parse the data of a file: a dataflow, its sources and sinks."""
    from riot_ops.cli.reuse_endpoints import parse_endpoint
    from riot_ops.dataflow import Dataflow
    from riot_ops.reuse.submission import check_graph

    if not isinstance(data, dict):
        raise ConfigError(f"must hold an object, got {value_text(data)}")
    if "dataflow" not in data:
        data = {"dataflow": data}
    if unknown := set(data) - {"dataflow", "sources", "sinks"}:
        raise ConfigError(f"must hold dataflow, sources and sinks, got {min(unknown)!r}")
    flow = Dataflow.from_dict(data["dataflow"])
    check_graph(flow)
    endpoints: dict[str, dict[str, Any]] = {}
    for kind in ("source", "sink"):
        values = data.get(f"{kind}s", {})
        if not isinstance(values, dict):
            raise ConfigError(f"{kind}s must be an object, by name, got {value_text(values)}")
        endpoints[f"{kind}s"] = {name: parse_endpoint(value, name, kind) for name, value in values.items()}
    return flow, endpoints


@app.command()
def remove(name: Name, folder: Dir, as_json: AsJson = False) -> None:
    """Remove a dataflow, and end the steps that no other dataflow uses."""
    answer = _send(folder, "remove", name=name)
    print(
        json.dumps(answer)
        if as_json
        else f"{escape_control(name)}: {len(answer['stopped'])} steps ended, {len(answer['kept'])} continue"
    )


@app.command()
def pause(name: Name, folder: Dir) -> None:
    """Pause a dataflow, and print the first message that it leaves out."""
    _print_border(_send(folder, "pause", name=name))


@app.command()
def resume(name: Name, folder: Dir) -> None:
    """Resume a paused dataflow, and print the first message that it processes again."""
    _print_border(_send(folder, "resume", name=name))


def _print_border(border: dict[str, int]) -> None:
    for source, message in border.items():
        print(f"{source}: from message {message} on")


@app.command("list")
def list_flows(folder: Dir, as_json: AsJson = False) -> None:
    """List the running dataflows."""
    dataflows = _send(folder, "list")
    if as_json:
        print(json.dumps(dataflows))
        return
    columns = ("name", "owner", "steps", "rows", "dropped", "state")
    # names come from users, and must neither be read as markup nor break the table
    rows = [[*map(escape_control, (*(str(entry[c]) for c in columns[:5]), _state(entry)))] for entry in dataflows]
    if not console.is_terminal:  # whole lines, for grep and cut
        print(*("\t".join(row) for row in (columns, *rows)), sep="\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _state(dataflow: dict[str, Any]) -> str:
    if dataflow["failed"]:
        return f"failed: {dataflow['failed']}"
    slow = f", {dataflow['waiting_bytes']:,} bytes waiting" if dataflow["waiting_bytes"] else ""
    return ("paused" if dataflow["paused"] else "running") + slow


@app.command()
def show(
    folder: Dir,
    format: Annotated[str, typer.Option(help="mermaid or svg.")] = "mermaid",
    out: Annotated[Path | None, typer.Option(help="File to write to; default: standard output.")] = None,
) -> None:
    """Show the running steps, and the dataflows that use them, as a diagram."""
    if format not in ("mermaid", "svg"):
        raise ConfigError(f"--format must be mermaid or svg, got {format!r}")
    text = _send(folder, "show", form=format)
    if out is None:
        print(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from None


@app.command()
def stats(folder: Dir, as_json: AsJson = False) -> None:
    """Print the number of steps with and without sharing, and the statistics of the back end."""
    statistics = _send(folder, "stats")
    if as_json:
        print(json.dumps(statistics))
        return
    for name, value in statistics.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else escape_control(str(value))}")


@app.command()
def usage(folder: Dir, as_json: AsJson = False) -> None:
    """Print the owners that use each step, and the records charged to each owner since the manager began."""
    answer = _send(folder, "usage")
    text = answer.pop("text")
    print(json.dumps(answer) if as_json else text)


@app.command()
def defragment(folder: Dir) -> None:
    """Merge the queries of connected steps, so that each group of connected steps runs as one query."""
    _send(folder, "defragment")


@app.command()
def stop(folder: Dir) -> None:
    """End the manager and wait for its end; the next manager in the folder continues its dataflows."""
    if not stop_manager(folder, STOP_SECONDS):
        print(f"riot-ops: the manager in {folder} has not ended within {STOP_SECONDS:g} s", file=sys.stderr)
        raise typer.Exit(1)


def _send(folder: Path, do: str, **request: Any) -> Any:
    return send_request(folder, {"do": do, **request})
