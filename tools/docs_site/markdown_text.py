"""Markdown text: its links, headings and code blocks, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["CodeBlock", "anchors", "code_blocks", "links", "replace_links", "slug"]

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$")
LINK = re.compile(r"(?P<before>\]\(<?|^\[[^\]]+\]: +|\b(?:href|src)=\")(?P<target>[^)\s\">]+)")
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)(?: +\{(?P<attributes>[^}]*)\})?$")


class CodeBlock(NamedTuple):
    """A fenced block of code."""

    line: int
    language: str
    text: str


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Give each line with its number and whether it is text, neither code nor comment."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = FENCE.match(line)
        if fence:
            yield number, line, False
            if found and found["fence"].startswith(fence) and not found["info"].strip():
                fence = ""
        elif found:
            fence = found["fence"]
            yield number, line, False
        else:
            yield number, line, True


def links(text: str) -> Iterator[tuple[int, str]]:
    r"""Give the line and the target of each link and picture.

    >>> list(links("[a](b.md#c) `[x](y)`\n```\n[d](e)\n```\n<img src=\"f.png\">"))
    [(1, 'b.md#c'), (5, 'f.png')]
    """
    for number, line, is_text in _lines(text):
        if is_text:
            bare = INLINE_CODE.sub(lambda m: " " * len(m[0]), line)
            yield from ((number, found["target"]) for found in LINK.finditer(bare))


def replace_links(text: str, change: Callable[[str], str]) -> str:
    """Return the text with each link's target changed."""
    lines = []
    for _, line, is_text in _lines(text):
        if is_text:
            bare = INLINE_CODE.sub(lambda m: " " * len(m[0]), line)
            for found in reversed(list(LINK.finditer(bare))):
                start, end = found.span("target")
                line = line[:start] + change(found["target"]) + line[end:]
        lines.append(line)
    return "\n".join(lines)


def slug(title: str) -> str:
    """Return a heading's anchor, as forges make it.

    >>> slug("Which `task` — and why?")
    'which-task--and-why'
    """
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, and those written as HTML."""
    found: dict[str, int] = {}
    ids = set()
    for _, line, is_text in _lines(text):
        heading = HEADING.match(line) if is_text else None
        if heading:
            named = re.search(r"#([\w.-]+)", heading["attributes"] or "")
            name = named[1] if named else slug(heading["title"])
            times = found.get(name, 0)
            found[name] = times + 1
            ids.add(f"{name}_{times}" if times else name)
        elif is_text:
            ids.update(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", line))
    return ids


def code_blocks(text: str) -> Iterator[CodeBlock]:
    """Give the fenced blocks of code."""
    fence, indent, language, start, block = "", "", "", 0, []
    for number, line in enumerate(text.split("\n"), 1):
        found = FENCE.match(line)
        if fence and found and found["fence"].startswith(fence) and not found["info"].strip():
            yield CodeBlock(start, language, "\n".join(block) + "\n")
            fence = ""
        elif fence:
            block.append(line.removeprefix(indent))
        elif found:
            fence, indent, start, block = found["fence"], found["indent"], number, []
            language = (found["info"].split() or [""])[0]
