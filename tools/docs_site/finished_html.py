"""What the theme's HTML lacks for screen readers: tables without headings, and landmarks inside of landmarks."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["finish", "without_empty_headings", "without_inner_landmarks"]


def finish(html: Path) -> None:
    """Amend the pages in a folder."""
    for path in html.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        done = without_inner_landmarks(without_empty_headings(text))
        if done != text:
            path.write_text(done, encoding="utf-8")


def without_empty_headings(text: str) -> str:
    """Return a page whose tables have no empty headings.

    >>> without_empty_headings("<table><thead><tr><th></th><th></th></tr></thead><tbody>")
    '<table><tbody>'
    >>> without_empty_headings("<thead><tr><th></th><th>b</th></tr></thead>")
    '<thead><tr><td></td><th>b</th></tr></thead>'
    """
    text = re.sub(r"<thead>\s*<tr>\s*(?:<th[^>]*></th>\s*)+</tr>\s*</thead>\s*", "", text)
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", text)


def without_inner_landmarks(text: str) -> str:
    """Return a page in which a ``nav`` inside of another one is no landmark of its own.

    >>> without_inner_landmarks('<nav a><nav aria-expanded="true" b></nav></nav>')
    '<nav a><div role="group" b></div></nav>'
    """
    depth = 0

    def tag(match: re.Match[str]) -> str:
        nonlocal depth
        if match[0] == "</nav>":
            depth -= 1
            return "</div>" if depth else match[0]
        depth += 1
        if depth == 1:
            return match[0]
        return (
            match[0]
            .replace("<nav", '<div role="group"', 1)
            .replace(' aria-expanded="true"', "")
            .replace(' aria-expanded="false"', "")
        )

    return re.sub(r"<nav\b[^>]*>|</nav>", tag, text)
