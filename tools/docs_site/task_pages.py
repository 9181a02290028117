"""A page for each task, from the registry and its docstring, and the page that lists them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from pages import ROOT, Page, made

from riot_ops.core.source import Source, registered_sources
from riot_ops.task import Task, registered_tasks
from riot_ops.tasks import PRESETS

__all__ = ["index", "modules", "pages"]

HEADING = re.compile(r"^(?P<title>\S.*)\n-{3,}$", re.MULTILINE)
MADE_BY = "tools/docs_site/task_pages.py"


def kinds() -> list[type[Task] | type[Source]]:
    """Return all tasks, and the sources that the benchmark counts as tasks."""
    return sorted([*registered_tasks(), *registered_sources()], key=lambda k: (k.category, k.code))


def place(kind: type) -> str:
    """Return where a task's page stands.

    >>> from riot_ops.tasks import KalmanFilter, PublishMQTT
    >>> [place(kind) for kind in (KalmanFilter, PublishMQTT)]
    ['tasks/kalman_filter.md', 'tasks/publish_mqtt.md']
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__)
    return f"tasks/{words.lower()}.md"


def modules() -> dict[str, str]:
    """Return the pages by the files of the tasks."""
    return {Path(inspect.getfile(kind)).relative_to(ROOT).as_posix(): place(kind) for kind in kinds()}


def index() -> str:
    """Return the page that lists all tasks."""
    lines = [
        "# Tasks",
        "",
        "`riot_ops.tasks` offers all but those that one application needs: import these from the package in the name",
        "of the module, such as `riot_ops.dataflows.dspbench.operators`.",
        "",
    ]
    category = ""
    for kind in kinds():
        if kind.category != category:
            category = kind.category
            lines += ["", f"## {category}", ""]
            lines += ["| task | code | pattern | σ | state | what it does |", "|---|---|---|---|---|---|"]
        first = (inspect.getdoc(kind) or "").splitlines()[0]
        lines.append(
            f"| [{kind.__name__}]({place(kind)}) | `{kind.code}` | {kind.pattern} | {kind.selectivity} "
            f"| {'yes' if kind.stateful else ''} | {first} |"
        )
    names = {kind.__name__: place(kind) for kind in kinds()}
    lines += [
        "",
        "## Settings with codes",
        "",
        "Settings of a task that are tasks of the benchmarks; `riot-ops run micro` takes their codes, too:",
        "",
        "| code | task | setting |",
        "|---|---|---|",
    ]
    lines += [f"| `{code}` | [{name}]({names[name]}) | {text} |" for code, (name, text) in sorted(PRESETS.items())]
    return "\n".join(lines) + "\n"


def pages() -> Iterator[Page]:
    """Give the page of each task."""
    for kind in kinds():
        yield made(place(kind), page(kind), MADE_BY)


def page(kind: type[Task] | type[Source]) -> str:
    """Return a task's page."""
    text = HEADING.sub(lambda m: f"## {m['title']}", inspect.getdoc(kind) or "")
    before, found, example = text.partition("## Examples\n")
    if found:
        text = f"{before}## Examples\n\n```python\n{example.strip()}\n```"
    state = "state per key" if kind.stateful else "no state"
    return (
        f"# {kind.__name__}\n\n`{kind.code}` · {kind.category} · {kind.pattern} {kind.selectivity} · {state} · "
        f"`{kind.__module__}`\n\n{text}\n"
    )
