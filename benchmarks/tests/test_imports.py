"""Allowed imports between the packages of riot_bench."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest
import riot_bench

PACKAGE = Path(riot_bench.__file__).parent

#: Packages from the ground up: a module may import its own level and those below.
LEVELS = (("__init__",), ("baselines", "harness"), ("suites",), ("report",), ("cli",))
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}

MODULES = {
    ".".join(("riot_bench", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def _imports(module: str) -> set[str]:
    """Return the modules of riot_bench that a module imports, also within functions and for type checkers."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module or "")
    return {name for name in found if name in MODULES and name != module}


def _package(module: str) -> str:
    parts = module.split(".")[1:]
    return parts[0] if parts else "__init__"


def test_imports_have_no_cycle() -> None:
    graph = graphlib.TopologicalSorter({module: _imports(module) for module in MODULES})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module: str) -> None:
    package = _package(module)
    assert package in LEVEL, f"{package} has no level"
    for name in _imports(module):
        other = _package(name)
        assert LEVEL[other] <= LEVEL[package], f"{module} imports {name}, which is above it"
