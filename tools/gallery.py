"""Run the examples and write the pages of the gallery: their text, their code and what it gave.

    tools/gallery.py [--out FOLDER] [NAME...]    default: all of examples/*.py, into docs/gallery

An example is a Python file in the percent format, which editors open as a notebook: ``# %%`` begins a cell of code,
``# %% [markdown]`` one of text. As in a notebook, the value of a cell's last line is part of its output. Each example
runs in a temporary folder. Its last picture stands on the index page, with the first sentence of the text.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import math
import os
import re
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "gallery"
PICTURES = "pictures"
#: Pictures without a background, whose lines and letters are legible on white and on black.
INK = "#7d838c"
COLOURS = ["#3b82c4", "#d97706", "#2f9e6e", "#c94f7c", "#8b6fd0", "#8a8f98"]
STYLE = {
    "figure.figsize": (9, 4),
    "figure.constrained_layout.use": True,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "figure.titleweight": "bold",
    "axes.titleweight": "bold",
    "axes.prop_cycle": mpl.cycler(color=COLOURS),
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.framealpha": 0.0,
    "font.size": 11,
    "date.converter": "concise",
    "savefig.transparent": True,
    "svg.hashsalt": "gallery",  # the same names in each run
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
ROWS = 20


@dataclass(frozen=True)
class Cell:
    """A cell of an example: Markdown, or code and the number of its first line in the file."""

    kind: str
    source: str
    line: int = 1


@dataclass
class Output:
    """What a cell of code gave: Markdown, and pictures as SVG with a text in place of each."""

    text: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)


def cells(text: str) -> list[Cell]:
    r"""Divide an example into its cells.

    >>> [(cell.kind, cell.source) for cell in cells("# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\n1 + 1\n")]
    [('markdown', '# Title\\n\\nText.'), ('code', '1 + 1')]
    """
    found = []
    marks = [*re.finditer(r"^# %%(?: \[(markdown)\])?[ ]*\n", text, re.MULTILINE)]
    if not marks or text[: marks[0].start()].strip():
        raise ValueError("an example begins with a cell: a line '# %% [markdown]'")
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        source = text[mark.end() : following.start() if following else len(text)].strip("\n")
        if mark[1]:
            lines = source.split("\n")
            wrong = [line for line in lines if line and not line.startswith("#")]
            if wrong:
                raise ValueError(f"a line of a Markdown cell is no comment: {wrong[0]!r}")
            source = "\n".join(re.sub(r"^# ?", "", line) for line in lines).strip("\n")
        found.append(Cell(mark[1] or "code", source, text.count("\n", 0, mark.end()) + 1))
    return found


@contextlib.contextmanager
def running(module: types.ModuleType, folder: Path) -> Iterator[None]:
    """Work in a folder and in the style of the pictures; classes are found by their names in the main module."""
    before, main = Path.cwd(), sys.modules["__main__"]
    os.chdir(folder)
    sys.modules["__main__"] = module
    try:
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*non-interactive", category=UserWarning)  # plt.show()
            yield
    finally:
        sys.modules["__main__"] = main
        os.chdir(before)


def run_cell(cell: Cell, names: dict[str, Any], path: Path) -> Output:
    """Run a cell of code; its output is what it prints, the value of its last line, and its figures."""
    import matplotlib.pyplot as plt

    tree = ast.parse("\n" * (cell.line - 1) + cell.source, str(path))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(path), "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
    output = Output()
    if printed.getvalue().strip():
        output.text.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if value is not None and not figures:
        show_value(value, output)
    for figure in figures:
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        titles = [figure.get_suptitle(), *(axes.get_title("left") or axes.get_title() for axes in figure.axes)]
        output.pictures.append((next(filter(None, titles)), drawn.getvalue()))
    plt.close("all")
    return output


def show_value(value: Any, output: Output) -> None:
    """Add a value as a notebook shows it: as a picture, a table, or text."""
    picture = getattr(value, "_repr_svg_", lambda: None)()
    if picture is not None:
        output.pictures.append((f"Diagram: {getattr(value, 'name', 'all dataflows')}", picture))
    elif isinstance(value, (pd.DataFrame, pd.Series)):
        output.text.append(table_of(value))
    else:
        output.text.append(f"```text\n{value!r}\n```")


def table_of(frame: Any) -> str:
    """Return a frame as a table of Markdown, with its index if that has a name.

    >>> print(table_of(pd.DataFrame({"n": [1, 2], "x": [0.5, None]})))
    | n | x |
    |---:|---:|
    | 1 | 0.5 |
    | 2 |  |
    """
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    frame = frame.reset_index() if any(frame.index.names) else frame
    if len(frame) > ROWS:
        raise ValueError(f"a table of {len(frame)} rows is too long to show; show the first with .head()")
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    rows = [[cell_text(name) for name in frame], ["---:" if one else "---" for one in numeric]]
    rows += [[cell_text(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(lines)


def cell_text(value: Any) -> str:
    """Return a value of a table as text."""
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value).replace("|", "\\|").replace("\n", " ")


@dataclass(frozen=True)
class Page:
    """The page of an example and its pictures by name."""

    name: str
    text: str
    pictures: dict[str, str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def sentence(self) -> str:
        """The first sentence below the heading."""
        paragraph = self.text.split("\n\n")[1].replace("\n", " ")
        return re.match(r".+?[.?!](?= |$)", paragraph)[0]  # type: ignore[index]


def run_example(path: Path) -> Page:
    """Run an example from top to bottom in a temporary folder and return its page."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    parts, pictures = [], []
    with tempfile.TemporaryDirectory() as folder, running(module, Path(folder)):
        for cell in cells(path.read_text(encoding="utf-8")):
            if cell.kind == "markdown":
                parts.append(cell.source)
                continue
            output = run_cell(cell, vars(module), path)
            parts.append(f"```python\n{cell.source}\n```")
            parts += output.text
            for title, picture in output.pictures:
                parts.append(f"![{title}](<{len(pictures)}>)")
                pictures.append(picture)
    if not any(part.startswith("![") for part in parts[-2:]):
        raise ValueError(f"{path.name} does not end in a picture and where to read on")
    files = [path.stem if i == len(pictures) - 1 else f"{path.stem}-{i + 1}" for i in range(len(pictures))]
    text = "\n\n".join(parts)
    for i, file in enumerate(files):
        text = text.replace(f"](<{i}>)", f"]({PICTURES}/{file}.svg)")
    return Page(path.stem, text + "\n", {f"{file}.svg": svg for file, svg in zip(files, pictures, strict=True)})


def index_of(pages: list[Page]) -> str:
    """Return the page with a picture and a sentence of each example."""
    lines = [
        "# Gallery",
        "",
        "Questions that people have, answered with data that each page makes itself. A page is a file of",
        "[examples](../../examples/README.md) and what it gave when it was run last; tests run all of them.",
    ]
    for page in pages:
        link = f"[{page.title}]({page.name}.md)"
        picture = f"[![{page.title}]({PICTURES}/{page.name}.svg)]({page.name}.md)"
        lines += ["", f"## {link}", "", page.sentence, "", picture]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages."""
    mpl.use("Agg")
    parser = argparse.ArgumentParser(description="Run the examples and write the pages of the gallery.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="examples, by default all; then the index is written too"
    )
    parser.add_argument("--out", type=Path, default=PAGES, help="folder of the pages, default docs/gallery")
    options = parser.parse_args()
    paths = sorted(EXAMPLES.glob("*.py"))
    unknown = {*options.names} - {path.stem for path in paths}
    if unknown:
        parser.error(f"there is no example {min(unknown)!r}; there are {', '.join(path.stem for path in paths)}")
    folder = options.out.resolve()
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    pages, failed = [], []
    for path in paths:
        if options.names and path.stem not in options.names:
            continue
        try:
            page = run_example(path)
        except Exception:
            traceback.print_exc()
            failed.append(path.name)
            continue
        (folder / f"{page.name}.md").write_text(page.text, encoding="utf-8")
        for old in (folder / PICTURES).glob("*.svg"):
            if re.fullmatch(rf"{re.escape(page.name)}(-\d+)?", old.stem):
                old.unlink()
        for name, svg in page.pictures.items():
            (folder / PICTURES / name).write_text(svg, encoding="utf-8")
        pages.append(page)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    if not options.names:
        (folder / "README.md").write_text(index_of(pages), encoding="utf-8")


if __name__ == "__main__":
    main()
