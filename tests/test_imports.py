"""What may import what, and what ``import riot_ops`` may not load."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import riot_ops

PACKAGE = Path(riot_ops.__file__).parent

#: The rooms of the house, floor by floor from the ground up: a module may import its own room and those below.
FLOORS = (
    ("core",),
    ("kernels", "connectors"),
    ("ingest", "models", "sketches"),
    ("task",),
    ("operators",),
    ("tasks",),
    ("graph", "streams"),
    ("measure",),
    ("runtime",),
    ("spark",),
    ("dataflow",),
    ("testing",),
    ("dataflows", "reuse"),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

#: A task offers its runners as methods, which load them when they are called: the only imports that point upwards.
FACES = {("riot_ops.task", "runtime"), ("riot_ops.task", "spark"), ("riot_ops.tasks.predict.prediction", "runtime")}

HEAVY = (
    "pyspark",
    "sklearn",
    "scipy",
    "matplotlib",
    "numba",
    "pandas",
    "datasketch",
    "paho",
    "azure",
    "sqlalchemy",
    "hypothesis",
    "pytest",
    "psutil",
    "orjson",
    "maxminddb",
)


MODULES = {
    ".".join(("riot_ops", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@functools.cache
def _imports(path: Path, everywhere: bool = True) -> list[str]:
    """What a module imports: anywhere, also in functions and for type checkers; or only when it is imported itself."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if not everywhere:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                waiting += node.orelse
                continue
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append(full if full in MODULES else node.module or "")
        waiting += ast.iter_child_nodes(node)
    return found


def _own(path: Path, module: str) -> set[str]:
    return {name for name in _imports(path) if name in MODULES and name != module}


def _room(module: str) -> str:
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    if (parts[0] == "tasks" and len(parts) > 1) or "operators" in parts[2:3]:
        return "operators"  # the tasks themselves; the package ``riot_ops.tasks`` offers them all
    return parts[0]


def test_no_imports_go_in_a_circle():
    graph = graphlib.TopologicalSorter({module: _own(path, module) for module, path in MODULES.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module):
    path, room = MODULES[module], _room(module)
    assert room in FLOOR, f"{room} has no place in the house"
    for name in _own(path, module):
        other = _room(name)
        allowed = other == room or FLOOR[other] < FLOOR[room] or (module, other) in FACES
        assert allowed, f"{module} imports {name}, which is not below it"
    for name in _imports(path, everywhere=False):
        root = name.partition(".")[0]
        if root in {"pyspark", "pandas"}:
            assert room == "spark", f"{module} imports {root} outside of spark/"
        allowed = module in (
            "riot_ops.spark.worker_daemon",  # which is there to read it beforehand
            "riot_ops.kernels.arrays.vectors",  # which numba alone reads
        )
        assert root not in set(HEAVY) - {"pyspark", "pandas"} or allowed, f"{module} imports {root} at once"


def test_the_library_does_not_know_the_benchmarks():
    for folder in (PACKAGE, Path(__file__).parent):
        for path in folder.rglob("*.py"):
            roots = {name.partition(".")[0] for name in _imports(path)}
            assert "riot_bench" not in roots, f"{path} imports riot_bench"


@pytest.mark.parametrize("module", ["riot_ops", "riot_ops.tasks", "riot_ops.testing", "riot_ops.runtime.local"])
def test_an_import_stays_light(module):
    code = f"import sys, {module}\nprint(*sorted({{m.partition('.')[0] for m in sys.modules}} & {set(HEAVY)!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == [], f"import {module} loads {', '.join(found)}"


def test_optional_packages_may_be_missing():
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {set(HEAVY) - {'numba'}!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import riot_ops as ro\n"
        "flow = ro.Dataflow('f')\n"
        "flow.sink('out', flow.source('in', schema={'value': 'double'}).to(ro.tasks.KalmanFilter(), id='k'))\n"
        "print(flow.run([{'value': 1.0}])['k'].num_rows)\n"
        "try:\n"
        "    from riot_ops.spark import session\n"
        "    session()\n"
        "except ro.MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1", "Spark needs an optional dependency: pip install 'riot-ops[spark]'"]
