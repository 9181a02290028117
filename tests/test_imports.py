"""What may import what, and what ``import riot_ops`` may not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import riot_ops

PACKAGE = Path(riot_ops.__file__).parent

#: Layers from the bottom up: a module imports from its own layer and those below.
LAYERS = (
    ("errors",),
    ("paths", "schema", "secret", "kernels", "archives", "charts", "dead_letters", "parameters", "casting"),
    ("sketches", "task", "intake", "inputs", "source", "stream_source", "file_formats"),
    ("state", "models"),
    ("session", "tasks", "sink", "connectors"),
    (
        "graph",
        "dataflow",
        "descriptor",
        "diagram",
        "metrics",
        "processes",
        "probe",
        "probe_clocks",
        "probe_report",
        "selectivity",
    ),
    ("lowering", "engine"),
    ("plan",),
    ("streams", "reading"),
    ("runtime",),
    ("dataflows", "reuse", "testing"),
    ("embedded",),
    ("feed", "pictures", "progress", "run_folder"),
    ("job", "learning_job", "single_jobs", "warm"),
    ("bench",),
    ("cli", "cli_streams", "cli_warm", "__main__"),
)
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}

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
)


def _modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def _imports(path: Path):
    """What is imported when the module is: not inside functions, nor for type checkers alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "riot_ops":
                yield from (f"riot_ops.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""
        waiting += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LAYER, f"{part} has no place in the layers"
    for name in _imports(path):
        root, _, rest = name.partition(".")
        if root == "riot_ops":
            other = rest.partition(".")[0]
            if other in ("", "__version__"):
                assert LAYER[part] >= LAYER["dataflows"], f"{path.name} imports the whole package"
                continue
            assert other in LAYER, f"{path.name} imports {name}, which has no place in the layers"
            assert LAYER[other] <= LAYER[part], f"{path.name} imports {name}, which is above it"
        if root in {"pyspark", "pandas"}:
            assert part in {"bench"} or path.is_relative_to(PACKAGE / "runtime" / "spark"), (
                f"{path.name} imports {root} outside of runtime/spark"
            )
        assert root not in set(HEAVY) - {"pyspark", "pandas"} or part == "bench", f"{path.name} imports {root} at once"


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
        "    from riot_ops.runtime.spark import session\n"
        "    session()\n"
        "except ro.MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1", "Spark needs an optional dependency: pip install 'riot_ops[spark]'"]
