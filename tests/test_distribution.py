"""Contents of the built distributions, and use of the wheel with its base dependencies only."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
MAX_WHEEL_BYTES = 3_000_000


def build(project, folder, target):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def names(path):
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    with tarfile.open(path) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def test_wheel_holds_the_library_alone(wheel):
    found = names(wheel)
    assert {name.partition("/")[0] for name in found} == {"riot_ops", "riot_ops-0.1.0.dist-info"}
    assert {Path(name).suffix for name in found if name.startswith("riot_ops/")} == {".py", ".typed", ".model"}
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == source
    assert not [name for name in found if re.search(r"bench(?!$)|baseline|report/", name) and "streambench" not in name and "dspbench" not in name and "riotbench" not in name]  # fmt: skip
    assert wheel.stat().st_size <= MAX_WHEEL_BYTES


def test_wheel_declares_the_extra_and_the_command_of_shared_dataflows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("riot_ops-0.1.0.dist-info/METADATA").decode()
        commands = archive.read("riot_ops-0.1.0.dist-info/entry_points.txt").decode()
    assert "\nProvides-Extra: reuse\n" in metadata
    assert "[riot_ops.commands]\nreuse = riot_ops.cli.reuse:add_reuse\n" in commands


def test_sdist_holds_source_tests_and_metadata(tmp_path):
    found = names(build(ROOT, tmp_path, "sdist"))
    tops = {name.partition("/")[0] for name in found if name}
    files = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "THIRD_PARTY_NOTICES.md", "PKG-INFO"}
    assert tops <= {"src", "tests", "conftest.py", "pyproject.toml", ".gitignore", *files}
    assert tops >= {"src", "tests", "conftest.py", "pyproject.toml", *files}
    assert not [name for name in found if name.endswith((".html", ".png"))]
    assert not [name for name in found if name.endswith(".jsonl") and "tests/data/samples" not in name]


def test_wheel_of_the_benchmarks_holds_them_alone(tmp_path):
    found = names(build(ROOT / "benchmarks", tmp_path, "wheel"))
    assert {name.partition("/")[0] for name in found} == {"riot_bench", "riot_bench-0.1.0.dist-info"}
    assert not [name for name in found if name.endswith((".jsonl", ".csv", ".html"))]


def closure(requirements):
    """The installed distributions that requirements without extras need, and what these need."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and one.name.lower() not in found:
            found[one.name.lower()] = distribution(one.name)
            waiting += map(Requirement, found[one.name.lower()].requires or ())
    return found.values()


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The Python of an environment with the wheel and its base dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        metadata = archive.read("riot_ops-0.1.0.dist-info/METADATA").decode()
    for one in closure(re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)):
        for top in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(one.locate_file(top))
    return folder / "bin" / "python"


def run(python, *arguments, folder):
    return subprocess.run([str(python), *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_bare_import_and_first_example(bare, tmp_path):
    example = re.search(r"```python\n(>>> .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "example.txt").write_text(example, encoding="utf-8")
    code = (
        "import doctest, sys, importlib.util as u\n"
        "missing = [n for n in ('pyspark', 'pandas', 'matplotlib', 'scipy', 'riot_bench') if u.find_spec(n) is None]\n"
        "assert len(missing) == 5, missing\n"
        "sys.exit(doctest.testfile('example.txt', module_relative=False, optionflags=doctest.ELLIPSIS).failed)\n"
    )
    done = run(bare, "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_bare_command(bare, tmp_path):
    done = run(bare, "-m", "riot_ops", "run", "stats", "--runner", "local", "--messages", "500", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "out" / "stats" / "avg").glob("*.parquet"))
    code = "import riot_ops.reuse as r; r.ReuseManager(r.LocalBackend()).close(); r.SparkBackend"
    done = run(bare, "-c", code, folder=tmp_path)
    assert done.stderr.endswith("pip install 'riot-ops[spark]'\n"), done.stderr
    done = run(bare, "-m", "riot_ops", "bench", "--list", folder=tmp_path)
    assert done.returncode == 2
    assert "pip install 'riot-bench'" in done.stderr
