"""The layers of packages, the absence of import cycles, and what ``import riot_ops`` loads."""

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

#: The layers of packages from the bottom up: a module may import its own package and those of lower layers.
LAYERS = (
    ("core",),
    ("kernels", "connectors"),
    ("ingest", "models", "sketches", "windows"),
    ("tables",),
    ("task",),
    ("operators",),
    ("tasks",),
    ("graph", "streams"),
    ("measure",),
    ("runtime",),
    ("spark",),
    ("runnable_graph",),
    ("dataflow", "apply_task", "monitoring"),
    ("testing",),
    ("dataflows", "reuse"),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}

#: Methods of tasks import the runners when they are called: the only imports of higher layers.
UPWARD = {
    ("riot_ops.task", "runtime"),
    ("riot_ops.task", "spark"),
    ("riot_ops.tasks.predict.prediction_task", "runtime"),
}

HEAVY = (
    "pyspark",
    "sklearn",
    "scipy",
    "matplotlib",
    "numba",
    "llvmlite",
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
    "urllib3",
)

#: What ``import riot_ops`` loads only at first use, with all submodules.
LAZY = (
    "riot_ops.cli",
    "riot_ops.graph",
    "riot_ops.ingest",
    "riot_ops.measure",
    "riot_ops.monitoring",
    "riot_ops.reuse",
    "riot_ops.runtime",
    "riot_ops.spark",
    "riot_ops.testing",
    "riot_ops.tables",
    "riot_ops.windows",
    "pyarrow.parquet",
    "asyncio",
    "ssl",
    "xml",
    "zoneinfo",
)
#: Packages whose ``__init__`` alone it loads.
LAZY_SUBMODULES = (
    "riot_ops.connectors.",
    "riot_ops.dataflows.",
    "riot_ops.models.",
    "riot_ops.sketches.",
    "riot_ops.streams.",
    "riot_ops.tasks.",
)

MODULES = {
    ".".join(("riot_ops", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@functools.cache
def _imports(path: Path, everywhere: bool = True) -> list[str]:
    """The imports of a module: all, including those in functions and for type checkers; or only those at import time."""
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


def _package(module: str) -> str:
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    if (parts[0] == "tasks" and len(parts) > 1) or "operators" in parts[2:3]:
        return "operators"  # the modules of tasks; the package ``riot_ops.tasks`` exports them
    return parts[0]


def test_imports_have_no_cycle():
    graph = graphlib.TopologicalSorter({module: _own(path, module) for module, path in MODULES.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module):
    path, package = MODULES[module], _package(module)
    assert package in LAYER, f"{package} is in no layer"
    for name in _own(path, module):
        other = _package(name)
        allowed = other == package or LAYER[other] < LAYER[package] or (module, other) in UPWARD
        assert allowed, f"{module} imports {name}, which is not in a lower layer"
    for name in _imports(path, everywhere=False):
        root = name.partition(".")[0]
        if root in {"pyspark", "pandas"}:
            assert package == "spark", f"{module} imports {root} outside of spark/"
        allowed = module == "riot_ops.kernels.arrays.simd"  # which only numba imports
        assert root not in set(HEAVY) - {"pyspark", "pandas"} or allowed, f"{module} imports {root} at once"


def test_library_does_not_import_the_benchmarks():
    for folder in (PACKAGE, Path(__file__).parent):
        for path in folder.rglob("*.py"):
            roots = {name.partition(".")[0] for name in _imports(path)}
            assert "riot_bench" not in roots, f"{path} imports riot_bench"


def _loaded(module: str) -> set[str]:
    """The modules that a new process has loaded after an import."""
    code = f"import sys, {module}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", ["riot_ops", "riot_ops.tasks", "riot_ops.testing", "riot_ops.runtime.local"])
def test_import_loads_no_heavy_package(module):
    found = {name.partition(".")[0] for name in _loaded(module)} & set(HEAVY)
    assert not found, f"import {module} loads {', '.join(sorted(found))}"


@pytest.mark.parametrize("module", ["riot_ops", "riot_ops.tasks"])
def test_import_loads_applications_runners_and_clients_lazily(module):
    found = {name for name in _loaded(module) if name.startswith((*LAZY, *LAZY_SUBMODULES))}
    assert not found, f"import {module} loads {', '.join(sorted(found))}"


def test_package_offers_every_public_name():
    code = (
        "from riot_ops import *; import riot_ops; missing = set(riot_ops.__all__) - set(globals()); assert not missing"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
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
