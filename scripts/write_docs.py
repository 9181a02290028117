"""Write docs/tasks.md from the registry and the docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from riot_ops.source import Source, sources
from riot_ops.task import Task, tasks

TARGET = Path(__file__).resolve().parent.parent / "docs" / "tasks.md"
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


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page()
            else "docs/tasks.md is out of date: run make docs"
        )
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
