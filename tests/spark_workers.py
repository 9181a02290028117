"""A scheduler of pytest-xdist that gives all tests that use the Spark session to few workers."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["SparkWorkers", "group"]

ROOT = Path(__file__).resolve().parent.parent
#: Tests on Spark are one group by folder, since a JVM costs as much as thirty tests before its first query has run; two groups, since one
#: would be at work when all others are done.
SPARK_GROUPS = {"tests/spark/": "spark: the package", "": "spark: its users"}


@functools.cache
def functions(file: str) -> dict[str, tuple[frozenset[str], bool]]:
    """The parameters of each function of a file, and whether it is a fixture that applies to all tests."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return {
        node.name: (
            frozenset(a.arg for a in node.args.args),
            any("autouse=True" in ast.unparse(decorator) for decorator in node.decorator_list),
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }


@functools.cache
def takes_spark(file: str) -> tuple[frozenset[str], bool]:
    """The functions that take the session, also through fixtures; and whether all tests of the file do."""
    folders = [folder for folder in (ROOT / file).parents if folder == ROOT or ROOT in folder.parents]
    known: dict[str, tuple[frozenset[str], bool]] = {}
    for path in [*(folder / "conftest.py" for folder in reversed(folders)), ROOT / file]:
        if path.is_file():
            known |= functions(str(path.relative_to(ROOT)))
    found, more = frozenset({"spark"}), True
    while more:
        takers = {name for name, (parameters, _) in known.items() if parameters & found}
        more = not takers <= found
        found |= takers
    return found, any(known[name][1] for name in found if name in known)


def group(nodeid: str) -> str:
    """The group of a test: those that take the Spark session by folder, others by file."""
    file, _, name = nodeid.partition("::")
    if file.endswith(".py"):
        found, every = takes_spark(file)
        if name.partition("[")[0].rpartition("::")[2] in found or (every and "::test_" in nodeid):
            return next(named for folder, named in SPARK_GROUPS.items() if file.startswith(folder))
    return file


class SparkWorkers(LoadFileScheduling):
    """Workers of tests on Spark begin with them; each other file is dealt to the next worker that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for name in SPARK_GROUPS.values():
            if name in self.workqueue:
                self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)
