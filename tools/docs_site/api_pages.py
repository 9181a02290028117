"""The reference: an entry for each public name, with its docstring and an example that runs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import task_pages
from pages import ROOT, Page, Problem, made

from riot_ops.core.source import Source
from riot_ops.task import Task

__all__ = ["PACKAGES", "crossed_names", "pages", "titled_names"]

MADE_BY = "tools/docs_site/api_pages.py"
#: Public packages in the order of their pages; docs/stability.md says that their names are stable.
PACKAGES = (
    "riot_ops", "riot_ops.tasks", "riot_ops.task", "riot_ops.windows", "riot_ops.tables", "riot_ops.streams",
    "riot_ops.connectors", "riot_ops.models", "riot_ops.sketches", "riot_ops.spark", "riot_ops.reuse",
    "riot_ops.monitoring", "riot_ops.testing",
    "riot_ops.dataflows", "riot_ops.dataflows.riotbench", "riot_ops.dataflows.dspbench", "riot_ops.dataflows.neptune",
    "riot_ops.dataflows.streambench", "riot_ops.dataflows.riotbench.operators", "riot_ops.dataflows.dspbench.operators",
    "riot_ops.dataflows.neptune.operators",
)  # fmt: skip
#: Names of ``riot_ops`` that its ``__all__`` leaves out, as Python has its own.
FURTHER = {"riot_ops": ("map", "filter")}


def _names(package: str) -> list[str]:
    module = importlib.import_module(package)
    return sorted([*module.__all__, *FURTHER.get(package, ())], key=lambda n: (n.lower(), n))


def _place(package: str) -> str:
    return f"api/{package}.md"


def _is_task(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, (Task, Source)) and one in set(task_pages.kinds())


def _is_documented(one: Any) -> bool:
    """Whether a name is a class or function with a docstring, and not data."""
    return inspect.isclass(one) or inspect.isfunction(one) or inspect.ismethod(one)


def _entries() -> Iterator[tuple[str, str, Any]]:
    """Give package, name and object of each public name."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in _names(package):
            yield package, name, getattr(module, name)


def crossed_names() -> list[str]:
    """Return the full names that references in docstrings may lead to."""
    found = {f"{package}.{name}" for package, name, one in _entries() if not isinstance(one, ModuleType)}
    return sorted(found | {task_pages.public_name(kind) for kind in task_pages.kinds()})


def titled_names() -> list[str]:
    """Return the tasks in full, as Griffe names them, whose first paragraph stands on their page."""
    return sorted(f"{kind.__module__}.{kind.__name__}" for kind in task_pages.kinds())


def pages() -> Iterator[Page]:
    """Give the pages of the reference; a public name without an example is a :class:`Problem`."""
    problems = [problem for entry in _entries() for problem in _without_example(*entry)]
    if problems:
        raise Problem("\n".join(problems))
    lines = ["# API reference", "", "Each public name has an entry with an example that the tests run.", ""]
    lines += ["| package | names | what it holds |", "|---|---:|---|"]
    for package in PACKAGES:
        doc = (importlib.import_module(package).__doc__ or "").strip().splitlines()[0]
        lines.append(f"| [`{package}`]({package}.md) | {len(_names(package))} | {doc} |")
    yield made("api/index.md", "\n".join(lines) + "\n", MADE_BY)
    for package in PACKAGES:
        yield made(_place(package), _page(package), MADE_BY)


def _without_example(package: str, name: str, one: Any) -> list[str]:
    doc = inspect.getdoc(one) or ""
    # a literal block is for what needs a library that the tests run elsewhere
    if isinstance(one, ModuleType) or not _is_documented(one) or ">>>" in doc or "Examples\n--------\nWith " in doc:
        return []
    file = Path(inspect.getsourcefile(one) or "").resolve().relative_to(ROOT)
    return [f"{file}:{inspect.getsourcelines(one)[1]}: {package}.{name} has no example"]


def _page(package: str) -> str:
    module = importlib.import_module(package)
    doc = inspect.getdoc(module) or ""
    parts = [f"# `{package}`", _module_text(doc)]
    tasks, packages = [], []
    for name in _names(package):
        one = getattr(module, name)
        if isinstance(one, ModuleType):
            packages.append(
                f"[`{one.__name__}`]({one.__name__}.md)" if one.__name__ in PACKAGES else f"`{one.__name__}`"
            )
        elif _is_task(one):
            first = task_pages.first_line(one)
            tasks.append(f"| [{name}](../{task_pages.place(one)}) | `{one.code}` | {first} |")
        elif _is_documented(one):
            parts.append(f"::: {package}.{name}")
        else:
            parts.append(_data(package, name, module, one))
    if packages:
        parts.insert(2, f"Packages: {', '.join(packages)}.")
    if tasks:
        table = ["| task | code | what it does |", "|---|---|---|", *tasks]
        parts.insert(2, "## Tasks\n\n" + "\n".join(table))
    return "\n\n".join(parts) + "\n"


def _module_text(doc: str) -> str:
    """Return a module's docstring, its examples as code."""
    found = []
    for part in re.split(r"\n\s*\n", task_pages.plain(doc)):
        is_code = part.startswith(">>>")
        found.append(f"```python\n{part}\n```" if is_code else part)
    return "\n\n".join(found)


def _data(package: str, name: str, module: ModuleType, one: Any) -> str:
    """Return the entry of a name that is neither class nor function, from the comment before it."""
    text = ""
    for origin in _definers(package, module, name):
        found = re.search(rf"((?:^#: ?.*\n)+){name}\b", origin, re.MULTILINE)
        if found:
            text = " ".join(line.removeprefix("#:").strip() for line in found[1].splitlines())
            break
    shown = repr(one) if not isinstance(one, (dict, list, tuple, set, frozenset)) else _sample(one)
    shown = re.sub(r" at 0x[0-9a-f]+", "", shown)
    shown = shown if len(shown) <= 300 else f"{shown[:300]}…"
    import_line = f"from {package} import {name}"
    return (
        f"## {name} {{ #{package}.{name} }}\n\n{task_pages.plain(text) or 'A constant.'}\n\n"
        f"```python\n>>> {import_line}\n>>> {name}\n{shown}\n```"
    )


def _sample(one: Any) -> str:
    """Return the beginning of a collection."""
    text = repr(one)
    if len(text) > 300 and isinstance(one, dict):
        return "{" + ", ".join(repr(key) for key in list(one)[:12]) + ", …}  # keys"
    return text


def _definers(package: str, module: ModuleType, name: str) -> Iterator[str]:
    """Give the source of the modules that may define a name: the package and those in it."""
    folder = Path(module.__file__ or "").parent
    for path in [Path(module.__file__ or ""), *sorted(folder.rglob("*.py")), *sorted((ROOT / "src").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        if re.search(rf"^{name}\b[^\n]*=", text, re.MULTILINE):
            yield text
