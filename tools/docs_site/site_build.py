"""The steps of a build: collect the pages, fill them in, check them, render them, put them beside other versions."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import api_pages
import checks
import finished_html
import generator
import made_pages
from code_blocks import CodeRun
from flowchart import flowchart_svg
from generated_parts import GeneratedParts
from navigation import navigation
from pages import DOCS, ROOT, Page, Problem, read_pages, with_site_links, write

import riot_ops

__all__ = ["build", "collect", "write_sources"]

SITE = ROOT / "site"
ASSETS = {".svg", ".png", ".css", ".js", ".csv", ".json", ".ipynb", ".yml", ".yaml"}


def collect() -> dict[str, Page]:
    """Return all pages of the site, complete and checked: Markdown as the generator takes it."""
    pages = read_pages()
    for page in made_pages.all_pages():
        pages[page.path] = page
    modules, pictures = made_pages.module_pages(), made_pages.picture_names()

    def linked(page: Page) -> Page:
        return with_site_links(page, pages, modules, pictures)

    parts = GeneratedParts(linked)
    problems = []
    done = {}
    for place, page in pages.items():
        try:
            done[place] = with_flowcharts(parts.filled(linked(page)))
        except Problem as problem:
            problems.append(str(problem))
    problems += checks.missing_from_navigation(pages)
    problems += checks.blocks_that_do_not_compile(pages.values())
    if problems:
        raise Problem("\n".join(problems))
    return done


def with_flowcharts(page: Page) -> Page:
    """Return a page whose Mermaid blocks are pictures."""

    def drawn(match: re.Match[str]) -> str:
        try:
            return f"```picture\n{flowchart_svg(match['chart'])}\n```"
        except ValueError as error:
            raise Problem(f"{page.where(page.text.count(chr(10), 0, match.start()) + 1)}: {error}") from None

    return replace(page, text=re.sub(r"^```mermaid\n(?P<chart>.*?)^```$", drawn, page.text, flags=re.M | re.S))


def write_sources(pages: Mapping[str, Page], work: Path = generator.WORK, *, pictures: bool = True) -> None:
    """Write what the generator reads into a folder."""
    files: dict[str, str | bytes] = {place: page.text for place, page in pages.items()}
    for path in DOCS.rglob("*"):
        if path.suffix in ASSETS:
            files[path.relative_to(DOCS).as_posix()] = path.read_bytes()
    files |= made_pages.pictures() if pictures else {}
    theme = Path(__file__).parent / "theme"
    files |= {f"assets/{name}": (theme / name).read_bytes() for name in ("site.css", "site.js")}
    write(work / "pages", files)
    templates: dict[str, str | bytes] = {path.stem: path.read_bytes() for path in (theme / "templates").glob("*.jinja")}
    write(work / "theme", templates)
    entries, _ = navigation(pages, groups=made_pages.task_groups())
    settings = generator.settings(entries, riot_ops.__version__, api_pages.crossed_names(), api_pages.titled_names())
    (work / "zensical.toml").write_text(settings, encoding="utf-8")
    mark = work / ".theme"
    if not mark.exists() or mark.read_text(encoding="utf-8") != generator.fingerprint():
        shutil.rmtree(work / ".cache", ignore_errors=True)
        mark.write_text(generator.fingerprint(), encoding="utf-8")


def build(*, run_code: bool = True) -> None:
    """Build the site of this version; a :class:`Problem` lists what is wrong."""
    began = time.monotonic()
    code = CodeRun() if run_code else None
    try:
        pages = collect()
        write_sources(pages)
        shutil.rmtree(generator.WORK / "html", ignore_errors=True)
        generator.render(generator.WORK)
        finished_html.finish(generator.WORK / "html")
        checks.rendered(generator.WORK / "html", pages)
        if code:
            code.finish()
    finally:
        if code:
            code.stop()
    publish(generator.WORK / "html", SITE, riot_ops.__version__)
    print(f"docs: {len(pages)} pages in site/ after {time.monotonic() - began:.0f} s", file=sys.stderr)


def publish(html: Path, site: Path, version: str) -> None:
    """Put a version's pages into their folder of the site, beside those of other versions.

    ``versions.json`` lists the folders for the selector, the newest first; ``index.html`` leads to the newest one.
    """
    target = site / version
    shutil.rmtree(target, ignore_errors=True)
    site.mkdir(exist_ok=True)
    shutil.copytree(html, target)
    found = [path.name for path in site.iterdir() if (path / "index.html").exists()]
    found.sort(key=lambda name: [int(n) for n in re.findall(r"\d+", name)], reverse=True)
    newest = found[0]
    entries = [{"version": v, "title": v, "aliases": ["latest"] if v == newest else []} for v in found]
    (site / "versions.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    (site / "index.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>riot_ops</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html">'
        f'<p>The documentation of riot_ops <a href="{newest}/index.html">{newest}</a>.</p></html>\n',
        encoding="utf-8",
    )
