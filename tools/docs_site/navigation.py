"""The order of the pages: sections whose patterns give each new page its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["Entry", "navigation"]

#: A pattern of pages, or a section of further entries.
Entry = str | tuple[str, "list[Entry]"]

#: A page stands at the first pattern that fits; those of one pattern are in the order of their names.
SECTIONS: list[Entry] = [
    ("Start", ["index.md", *(f"start/{name}.md" for name in ("index", "install*", "first*", "notebook*", "*"))]),
    (
        "Concepts",
        [
            "concepts/index.md",
            *(f"concepts/*{name}*.md" for name in ("record", "time", "state", "order", "error", "deliver")),
            "concepts/*.md",
        ],
    ),
    (
        "How-to",
        [
            "howto/index.md",
            ("Data in and out", [f"howto/{name}.md" for name in (
                "data_in", "data_out", "*csv*", "*dataframe*", "kafka", "mqtt", "kinesis", "event_hubs", "http*",
                "lakehouse", "table", "*postgres*", "object_stores", "blob", "streams", "custom_stream",
            )]),
            ("Compute", [f"howto/{name}.md" for name in (
                "windows", "expressions", "models", "custom_task", "buffering",
            )]),
            ("Run", [f"howto/{name}.md" for name in (
                "*notebook*", "spark", "cluster", "*service*", "operate", "live", "logging", "*metrics*", "sizing",
                "small_machines", "change", "reuse", "*upgrade*", "*docker*",
            )]),
            ("Move and test", ["howto/*migrat*.md", "howto/*from_*.md", "howto/*test*.md"]),
            ("More", ["howto/*.md"]),
            "common_mistakes.md",
        ],
    ),
    ("Gallery", ["gallery/index.md", "gallery/*.md"]),
    ("Tasks", ["tasks.md", "tasks/*.md", "parameters.md"]),
    ("Applications", ["dataflows/index.md", "dataflows/*.md"]),
    ("Papers", ["papers/index.md", "papers/*.md"]),
    ("Benchmarks", ["benchmarks.md"]),
    (
        "Architecture",
        ["architecture/index.md", "architecture/*.md", ("Decisions", ["adr/index.md", "adr/0*.md", "adr/*.md"])],
    ),
    ("API", ["api/index.md", "api/riot_ops.md", "api/riot_ops.task*.md", "api/*.md"]),
    ("Contributing", ["contributing.md", "stability.md", "security.md", "changelog.md"]),
]  # fmt: skip


def navigation(
    pages: Iterable[str], sections: list[Entry] | None = None, groups: Mapping[str, list[str]] | None = None
) -> tuple[list[Any], list[str]]:
    """Return the navigation as the generator takes it, and the pages that are missing from it.

    ``groups`` are the tasks' pages by category.

    >>> navigation(["index.md", "a/x.md", "b.md"], ["index.md", ("A", ["a/*.md"])])
    (['index.md', {'A': ['a/x.md']}], ['b.md'])
    """
    left = sorted(pages)
    found = _entries(left, _with_groups(groups or {}) if sections is None else sections)
    return found, left


def _with_groups(groups: Mapping[str, list[str]]) -> list[Entry]:
    """Return the sections with the tasks' pages in groups."""
    inner: list[Entry] = [(title, list(pages)) for title, pages in groups.items()]
    return [("Tasks", ["tasks.md", *inner, "tasks/*.md", "parameters.md"]) if e[0] == "Tasks" else e for e in SECTIONS]


def _entries(left: list[str], entries: list[Entry]) -> list[Any]:
    """Return the entries with their pages, which are taken from those left."""
    # a page belongs to the most special pattern: one with a name before one with a star
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, tuple):
            inner = _entries(left, entry[1])
            if inner:
                found.append({entry[0]: inner})
            continue
        for page in [page for page in left if fnmatchcase(page, entry)]:
            left.remove(page)
            found.append(page)
    return found
