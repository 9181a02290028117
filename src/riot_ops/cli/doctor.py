"""The ``riot-ops doctor`` command."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from riot_ops.cli import machine_checks, package_checks
from riot_ops.cli.package_checks import Check
from riot_ops.core.errors import escape_control

__all__ = ["EXAMPLES", "checks", "doctor"]

EXAMPLES = """**Examples**

`riot-ops doctor`

`riot-ops doctor --port 8080 --port 1883 --out /data/results` · also these ports, and this folder

`riot-ops doctor --json`

**Exit codes**: 0 nothing fails (there may be warnings), 1 something fails"""

#: Columns of the output, and of the status and the name before a text.
WIDTH, STATUS, NAME = 80, 6, 11
#: The port that the examples of ``--live`` take.
PORT = 8080


def doctor(
    ports: Annotated[
        list[int] | None,
        typer.Option("--port", min=1, max=65535, help="Port that should be free; repeatable; default: 8080."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of results that should be writable.", show_default=True)] = Path(
        "out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check whether this machine has what riot_ops and Spark need, and say what mends it."""
    found = list(checks(ports or [PORT], out))
    failed = any(one.status == "fail" for one in found)
    if as_json:
        print(json.dumps({"ok": not failed, "checks": [asdict(one) for one in found]}, indent=1))
    else:
        for one in found:
            print("\n".join(_lines(one)))
        print(_verdict(found))
    if failed:
        raise typer.Exit(1)


def checks(ports: Sequence[int], out: Path) -> Iterator[Check]:
    """Yield all checks, in the order in which what fails is to be mended."""
    yield from machine_checks.check_python()
    yield from package_checks.check_packages()
    yield from package_checks.check_extras()
    yield from package_checks.check_pyspark()
    yield from machine_checks.check_java()
    yield from machine_checks.check_memory()
    yield from machine_checks.check_ports(ports)
    yield from machine_checks.check_folders(out)
    yield from machine_checks.check_kernels()
    yield from machine_checks.check_time_zone()
    yield from machine_checks.check_clock()


def _lines(one: Check) -> list[str]:
    """Format a check for 80 columns; the line that mends it is never broken, so that it can be copied."""
    indent = " " * (STATUS + NAME)
    text = textwrap.wrap(
        escape_control(one.text),
        WIDTH,
        initial_indent=f"{one.status:{STATUS}}{one.name:{NAME}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*text, f"{indent}→ {escape_control(one.remedy)}"] if one.remedy and one.status != "ok" else text


def _verdict(found: Sequence[Check]) -> str:
    failed, warned = (sum(one.status == status for one in found) for status in ("fail", "warn"))
    if not failed and not warned:
        return "everything is as it should be"
    counts = [f"{n} {word}" for n, word in ((failed, "failed"), (warned, "warned")) if n]
    return f"{len(found)} checks: {', '.join(counts)}"
