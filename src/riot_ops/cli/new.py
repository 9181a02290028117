"""The ``riot-ops new`` command."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import PackageNotFoundError, requires
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from riot_ops import __version__
from riot_ops.core.errors import ConfigError, did_you_mean, escape_control
from riot_ops.core.paths import local_path

__all__ = ["EXAMPLES", "TEMPLATES", "names_of", "new"]

#: The templates: their folders of files, the extra of riot_ops that they need, and what they run.
TEMPLATES = {
    "service": (("common", "service"), "mqtt", "MQTT messages, as a systemd service"),
    "notebook": (("common", "notebook"), "plot", "files, in a notebook"),
    "spark": (("common", "cluster", "spark"), "", "files, on a Spark cluster"),
    "databricks": (("common", "cluster", "databricks"), "", "files, as a Databricks bundle"),
    "k8s": (("common", "cluster", "k8s"), "", "files, by the Spark operator of Kubernetes"),
}
SUFFIX = ".tmpl"
#: The part of the README that is the template's own.
SECTION = f"README.section{SUFFIX}"
#: Longest name: with what is added to it, it is still one of a Kubernetes object.
MAX_NAME = 40

EXAMPLES = "**Examples**\n\n`riot-ops new my-project`\n\n" + "\n\n".join(
    f"`riot-ops new my-project --template {name}` · {what}" for name, (_, _, what) in TEMPLATES.items()
)


def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to make; its name is that of the project.")],
    template: Annotated[str, typer.Option(help=f"What the project runs as: {', '.join(TEMPLATES)}.")] = "service",
) -> None:
    """Write a small project: an operator, a dataflow, their tests and a file to deploy it."""
    if template not in TEMPLATES:
        raise ConfigError(
            f"--template must be one of {', '.join(TEMPLATES)}, got {template!r}{did_you_mean(template, TEMPLATES)}"
        )
    target = local_path(folder, "FOLDER")
    title = target.absolute().name
    if not title or not title.isprintable():
        raise ConfigError(f"FOLDER must have a printable name, got {str(folder)!r}")
    package, distribution = names_of(title)
    written = _write(target, _rendered(template, title, package, distribution))
    print(escape_control(f"wrote {len(written)} files to {folder}: the package {package}, template {template}"))
    for path in written:
        print(escape_control(f"  {path}"))
    print(f"\nnext\n  cd {_quoted(str(folder))}\n  pip install -e '.[dev]'\n  pytest")
    print(f"  python -m {package} data/readings.jsonl")


def names_of(title: str) -> tuple[str, str]:
    """Return names of a Python package and of a distribution for the name of a folder.

    >>> names_of("Größe 2"), names_of("2fast")
    (('groe_2', 'groe-2'), ('project_2fast', 'project-2fast'))
    >>> names_of("class"), names_of("数据")
    (('class_project', 'class-project'), ('project', 'project'))
    """
    ascii_name = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", ascii_name) or ["project"]
    if words[0][0].isdigit():
        words.insert(0, "project")
    name = "_".join(words)[:MAX_NAME].strip("_")
    # another module of that name would hide the package, or be hidden by it
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in sys.stdlib_module_names or _is_taken(name):
        name = f"{name}_project"
    return name, name.replace("_", "-")


def _is_taken(name: str) -> bool:
    if name in ("riot_ops", "riot_bench", "tests", "data", "src", "deploy"):
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def _rendered(template: str, title: str, package: str, distribution: str) -> dict[str, str]:
    """Return the texts of the project's files by path."""
    parts, extra, _ = TEMPLATES[template]
    root = resources.files("riot_ops.cli") / "templates"
    texts: dict[str, str] = {}
    for part in parts:
        texts.update((path, file.read_text(encoding="utf-8")) for path, file in _files(root / part))
    values = {
        "section": texts.pop(SECTION).rstrip("\n"),
        "title": title,
        "package": package,
        "distribution": distribution,
        "requirement": f"riot-ops{f'[{extra}]' if extra else ''}>={__version__}",
        **{name: f'"{_requirement(name)}"' for name in ("pandas", "protobuf")},
    }
    paths = {"__test_package__": f"test_{package}", "__package__": package, "__distribution__": distribution}
    paths["__test_package___"] = f"test_{package}_"
    return {_path(path, paths): _filled(text, path, values) for path, text in sorted(texts.items())}


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield f"{path}{entry.name}", entry


def _path(path: str, names: dict[str, str]) -> str:
    for mark in sorted(names, key=len, reverse=True):
        path = path.replace(mark, names[mark])
    return path.removesuffix(SUFFIX)


def _filled(text: str, path: str, values: dict[str, str]) -> str:
    if path.endswith((".ipynb.tmpl", ".py.tmpl")):  # within a text of JSON, and a docstring
        values = {**values, "title": values["title"].replace("\\", "/").replace('"', "'")}
    for name, value in values.items():  # the section first: it has marks of its own
        text = text.replace(f"@@{name}@@", value)
    return text


def _requirement(name: str) -> str:
    """Return the versions of a package that riot_ops allows."""
    try:
        texts = requires("riot-ops") or ()
    except PackageNotFoundError:
        texts = ()
    found = (re.match(rf"({name}[^;\s]*)\s*;.*extra == ['\"]spark['\"]", text) for text in texts)
    return next((one[1] for one in found if one), name)


def _write(target: Path, texts: dict[str, str]) -> list[str]:
    """Write the files; if that fails, remove those that are written."""
    if target.is_dir() and any(target.iterdir()):
        raise ConfigError(f"{target} is not empty: name a new folder")
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file: name a new folder")
    existed = target.exists()
    try:
        for path, text in texts.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
            if path.endswith(".sh"):
                file.chmod(0o755)
    except OSError as error:
        for entry in target.iterdir() if target.is_dir() else ():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
        if not existed and target.is_dir():
            target.rmdir()
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from None
    return list(texts)


def _quoted(path: str) -> str:
    return path if re.fullmatch(r"[\w./-]+", path) else "'" + path.replace("'", "'\\''") + "'"
