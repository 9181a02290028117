"""Write docs/tasks.md from the registry and the docstrings, and the measured parts of docs/dataflows/.

With ``--pictures`` also those of the applications' pages.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import application_pages
import dataflow_pages

from riot_ops.core.source import Source, sources
from riot_ops.task import Task, tasks

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "tasks.md"
HEADING = re.compile(r"^(?P<title>\S.*)\n-{3,}$", re.MULTILINE)


def section(kind: type[Task] | type[Source]) -> str:
    """One task's part of the page."""
    text = inspect.getdoc(kind) or ""
    text = HEADING.sub(lambda m: f"#### {m['title']}", text)
    parts = text.split("#### Examples\n", 1)
    if len(parts) == 2:
        text = parts[0] + "#### Examples\n\n```python\n" + parts[1].strip() + "\n```"
    facts = f"`{kind.code}` · {kind.category} · {kind.pattern} {kind.selectivity} · " + (
        "state per key" if kind.stateful else "no state"
    )
    return (
        f"### {kind.__name__}\n\n{facts} · [`riot_ops.{kind.__module__.partition('.')[2]}`]"
        f"(../src/{kind.__module__.replace('.', '/')}.py)\n\n{text}\n"
    )


def page() -> str:
    """The whole page."""
    kinds = sorted([*tasks(), *sources()], key=lambda k: (k.category, k.code))
    lines = [
        "# Tasks",
        "",
        "Written by `make docs` from the registry and the docstrings; do not edit.",
        "",
        "| code | task | category | pattern | σ | state | what it is for |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        first = (inspect.getdoc(kind) or "").splitlines()[0]
        lines.append(
            f"| {kind.code} | [{kind.__name__}](#{kind.__name__.lower()}) | {kind.category} | {kind.pattern} "
            f"| {kind.selectivity} | {'yes' if kind.stateful else ''} | {first} |"
        )
    category = ""
    for kind in kinds:
        if kind.category != category:
            category = kind.category
            lines += ["", f"## {category}"]
        lines += ["", section(kind).rstrip()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages that are out of date; with --check, only say which they are."""
    wanted = {TARGET: page(), **dataflow_pages.current()}
    if "--pictures" in sys.argv:
        application_pages.draw(dataflow_pages.FOLDER / "pictures")
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in sys.argv:
        sys.exit(f"out of date: {names}; run make docs" if stale else 0)
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    print(f"wrote {names}" if stale else "all pages are current")


if __name__ == "__main__":
    main()
