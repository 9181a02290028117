"""What makes a build fail: pages outside of the navigation, code that is no Python, requests to other servers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from markdown_text import code_blocks
from navigation import navigation
from pages import Page, Problem

__all__ = ["blocks_that_do_not_compile", "missing_from_navigation", "rendered"]


def missing_from_navigation(pages: Mapping[str, Page]) -> list[str]:
    """Return the problems of pages that no entry of the navigation names."""
    _, left = navigation(pages)
    return [f"{pages[page].where(1)}: the page is missing from tools/docs_site/navigation.py" for page in left]


def blocks_that_do_not_compile(pages: Iterable[Page]) -> list[str]:
    """Return the problems of blocks of Python without prompts that are not Python; those with prompts are run."""
    problems = []
    for page in pages:
        for block in code_blocks(page.text):
            if block.language == "python" and ">>>" not in block.text:
                try:
                    compile(block.text, page.origin, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                except SyntaxError as error:
                    problems.append(f"{page.where(block.line + (error.lineno or 1))}: {error.msg}")
    return problems


#: What a page loads by itself, and not only when a reader follows a link.
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"?(?P<url>https?://[^\s\">]+)", re.I)


def rendered(html: Path, pages: Mapping[str, Page]) -> None:
    """Check the finished pages: each is there, and none loads anything from elsewhere."""
    problems = []
    for place, page in pages.items():
        file = html / place.replace(".md", ".html")
        if not file.exists():
            problems.append(f"{page.where(1)}: the generator made no page of it")
            continue
        text = file.read_text(encoding="utf-8")
        for found in LOADED.finditer(text):
            if "rel=canonical" not in found[0] and 'rel="canonical"' not in found[0]:
                problems.append(f"{page.where(1)}: the page loads {found['url']}")
    if problems:
        raise Problem("\n".join(problems))
