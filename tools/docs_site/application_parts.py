"""The generated parts of the pages of applications that read lines: diagram, steps, parameters, results, picture."""

from __future__ import annotations

import hashlib
import inspect
import re
import shutil
import tempfile
from pathlib import Path
from typing import TypeGuard

from pages import ROOT, Problem
from rich.console import Console

from riot_ops.cli import result_plots
from riot_ops.cli.application_job import ApplicationJob
from riot_ops.core.errors import MissingExtraError
from riot_ops.core.operator import KeyedOperator, Operator
from riot_ops.core.paths import write_atomic
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import APPLICATIONS, Application
from riot_ops.streams import generate
from riot_ops.task import find_task

__all__ = ["parts", "picture_names", "pictures"]

#: Messages of each run that counts steps and draws a picture.
MESSAGES, PICTURED, SEED = 3_000, 50_000, 3


def lines_applications() -> list[Application]:
    """Return those that read lines of their own kind."""
    return [one for one in APPLICATIONS.values() if one.suite != "riotbench"]


def parts() -> dict[str, str]:
    """Return the generated parts by name."""
    found = {"applications": _overview()}
    for one in lines_applications():
        flow = one.builder()
        found[f"{one.name}_diagram"] = f"```mermaid\n{flow.diagram()}```\n"
        found[f"{one.name}_steps"] = _steps(one, flow)
        found[f"{one.name}_parameters"] = _parameters(one)
        found[f"{one.name}_results"] = _results(one, flow)
    return found


def _pictured() -> list[Application]:
    return [one for one in lines_applications() if one.name in result_plots.PLOTS]


def picture_names() -> set[str]:
    """Return the places of the applications' pictures."""
    return {f"dataflows/pictures/{one.name}.png" for one in _pictured()}


def pictures() -> dict[str, bytes]:
    """Return what each application finds in generated streams as pictures, by their place on the site.

    They are made again when the library has changed.
    """
    kept = ROOT / "build" / "docs-pictures" / _code_hash()
    if not kept.exists():
        shutil.rmtree(kept.parent, ignore_errors=True)
        kept.mkdir(parents=True)
    found = {}
    for one in _pictured():
        file = kept / f"{one.name}.png"
        if not file.exists():
            _draw(one, file)
        found[f"dataflows/pictures/{file.name}"] = file.read_bytes()
    return found


def _draw(one: Application, file: Path) -> None:
    with tempfile.TemporaryDirectory() as out:
        job = ApplicationJob(name=one.name, runner="local", messages=PICTURED, seed=SEED, out=Path(out) / "run")
        try:
            job.run(Console(quiet=True))
        except MissingExtraError as error:
            raise Problem(str(error)) from None
        write_atomic(file, (Path(out) / "run" / file.name).read_bytes())


def _code_hash() -> str:
    """Return a name for the library's code."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _overview() -> str:
    lines = [
        "| code | application | what it does | sources | result streams | tasks | with state |",
        "|---|---|---|---|---|---:|---:|",
    ]
    for one in lines_applications():
        flow = one.builder()
        tasks = [node.task for node in flow.nodes_of_kind("task") if node.task is not None]
        purpose = one.purpose.partition(": ")[2].rstrip(".")
        streams = f"{', '.join(one.inputs)} | {', '.join(one.results)}"
        stateful = sum(_keeps(task) for task in tasks)
        lines.append(
            f"| `{one.code}` | [{one.name}]({one.name}.md) | {purpose} | {streams} | {len(tasks)} | {stateful} |"
        )
    return "\n".join(lines) + "\n"


def _steps(one: Application, flow: Dataflow) -> str:
    seen = Dataflow.from_dict(flow.to_dict())
    ends = {edge.source for sink in seen.nodes_of_kind("sink") for edge in seen.inputs(sink.id)}
    others = [seen.stream(node.id) for node in seen.nodes_of_kind("task") if node.id not in ends]
    if others:
        seen.sink("seen", *others)
    summary = seen.run({n: generate(s, messages=MESSAGES, seed=SEED) for n, s in one.inputs.items()}).summary
    rows = {**dict.fromkeys(one.inputs, MESSAGES), **summary.rows}
    lines = ["| step | task | reads | state per key of | records out per record in |", "|---|---|---|---|---:|"]
    for node in flow.nodes_of_kind("task"):
        assert node.task is not None
        reads = []
        for edge in flow.inputs(node.id):
            fields = f"({', '.join(edge.distribution.fields)})" if edge.distribution.fields else ""
            spread = "" if edge.distribution.kind == "forward" else f" · {edge.distribution.kind}{fields}"
            reads.append(f"{edge.source}{spread}")
        key = ", ".join(node.task.by) or "the whole stream" if _keeps(node.task) else ""
        taken = sum(rows.get(edge.source, 0) for edge in flow.inputs(node.id))
        kind = find_task(node.task.name()).__name__
        lines.append(
            f"| {node.id} | [{kind}](../tasks.md#{kind.lower()}) | {', '.join(reads)} | "
            f"{key} | {rows.get(node.id, 0) / taken if taken else 0:.3g} |"
        )
    rejected = summary.rows.get(ERRORS_STREAM, 0)
    note = f"Counted over {MESSAGES:,} generated messages per source; {rejected:,} led to an error record."
    return "\n".join(lines) + f"\n\n{note}\n"


def _keeps(task: Operator) -> TypeGuard[KeyedOperator]:
    """Whether a task has state in a dataflow."""
    return isinstance(task, KeyedOperator) and task.stateless_equivalent() is None


def _parameters(one: Application) -> str:
    text = inspect.getdoc(one.builder) or ""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\S+\n-{3,}$)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return "None.\n"
    lines = ["| parameter | type and default | meaning |", "|---|---|---|"]
    for head, body in re.findall(r"^(\S.*?)\n((?:[ ]+.*\n|\n)*)", found[1], re.MULTILINE):
        names, _, kind = head.partition(" : ")
        meaning = " ".join(line.strip() for line in body.strip().splitlines())
        meaning = re.sub(r":class:`riot_ops\.tasks\.(\w+)`", lambda m: f"[{m[1]}](../tasks.md#{m[1].lower()})", meaning)
        lines.append(f"| `{'`, `'.join(names.split(', '))}` | {kind} | {meaning.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def _results(one: Application, flow: Dataflow) -> str:
    schemas = flow.schemas()
    lines = ["| stream | fields |", "|---|---|"]
    for stream, stable in one.results.items():
        others = [f.name for f in schemas[stream] if f.name not in stable]
        fields = [f"**`{name}`** {_type(schemas[stream].field(name).type)}" for name in stable]
        fields += [f"`{name}` {_type(schemas[stream].field(name).type)}" for name in others]
        lines.append(f"| `{stream}` | {', '.join(fields)} |")
    return "\n".join(lines) + "\n"


def _type(kind: object) -> str:
    return "time" if str(kind).startswith("timestamp") else str(kind)
