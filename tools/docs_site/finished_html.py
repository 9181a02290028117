"""What the theme's HTML lacks: sizes of pictures; and for screen readers, headings and landmarks that make sense."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["finish", "with_sizes", "without_empty_headings", "without_inner_landmarks"]


def finish(html: Path) -> None:
    """Amend the pages in a folder."""
    for path in html.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        done = with_sizes(without_inner_landmarks(without_empty_headings(text)), path.parent)
        if done != text:
            path.write_text(done, encoding="utf-8")


def with_sizes(text: str, folder: Path) -> str:
    """Return a page whose pictures have their sizes, so that the text does not move when they arrive."""

    def sized(match: re.Match[str]) -> str:
        file = folder / match["src"]
        if "width=" in match[0] or not file.is_file():
            return match[0]
        if file.suffix == ".png":
            width, height = (int.from_bytes(file.read_bytes()[at : at + 4], "big") for at in (16, 20))
        else:
            box = re.search(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"', file.read_text(encoding="utf-8"))
            if box is None:
                return match[0]
            width, height = (round(float(size)) for size in box.groups())
        return match[0].replace("<img", f'<img width="{width}" height="{height}"', 1)

    return re.sub(r'<img\b[^>]*?src="?(?P<src>[^\s">]+\.(?:svg|png))"?[^>]*>', sized, text)


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
