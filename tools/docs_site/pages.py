"""The pages of the site: those of docs/ and of the repository's front, and those made from the code."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import markdown_text

__all__ = ["DOCS", "FORGE", "ROOT", "Page", "Problem", "read_pages", "with_site_links"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Where files of the repository that are no pages are read.
FORGE = "https://github.com/riot-ops/riot-ops/blob/main/"
#: Pages that a forge expects at other places.
FRONT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}


class Problem(Exception):  # noqa: N818
    """What is wrong with the documentation; each line begins with a file and a line number."""


@dataclass(frozen=True)
class Page:
    """A page: where it stands on the site, its Markdown text, and the file of the repository that it comes from.

    ``made_by`` names what makes a page that no file has; ``origin`` is then where it would be.
    """

    path: str
    text: str
    origin: str
    made_by: str = ""

    def where(self, line: int) -> str:
        """Return the file and the line, for a message."""
        return f"{self.origin}:{line}" if not self.made_by else f"{self.path}:{line} (made by {self.made_by})"


def made(path: str, text: str, made_by: str) -> Page:
    """Return a page that is made from the code."""
    return Page(path, text, f"docs/{path}", made_by)


def read_pages() -> dict[str, Page]:
    """Return the pages that files have, by their place on the site."""
    files = {f"{path.relative_to(DOCS)}": path.relative_to(ROOT) for path in sorted(DOCS.rglob("*.md"))}
    files = {re.sub(r"(^|/)README\.md$", r"\1index.md", place): path for place, path in files.items()}
    files |= {place: Path(path) for place, path in FRONT.items()}
    return {
        place: Page(place, (ROOT / path).read_text(encoding="utf-8"), path.as_posix()) for place, path in files.items()
    }


def with_site_links(
    page: Page, pages: Mapping[str, Page], modules: Mapping[str, str], pictures: Collection[str] = ()
) -> Page:
    """Return a page whose links are those of the site; a link to nothing is a :class:`Problem`.

    Links are written as a forge takes them, from file to file. Those to a module in ``modules`` lead to its page, those
    to other files of the repository to the forge. ``pictures`` are files that the site has and docs/ does not.
    """
    places = {one.origin: place for place, one in pages.items()}
    anchors: dict[str, set[str]] = {}
    problems = []

    def change(target: str) -> str:
        if re.match(r"[a-z]+:|\{|#__", target):
            return target
        path, mark, anchor = target.partition("#")
        origin = posixpath.normpath(posixpath.join(posixpath.dirname(page.origin), path)) if path else page.origin
        if origin == "docs/tasks.md" and anchor.replace("_", "") in tasks:
            place, mark, anchor = tasks[anchor.replace("_", "")], "", ""
        elif origin in places:
            place = places[origin]
        elif origin in modules and not anchor:
            place = modules[origin]
        elif origin.removeprefix("docs/") in pictures or (origin.startswith("docs/") and (ROOT / origin).is_file()):
            place = origin.removeprefix("docs/")
            return posixpath.relpath(place, posixpath.dirname(page.path) or ".")
        elif (ROOT / origin).exists():
            return FORGE + origin + mark + anchor
        else:
            raise LookupError(f"{target} leads to no page or file")
        if anchor:
            if place not in anchors:
                anchors[place] = markdown_text.anchors(pages[place].text)
            if anchor not in anchors[place] and not place.startswith("api/"):
                raise LookupError(f"{target} leads to no heading of {pages[place].origin}")
        return (posixpath.relpath(place, posixpath.dirname(page.path) or ".") if path else "") + mark + anchor

    tasks = {
        place.removeprefix("tasks/").removesuffix(".md").replace("_", ""): place
        for place in pages
        if place.startswith("tasks/")
    }
    for line, target in markdown_text.links(page.text):
        try:
            change(target)
        except LookupError as error:
            problems.append(f"{page.where(line)}: {error}")
    if problems:
        raise Problem("\n".join(problems))
    return replace(page, text=markdown_text.replace_links(page.text, change))


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Make a folder hold these files and no others; one that is unchanged is left alone."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, content in files.items():
        path, data = folder / name, content.encode() if isinstance(content, str) else content
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.new")
            temporary.write_bytes(data)
            os.replace(temporary, path)
