"""Contents of the built distributions, and use of the wheel with its base dependencies only."""

from __future__ import annotations

import os
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
#: As vendors write it; the middle is of the PySpark that is installed, whose features are found by name.
VENDOR_VERSION = ".".join(distribution("pyspark").version.split(".")[:2]) + ".0.dbr17"
MAX_WHEEL_BYTES = 3_000_000
UPLOT = ("LICENSE", "uPlot.iife.min.js", "uPlot.min.css")


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
    others = {
        name for name in found if name.startswith("riot_ops/") and Path(name).suffix not in (".py", ".typed", ".model")
    }
    live = {f"riot_ops/monitoring/{name}" for name in ("page.html", *(f"uplot/{name}" for name in UPLOT))}
    templates = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.tmpl")}
    assert len(templates) > 20, "those of riot-ops new"
    assert others == live | templates  # the page with its charts
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
    assert [name for name in found if name.endswith((".html", ".png"))] == ["src/riot_ops/monitoring/page.html"]
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


def environment(wheel, folder, *more):
    """Make an environment with the wheel, its base dependencies and more distributions; returns its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        metadata = archive.read("riot_ops-0.1.0.dist-info/METADATA").decode()
    for one in closure([*re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE), *more]):
        for top in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(one.locate_file(top))
    return packages


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The Python of an environment with the wheel and its base dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    environment(wheel, folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def cluster(wheel, tmp_path_factory):
    """The Python of a cluster of a vendor: its own build of PySpark, pandas and protobuf, and the plain wheel."""
    folder = tmp_path_factory.mktemp("cluster")
    packages = environment(wheel, folder, "pandas", "protobuf", "py4j")
    assert not (packages / "pyspark").exists(), "the plain wheel pulls no PySpark"
    (packages / "pyspark").mkdir()
    for entry in Path(distribution("pyspark").locate_file("pyspark")).iterdir():
        if entry.name not in ("version.py", "__pycache__"):
            (packages / "pyspark" / entry.name).symlink_to(entry)
    (packages / "pyspark" / "version.py").write_text(f'__version__: str = "{VENDOR_VERSION}"\n', encoding="utf-8")
    return folder / "bin" / "python"


def run(python, *arguments, folder):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON")}
    return subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


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
    done = run(bare, "-m", "riot_ops", "doctor", folder=tmp_path)
    assert done.returncode == 0 and "spark      not installed" in done.stdout, done.stdout + done.stderr
    done = run(bare, "-m", "riot_ops", "new", "cellar", "--template", "k8s", folder=tmp_path)
    assert done.returncode == 0 and (tmp_path / "cellar" / "deploy" / "Dockerfile").is_file(), done.stderr
    code = "import riot_ops.reuse as r; r.ReuseManager(r.LocalBackend()).close(); r.SparkBackend"
    done = run(bare, "-c", code, folder=tmp_path)
    assert done.stderr.endswith("pip install 'riot-ops[spark]'\n"), done.stderr
    done = run(bare, "-m", "riot_ops", "bench", "--list", folder=tmp_path)
    assert done.returncode == 2
    assert "pip install 'riot-bench'" in done.stderr


ON_A_CLUSTER = """
import importlib.metadata as m, sys
import pyspark
import riot_ops as ro
from riot_ops import spark as on_spark, tasks as t
from riot_ops.spark import features, runner, udfs, data_sources, frames, state_reader, worker_daemon
assert pyspark.__version__.endswith(".dbr17"), pyspark.__version__
assert "pyspark" not in {d.name.lower() for d in m.distributions()}, "it is the cluster's own"
assert ".".join(map(str, features.installed_version())) == pyspark.__version__[:3]
from pyspark import SparkConf
assert "RocksDB" in str(on_spark.configure(SparkConf(loadDefaults=False)).getAll())
if len(sys.argv) > 1:
    flow = ro.Dataflow("plain")
    rows = flow.source("in", schema={"device": "string", "value": "double"})
    flow.sink("out", rows.to(t.KalmanFilter(by="device"), id="smooth"))
    data = [{"device": "ab"[i % 2], "value": float(i)} for i in range(20)]
    spark = on_spark.session(cores=1, memory="1g")
    query = flow.start(spark, data, max_records=7, checkpoint=sys.argv[1])
    query.wait("3min")
    assert query["smooth"].sort_by("seq").to_pylist() == flow.run(data)["smooth"].to_pylist()
print("works")
"""


@pytest.mark.spark
@pytest.mark.long
def test_plain_wheel_on_a_cluster_with_its_own_pyspark(cluster, tmp_path):
    done = run(cluster, "-c", ON_A_CLUSTER, folder=tmp_path)
    assert done.stdout == "works\n", done.stderr


@pytest.mark.spark
@pytest.mark.slow  # another JVM
def test_dataflow_on_a_cluster_with_its_own_pyspark(cluster, tmp_path):
    done = run(cluster, "-c", ON_A_CLUSTER, str(tmp_path / "kept"), folder=tmp_path)
    assert done.stdout == "works\n", done.stderr[-4000:]
