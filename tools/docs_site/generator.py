"""The generator of the site: its environment, its settings, and how it is started."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from pages import ROOT, Problem

__all__ = ["WORK", "environment", "render", "settings"]

#: Everything that is made on the way: pages/ (Markdown), html/, zensical.toml.
WORK = ROOT / "build" / "docs"
ENVIRONMENT = ROOT / "build" / "docs-env"
HERE = Path(__file__).resolve().parent


def environment() -> Path:
    """Return the folder of the generator's programs, made first if it is missing or its packages have changed.

    They are the group ``docs`` of pyproject.toml, in an environment of their own: the library's has other versions.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["dependency-groups"]["docs"]
    stamp = ENVIRONMENT / "packages"
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split("\n") != packages:
        print("docs: installing the generator into build/docs-env", flush=True)
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT)])
        python = ENVIRONMENT / "bin" / "python"
        uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
        install = [uv, "pip", "install", "-q", "--python"] if uv else [sys.executable, "-m", "pip", "-q", "--python"]
        _run([*install, str(python), *([] if uv else ["install"]), *packages])
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return ENVIRONMENT / "bin"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise Problem(f"pyproject.toml:1: cannot install the group docs ({' '.join(command[:4])} … failed)")


def settings(navigation: list[Any], version: str, names: list[str], titled: list[str]) -> str:
    """Return the generator's file of settings.

    ``names`` have entries to which docstrings refer; the first paragraph of those ``titled`` is on their page already.
    """
    palettes = [
        _palette("(prefers-color-scheme)", "", "sun-moon", "Use light colours"),
        _palette("(prefers-color-scheme: light)", "default", "sun", "Use dark colours"),
        _palette("(prefers-color-scheme: dark)", "slate", "moon", "Use the system's colours"),
    ]
    project = {
        "site_name": "riot_ops",
        "site_description": "IoT streaming operators for Python and PySpark Structured Streaming",
        "docs_dir": "pages",
        "site_dir": "html",
        "use_directory_urls": False,  # so that the pages also open as files
        "nav": navigation,
        "extra_css": ["assets/site.css"],
        "extra_javascript": ["assets/site.js"],
        # no repo_url: the theme would ask the forge for its stars
        "theme": {
            "language": "en",
            "font": False,
            "custom_dir": "theme",
            "palette": palettes,
            "features": [
                "content.code.copy", "navigation.footer", "navigation.indexes", "navigation.prune",
                "navigation.tabs", "navigation.top", "search.highlight", "toc.follow",
            ],
        },
        "extra": {"generator": False, "version": {"provider": "mike", "default": version}},
        "markdown_extensions": {
            "abbr": {},
            "admonition": {},
            "attr_list": {},
            "def_list": {},
            "footnotes": {},
            "md_in_html": {},
            "tables": {},
            # anchors are those of forges
            "toc": {"permalink": True, "slugify": {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}},
            "pymdownx.details": {},
            "pymdownx.highlight": {"pygments_lang_class": True},
            "pymdownx.superfences": {"custom_fences": [
                {"name": "math", "class": "math", "format": "fences.math"},
                {"name": "picture", "class": "picture", "format": "fences.picture"},
            ]},
            "pymdownx.tabbed": {"alternate_style": True},
        },
        "plugins": {
            "search": {},
            "mkdocstrings": {"handlers": {"python": {
                "paths": [str(ROOT / "src")],
                "options": {
                    "extensions": [{"docstrings:Docstrings": {"names": names, "titled": titled}}],
                    "docstring_style": "numpy",
                    "docstring_section_style": "table",
                    "show_root_heading": True,
                    "show_root_full_path": False,
                    "show_source": False,
                    "show_signature_annotations": True,
                    "separate_signature": True,
                    "line_length": 88,
                    "heading_level": 2,
                    "inherited_members": False,
                    "members_order": "source",
                    "show_if_no_docstring": False,
                    "filters": ["!^_"],
                },
            }}},
        },
    }  # fmt: skip
    return f"project = {_toml(project)}\n"


def _palette(media: str, scheme: str, icon: str, action: str) -> dict[str, Any]:
    """Return the settings of a set of colours, with the name of the button that leads to the next one."""
    found = {"media": media, "toggle": {"icon": f"lucide/{icon}", "name": action}}
    return {**found, "scheme": scheme} if scheme else found


def _toml(value: Any) -> str:
    """Return a value as TOML, on one line.

    >>> _toml({"a": [True, {"b.c": "d"}]})
    '{"a" = [true, {"b.c" = "d"}]}'
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def render(folder: Path) -> None:
    """Make ``html`` of the ``pages`` in a folder; what the generator warns about fails."""
    program = environment() / "zensical"
    command = [str(program), "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, env=surroundings())
    if done.returncode:
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).partition("Traceback")[0].strip()
        raise Problem(f"{folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder}/pages:\n{said}")


def surroundings() -> dict[str, str]:
    """Return the environment variables of the generator."""
    return {**os.environ, "PYTHONPATH": str(HERE / "theme"), "NO_COLOR": "1"}


def fingerprint() -> str:
    """Return a text that changes with what pages show and the generator's cache does not see: theme and docstrings."""
    files = sorted(path for path in (HERE / "theme").rglob("*") if path.is_file() and path.suffix != ".pyc")
    files += sorted((ROOT / "src").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
