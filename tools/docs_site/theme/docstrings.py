"""Docstrings as Markdown: an extension of Griffe, which reads them for the reference."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import griffe

__all__ = ["Docstrings", "as_markdown"]

ROLE = re.compile(r":(?:class|func|meth|data|exc|mod|attr):`(?P<tilde>~?)(?P<name>[\w.]+)`")


def as_markdown(text: str, names: Collection[str] = ()) -> str:
    """Return a docstring whose references, footnotes and examples are Markdown.

    ``names`` are those that the site has an entry for, in full.

    >>> as_markdown("See :class:`~riot_ops.Dataflow`.", {"riot_ops.Dataflow"})
    'See [`Dataflow`][riot_ops.Dataflow].'
    """

    def linked(match: re.Match[str]) -> str:
        name = match["name"]
        short = name.rpartition(".")[2]
        shown = short if match["tilde"] else name
        places = [name, *(f"{module}.{short}" for module in ("riot_ops", "riot_ops.tasks", "riot_ops.task"))]
        places += sorted(one for one in names if one.endswith(f".{short}"))
        found = next((place for place in places if place in names), None)
        return f"[`{shown}`][{found}]" if found else f"`{shown}`"

    text = ROLE.sub(linked, text)
    text = re.sub(r"^( *)\.\. \[(\d+)\] ", r"\1\2. ", text, flags=re.MULTILINE)
    text = re.sub(r"^(\w+(?:, \w+)+)\n((?:    .*\n?|\n(?=    ))+)", _apart, text, flags=re.MULTILINE)
    before, *sections = re.split(r"^(?=\S.*\n-{3,}\n)", text, flags=re.MULTILINE)
    return "".join([_with_fences(before), *sections])


def _apart(match: re.Match[str]) -> str:
    """Return an entry for each of several parameters that one entry describes without a type."""
    body = match[2].rstrip("\n")
    return "".join(f"{name}\n{body}\n" for name in match[1].split(", ")) + "\n" * (len(match[2]) - len(body) - 1)


def _with_fences(text: str) -> str:
    """Return a text whose examples are code blocks; Griffe finds those in a section of their own."""
    parts = text.split("\n\n")
    fenced = [f"```python\n{part.rstrip()}\n```" if part.startswith(">>>") else part for part in parts]
    return "\n\n".join(fenced)


class Docstrings(griffe.Extension):
    """Rewrites each docstring; of the classes in ``titled`` the first paragraph stands on their page already."""

    def __init__(self, names: list[str] | None = None, titled: list[str] | None = None) -> None:
        self.names = frozenset(names or ())
        self.titled = frozenset(titled or ())

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring:
            text = obj.docstring.value
            if obj.path in self.titled:
                text = text.partition("\n\n")[2].lstrip()
                text = re.sub(r"\A``[^`]+=[^`]+``\n\n", "", text)  # the formula, which the page shows as one
            obj.docstring.value = as_markdown(text, self.names)
