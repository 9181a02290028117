"""The commands ``riot-ops reuse …``: serve a manager, and send requests to it."""

from __future__ import annotations

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

from riot_ops.cli.reuse_socket import send_request, stop_manager
from riot_ops.cli.settings import parse_assignments
from riot_ops.core.errors import ConfigError, RiotError, escape_control, value_text

if TYPE_CHECKING:
    from riot_ops.dataflow import Dataflow

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Dataflows of many users that share their work: a manager serves, the other commands talk to it.",
    epilog="**Examples**\n\n`riot-ops reuse serve --dir shared &`\n\n"
    "`riot-ops reuse submit flow.json --source city=city --dir shared`\n\n`riot-ops reuse list --dir shared`\n\n"
    "`riot-ops reuse show --format svg --out shared.svg --dir shared`\n\n`riot-ops reuse stop --dir shared`\n\n"
    "**Exit codes**: 0 done, 1 what serves has failed, or takes long to stop, 2 refused, with the reason, 130 Ctrl-C",
)
console = Console()

#: How long ``stop`` waits for the manager to end, which waits for sinks.
STOP_SECONDS = 120.0

Dir = Annotated[Path, typer.Option("--dir", help="Folder of the manager.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of a dataflow.")]


@app.command()
def serve(
    folder: Dir,
    backend: Annotated[
        str | None, typer.Option(help="local (in this process) or spark; default: as before, or local.")
    ] = None,
    policy: Annotated[str, typer.Option(help="always, stateless or bounded_warm: which state is shared.")] = "always",
    epoch: Annotated[
        float | None, typer.Option(min=0, help="For local: seconds between commits of output; default: 10.")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="For spark: number of cores; default: all.", min=1)] = None,
) -> None:
    """Run a manager until stop, Ctrl-C or a signal ends it; continue the dataflows of an earlier one in the folder."""
    from riot_ops.cli.reuse_server import ReuseServer

    server = ReuseServer(folder, backend, policy, epoch, cores)
    try:
        signal.signal(signal.SIGTERM, lambda *_: server.stopping.set())
        running = len(server.manager.names)
        print(f"serving in {server.folder}" + (f", {running} dataflows resume" if running else ""), flush=True)
        server.serve()
    except RiotError as error:  # exit code 2 would mean that it has not started
        print("riot-ops:", error, file=sys.stderr)
        raise typer.Exit(1) from None
    finally:
        server.close()


@app.command()
def submit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A dataflow's JSON, or {dataflow: …, sources: …, sinks: …}; several are submitted all or none.",
        ),
    ],
    folder: Dir,
    name: Annotated[str | None, typer.Option(help="For one file: name of the dataflow; default: its own.")] = None,
    owner: Annotated[str | None, typer.Option(help="Owner of the dataflows; default: the user.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="NAME=STREAM, NAME=FILE or NAME={JSON}, repeatedly.")] = None,
    sink: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER, NAME=discard or NAME={JSON}, repeatedly.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for all sinks; default: out/NAME in the manager's.")] = None,
    on_slow: Annotated[str, typer.Option(help="For slow sinks: detach, drop_oldest or block.")] = "detach",
    on_failure: Annotated[str, typer.Option(help="After a failure: detach that branch, or stop.")] = "detach",
    fold: Annotated[bool, typer.Option("--fold", help="Merge equal steps within a dataflow.")] = False,
    flag_warm: Annotated[
        bool, typer.Option("--flag-warm", help="Flag the records that depend on no earlier ones, in a field warm.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="For one file: only report what would be shared.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit dataflows to the manager, which adds only the steps that do not run yet; options apply to all files."""
    for given, option in ((name is not None, "--name"), (explain, "--explain")):
        if given and len(files) > 1:
            raise ConfigError(f"{option} is for one file, got {len(files)}")
    sources, sinks = parse_assignments(source or [], "--source"), parse_assignments(sink or [], "--sink")
    requests = [_request(file, sources, sinks, out) for file in files]
    if explain:
        answers = [_send(folder, "explain", **requests[0], fold=fold, flag_warm=flag_warm)]
    else:
        more: dict[str, Any] = {"owner": owner or getpass.getuser(), "on_slow": on_slow, "on_failure": on_failure}
        more |= {"fold": fold, "flag_warm": flag_warm} | ({} if name is None else {"name": name})
        answers = _send(folder, "submit", dataflows=[{**request, **more} for request in requests])
    texts = [answer.pop("text") for answer in answers]
    print(json.dumps(answers if len(files) > 1 else answers[0]) if as_json else "\n".join(texts))


def _request(file: Path, sources: dict[str, Any], sinks: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Build the request of a file; options override its sources and sinks."""
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
    for kind, given in (("source", sources), ("sink", sinks)):
        endpoints[f"{kind}s"] |= {name: parse_endpoint(one, name, kind) for name, one in given.items()}
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
        given = data.get(f"{kind}s", {})
        if not isinstance(given, dict):
            raise ConfigError(f"{kind}s must be an object, by name, got {value_text(given)}")
        endpoints[f"{kind}s"] = {name: parse_endpoint(one, name, kind) for name, one in given.items()}
    return flow, endpoints


@app.command()
def remove(name: Name, folder: Dir, as_json: AsJson = False) -> None:
    """End a dataflow, and the steps that no other dataflow uses."""
    answer = _send(folder, "remove", name=name)
    print(
        json.dumps(answer)
        if as_json
        else f"{escape_control(name)}: {len(answer['stopped'])} steps end, {len(answer['kept'])} continue"
    )


@app.command()
def pause(name: Name, folder: Dir) -> None:
    """Pause a dataflow; print from which message on."""
    _print_border(_send(folder, "pause", name=name))


@app.command()
def resume(name: Name, folder: Dir) -> None:
    """Resume a paused dataflow; print from which message on."""
    _print_border(_send(folder, "resume", name=name))


def _print_border(border: dict[str, int]) -> None:
    for source, message in border.items():
        print(f"{source}: from message {message} on")


@app.command("list")
def list_flows(folder: Dir, as_json: AsJson = False) -> None:
    """List the running dataflows."""
    found = _send(folder, "list")
    if as_json:
        print(json.dumps(found))
        return
    columns = ("name", "owner", "steps", "rows", "dropped", "state")
    # names come from users: they must be neither markup nor more than a cell
    rows = [[*map(escape_control, (*(str(one[c]) for c in columns[:5]), _state(one)))] for one in found]
    if not console.is_terminal:  # whole lines, for grep and cut
        print(*("\t".join(row) for row in (columns, *rows)), sep="\n")
        return
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _state(one: dict[str, Any]) -> str:
    if one["failed"]:
        return f"failed: {one['failed']}"
    slow = f", {one['waiting_bytes']:,} bytes behind" if one["waiting_bytes"] else ""
    return ("paused" if one["paused"] else "runs") + slow


@app.command()
def show(
    folder: Dir,
    form: Annotated[str, typer.Option("--format", help="mermaid or svg.")] = "mermaid",
    out: Annotated[Path | None, typer.Option(help="File to write; default: print.")] = None,
) -> None:
    """Show the running steps and their users."""
    if form not in ("mermaid", "svg"):
        raise ConfigError(f"--format must be mermaid or svg, got {form!r}")
    text = _send(folder, "show", form=form)
    if out is None:
        print(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from None


@app.command()
def stats(folder: Dir, as_json: AsJson = False) -> None:
    """Print what runs, what would run without sharing, and the figures of the back end."""
    found = _send(folder, "stats")
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else escape_control(str(value))}")


@app.command()
def defragment(folder: Dir) -> None:
    """Run each group of connected steps in one piece."""
    _send(folder, "defragment")


@app.command()
def stop(folder: Dir) -> None:
    """End the manager and wait until it has ended; the next one in this folder continues its dataflows."""
    if not stop_manager(folder, STOP_SECONDS):
        print(f"riot-ops: the manager in {folder} has not ended after {STOP_SECONDS:g} s", file=sys.stderr)
        raise typer.Exit(1)


def _send(folder: Path, do: str, **request: Any) -> Any:
    return send_request(folder, {"do": do, **request})
