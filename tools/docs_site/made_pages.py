"""The pages that no file has: tasks, parameters, the reference of all public names."""

from __future__ import annotations

from collections.abc import Iterator

import api_pages
import application_parts
import task_pages
from pages import Page, made

from riot_ops.testing.parameter_names import parameter_uses
from riot_ops.testing.parameter_table import PARAMETERS
from riot_ops.testing.public_callables import public_callables

__all__ = ["all_pages", "module_pages", "picture_names", "pictures", "task_groups"]


def all_pages() -> Iterator[Page]:
    """Give every page that is made."""
    yield made("tasks.md", task_pages.index(), "tools/docs_site/task_pages.py")
    yield from task_pages.pages()
    yield made("parameters.md", parameter_page(), "tools/docs_site/made_pages.py")
    yield from api_pages.pages()


def task_groups() -> dict[str, list[str]]:
    """Return the tasks' pages by category."""
    found: dict[str, list[str]] = {}
    for kind in sorted(task_pages.kinds(), key=lambda kind: kind.__name__.lower()):
        found.setdefault(kind.category, []).append(task_pages.place(kind))
    return dict(sorted(found.items()))


def module_pages() -> dict[str, str]:
    """Return the page that stands for a module of the repository, by the module's file."""
    return task_pages.modules()


def picture_names() -> set[str]:
    """Return the places of the pictures."""
    return application_parts.picture_names()


def pictures() -> dict[str, bytes]:
    """Return the pictures that pages show, by their place; those of applications are kept until the code changes."""
    return application_parts.pictures()


def parameter_page() -> str:
    """Return the page of the parameters' names."""
    uses = parameter_uses(public_callables())
    lines = [
        "# Parameters",
        "",
        "A parameter's name has one type and one meaning in all tasks, applications, sources, sinks, tables,",
        "functions, verbs of streams, runners and back ends; an object may take some of its forms or choices.",
        'A duration is a timedelta or a text such as `"1h30m"`. `riot_ops.testing.check_parameter_names` checks this,',
        "for your own tasks, too.",
        "",
        "| name | type | meaning | where |",
        "|---|---|---|---|",
    ]
    for name, (declared, meaning) in sorted(PARAMETERS.items()):
        owners = [owner for found in uses[name].values() for owner in found]
        where = ", ".join(owners) if len(owners) <= 4 else f"{', '.join(owners[:3])} and {len(owners) - 3} others"
        lines.append(f"| `{name}` | {declared.replace('|', 'or')} | {meaning} | {where} |")
    return "\n".join(lines) + "\n"
