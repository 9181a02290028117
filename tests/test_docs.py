"""The documentation is built whole, and the selectivities on its pages are those of the benchmark."""

import builtins
import functools
import importlib
import itertools
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import riot_ops
from riot_ops.cli import main as cli
from riot_ops.cli import result_plots

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
STREAMS = ("city", "taxi", "fit", "grid")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site's Markdown pages, without pictures; their links are checked on the way."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / "tools" / "docs_site"), "sources", "--work", str(folder), "--no-pictures"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "pages"


@pytest.mark.long
def test_every_generated_part_is_filled_in(built):
    written = {str(page.relative_to(DOCS)).replace("README.md", "index.md") for page in DOCS.rglob("*.md")}
    pages = {str(page.relative_to(built)): page for page in built.rglob("*.md")}
    made = pages.keys() - written
    assert made >= {"tasks.md", "parameters.md", "tasks/kalman_filter.md", "contributing.md", "changelog.md"}
    assert written <= pages.keys()
    for page in pages.values():
        text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))  # a page may speak of the marks
        left = re.findall(r"<!-- (?:generated|results|paper): .*-->", text)
        assert not left, f"{page}: {left}"


def measured(built, page, step, place=0):
    """Messages per source message of a step on the four streams, from the page's n-th table with it."""
    text = (built / "dataflows" / f"{page}.md").read_text(encoding="utf-8")
    head = re.search(r"^\| step \| task \| reads \| (.+) \| RIoTBench \|$", text, re.MULTILINE)
    assert tuple(head[1].split(" | ")) == STREAMS
    row = re.findall(rf"^\| {step} \| .*", text, re.MULTILINE)[place].strip("| ").split(" | ")
    return tuple(None if cell == "–" else float(cell) for cell in row[3:7])


# observations per message of the four schemas of the benchmark, and how many of them are numbers
OBSERVED, NUMERIC = (5, 10, 11, 1), (5, 8, 11, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "step", "wanted"),
    [
        ("etl", "parse", OBSERVED),
        ("etl", "range", OBSERVED),
        ("etl", "bloom", OBSERVED),
        ("etl", "interpolate", (5, None, 11, 1)),
        ("etl", "join", (1, 1, 1, 1)),
        ("etl", "sink", (2, 2, 2, 2)),
        ("stats", "parse", NUMERIC),
        ("stats", "kalman", NUMERIC),
        ("pred", "parse", (1, 1, 1, 1)),
        ("pred", "publish", (2, 2, 2, 2)),
        ("train", "range", (1, 1, 1, 1)),
        ("train", "models", (2, 2, 2, 2)),
    ],
)
def test_selectivities_are_the_benchmarks(built, page, step, wanted):
    assert measured(built, page, step) == wanted


@pytest.mark.long
def test_windows_have_their_selectivity(built):
    """100 messages of each of 10 sensors, some values missing: a window of W is full from the W-th value on."""
    for sliding, blocks, numbers, window in zip(
        measured(built, "stats", "avg"), measured(built, "stats", "avg", 1), NUMERIC, (90, 10, 10, 10), strict=True
    ):
        assert sliding == pytest.approx(numbers * (101 - window) / 100, rel=0.35)
        assert 0.9 * numbers / 10 <= blocks <= numbers / 10  # blocks of 10, the last of a key still open
    for predicted, numbers in zip(measured(built, "stats", "slr"), NUMERIC, strict=True):
        assert predicted == pytest.approx(numbers * 91 / 100, rel=0.02)


def test_links_of_the_front_pages_are_valid():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            built_only = link in ("docs/tasks.md",)
            assert built_only or (page.parent / link).exists(), f"{page}: {link}"


def test_every_application_has_a_page_with_its_parts():
    names = [name for name, one in riot_ops.dataflows.APPLICATIONS.items() if one.suite != "riotbench"]
    assert names
    for name in names:
        page = (DOCS / "dataflows" / f"{name}.md").read_text(encoding="utf-8")
        for part in ("diagram", "steps", "parameters", "results"):
            assert f"<!-- generated: {name}_{part} -->" in page
        assert (f"(pictures/{name}.png)" in page) == (name in result_plots.PLOTS)


DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_import_stable_names(page):
    if "architecture" in page.parts or "adr" in page.parts or page == DOCS / "stability.md":
        return
    stable = (DOCS / "stability.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(riot_ops[\w.]*)`", stable))
    for module, names in re.findall(r"from (riot_ops\.[\w.]+) import \(?([\w, ]+)", page.read_text(encoding="utf-8")):
        assert module in listed or module.rpartition(".")[0] == "riot_ops.dataflows", module
        exported = importlib.import_module(module).__all__
        for name in names.replace(" ", "").split(","):
            assert name in exported, f"{module}.{name}"
            assert module.count(".") == 1 or f"`{name}`" in stable, f"{module}.{name}"


def test_stable_commands_are_those_of_the_program():
    commands = re.search(r"`riot-ops ([\w |]+)`", (DOCS / "stability.md").read_text(encoding="utf-8"))[1].split(" | ")
    assert sorted(commands) == sorted(typer.main.get_command(cli.app).commands)


def page_commands(text):
    """The commands `riot-ops …` of a page, in blocks and in sentences, without those that leave something out."""
    blocks = "\n".join(re.findall(r"```(?:bash|console)\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    found = re.findall(r"^(?:\$ |\w+=\S+ )*riot-ops (.*)", blocks, re.MULTILINE)
    found += re.findall(r"`riot-ops ([^`]+)`", text)
    words = [shlex.split(command, comments=True) for command in found if not re.search("…|\\||<", command)]
    return [list(itertools.takewhile(lambda word: word not in (">", "&", "&&"), one)) for one in words]


@functools.cache
def program():
    return typer.main.get_command(cli.app)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_of_pages_have_their_options(page):
    """Each word of a command is parsed by the program; arguments may be missing where a sentence names the command."""
    for words in page_commands(page.read_text(encoding="utf-8")):
        command, left = program(), list(words)
        while hasattr(command, "commands") and left and not left[0].startswith("-"):
            assert left[0] in command.commands, words
            command = command.commands[left.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.partition("=")[0] for word in left if word.startswith("-") and word != "-"}
        assert used <= known | {"--help"}, words


def resolves(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[i:])
    return False


@functools.cache
def public_names():
    """Names at the top level of the package's modules."""
    names = [m.name for m in pkgutil.walk_packages(riot_ops.__path__, "riot_ops.") if not m.name.endswith("__main__")]
    modules = [importlib.import_module(name) for name in names]
    return {name for module in modules for name in vars(module)}


@pytest.mark.parametrize("page", [*DOCUMENTS, *SOURCES], ids=lambda p: str(p.relative_to(ROOT)))
def test_mentioned_names_exist(page):
    """Dotted names of the package, what ``ro.`` and ``t.`` stand for, and what docstrings refer to."""
    text = page.read_text(encoding="utf-8")
    if page.parent == DOCS / "adr" and "Status: proposed" in text:
        return  # names of what is to be built
    names = set(re.findall(r"\briot_ops(?:\.[A-Za-z_]\w*)+", text))
    if page.suffix == ".md":
        names |= {f"riot_ops.{name}" for name in re.findall(r"\bro\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text)}
        names |= {f"riot_ops.tasks.{name}" for name in re.findall(r"\bt\.([A-Z]\w*)", text)}
    names -= {
        name
        for name in names
        if name.endswith((".json", ".lock", ".dataflow", ".model", ".state", ".output", ".time", ".md"))
    }
    names -= {"riot_ops.commands", "riot_ops.run", "riot_ops.progress"}  # the group of the entry points, and loggers
    missing = sorted(name for name in names if not resolves(name))
    assert not missing, missing
    roles = set(re.findall(r":(?:class|func|data|exc|mod):`~?([\w.]+)`", text))
    unknown = sorted(
        name for name in roles if not resolves(name) and name not in public_names() and not hasattr(builtins, name)
    )
    assert not unknown, unknown
