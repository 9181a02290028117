"""The commands ``riot-ops reuse …``: a manager that serves, and what is asked of it."""

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

from riot_ops.cli.reuse_socket import asked, stopped
from riot_ops.cli.settings import named
from riot_ops.core.errors import ConfigError, RiotError, printable, short

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

#: For how long stop waits for the end of the manager, which waits for sinks.
STOP_SECONDS = 120.0

Dir = Annotated[Path, typer.Option("--dir", help="Folder of the manager.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of a dataflow.")]


@app.command()
def serve(
    folder: Dir,
    backend: Annotated[
        str | None, typer.Option(help="local (in this process) or spark; default: as before, at first local.")
    ] = None,
    policy: Annotated[str, typer.Option(help="always, stateless or bounded_warm: whether state is shared.")] = "always",
    epoch: Annotated[
        float | None, typer.Option(min=0, help="Of local: seconds between commits of output; default: 10.")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="Of spark; default: all.", min=1)] = None,
) -> None:
    """Run a manager until stop, Ctrl-C or a signal ends it; where one was there before, go on."""
    from riot_ops.cli.reuse_server import ReuseServer

    server = ReuseServer(folder, backend, policy, epoch, cores)
    try:
        signal.signal(signal.SIGTERM, lambda *_: server.over.set())
        running = len(server.manager.names)
        print(f"serving in {server.folder}" + (f", {running} dataflows go on" if running else ""), flush=True)
        server.serve()
    except RiotError as error:  # 2 would say that it has not begun
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
            help="A dataflow's JSON, or {dataflow: …, sources: …, sinks: …}; of several, all or none.",
        ),
    ],
    folder: Dir,
    name: Annotated[
        str | None, typer.Option(help="Of one file: by which it is removed; default: the dataflow's.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Whose it is; default: the user.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="NAME=STREAM, NAME=FILE or NAME={JSON}, repeatedly.")] = None,
    sink: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER, NAME=discard or NAME={JSON}, repeatedly.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for all sinks; default: out/NAME in the manager's.")] = None,
    on_slow: Annotated[str, typer.Option(help="Sinks that do not keep up: detach, drop_oldest or block.")] = "detach",
    on_failure: Annotated[str, typer.Option(help="Where something fails: detach that branch, or stop.")] = "detach",
    fold: Annotated[bool, typer.Option("--fold", help="Let steps that do the same become one.")] = False,
    flag_warm: Annotated[
        bool, typer.Option("--flag-warm", help="Tell which records rest on nothing from before, in a field warm.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Of one file: only tell what would be shared.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have the manager run dataflows, and of them only what does not run yet; options hold for all of them."""
    for given, option in ((name is not None, "--name"), (explain, "--explain")):
        if given and len(files) > 1:
            raise ConfigError(f"{option} is for one file, got {len(files)}")
    sources, sinks = named(source or [], "--source"), named(sink or [], "--sink")
    requests = [_request(file, sources, sinks, out) for file in files]
    if explain:
        answers = [_asked(folder, "explain", **requests[0], fold=fold, flag_warm=flag_warm)]
    else:
        more: dict[str, Any] = {"owner": owner or getpass.getuser(), "on_slow": on_slow, "on_failure": on_failure}
        more |= {"fold": fold, "flag_warm": flag_warm} | ({} if name is None else {"name": name})
        answers = _asked(folder, "submit", dataflows=[{**request, **more} for request in requests])
    texts = [answer.pop("text") for answer in answers]
    print(json.dumps(answers if len(files) > 1 else answers[0]) if as_json else "\n".join(texts))


def _request(file: Path, sources: dict[str, Any], sinks: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """What a file asks for; options come before it."""
    from riot_ops.cli.reuse_endpoints import end

    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON: {error}") from None
    try:
        flow, ends = _told_by(data)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if out is not None:
        ends["sinks"] = {**{node.id: end(str(out), node.id, "sink") for node in flow.kind("sink")}, **ends["sinks"]}
    for kind, given in (("source", sources), ("sink", sinks)):
        ends[f"{kind}s"] |= {name: end(one, name, kind) for name, one in given.items()}
    return {"dataflow": flow.to_dict(), **ends}


def _told_by(data: Any) -> tuple[Dataflow, dict[str, dict[str, Any]]]:
    """What the data of a file tell: a dataflow, its sources and sinks."""
    from riot_ops.cli.reuse_endpoints import end
    from riot_ops.dataflow import Dataflow
    from riot_ops.reuse.checks import check_graph

    if not isinstance(data, dict):
        raise ConfigError(f"must hold an object, got {short(data)}")
    if "dataflow" not in data:
        data = {"dataflow": data}
    if unknown := set(data) - {"dataflow", "sources", "sinks"}:
        raise ConfigError(f"must hold dataflow, sources and sinks, got {min(unknown)!r}")
    flow = Dataflow.from_dict(data["dataflow"])
    check_graph(flow)
    ends: dict[str, dict[str, Any]] = {}
    for kind in ("source", "sink"):
        told = data.get(f"{kind}s", {})
        if not isinstance(told, dict):
            raise ConfigError(f"{kind}s must be an object, by name, got {short(told)}")
        ends[f"{kind}s"] = {name: end(one, name, kind) for name, one in told.items()}
    return flow, ends


@app.command()
def remove(name: Name, folder: Dir, as_json: AsJson = False) -> None:
    """End a dataflow, and the steps that nobody else uses."""
    answer = _asked(folder, "remove", name=name)
    print(
        json.dumps(answer)
        if as_json
        else f"{printable(name)}: {len(answer['stopped'])} steps end, {len(answer['kept'])} go on"
    )


@app.command()
def pause(name: Name, folder: Dir) -> None:
    """Let a dataflow rest; tells from which message on."""
    _tell(_asked(folder, "pause", name=name))


@app.command()
def resume(name: Name, folder: Dir) -> None:
    """Let a dataflow that rests go on; tells from which message on."""
    _tell(_asked(folder, "resume", name=name))


def _tell(border: dict[str, int]) -> None:
    for source, message in border.items():
        print(f"{source}: from message {message} on")


@app.command("list")
def list_flows(folder: Dir, as_json: AsJson = False) -> None:
    """List the dataflows that run."""
    found = _asked(folder, "list")
    if as_json:
        print(json.dumps(found))
        return
    columns = ("name", "owner", "steps", "rows", "dropped", "state")
    # names are their users': they are neither markup nor more than a cell
    rows = [[*map(printable, (*(str(one[c]) for c in columns[:5]), _state(one)))] for one in found]
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
    """Show the running steps, and who uses them."""
    if form not in ("mermaid", "svg"):
        raise ConfigError(f"--format must be mermaid or svg, got {form!r}")
    text = _asked(folder, "show", form=form)
    if out is None:
        print(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from None


@app.command()
def stats(folder: Dir, as_json: AsJson = False) -> None:
    """Tell what runs, what it would be without sharing, and how it does."""
    found = _asked(folder, "stats")
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else printable(str(value))}")


@app.command()
def defragment(folder: Dir) -> None:
    """Have steps that hang together run in one piece."""
    _asked(folder, "defragment")


@app.command()
def stop(folder: Dir) -> None:
    """End the manager, and wait until it has; the next one in this folder goes on with its dataflows."""
    if not stopped(folder, STOP_SECONDS):
        print(f"riot-ops: the manager in {folder} has not ended after {STOP_SECONDS:g} s", file=sys.stderr)
        raise typer.Exit(1)


def _asked(folder: Path, do: str, **request: Any) -> Any:
    return asked(folder, {"do": do, **request})
