"""Which tests share a worker."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import pytest_xdist_make_scheduler
from tests.one_spark import OneSpark, group

ROOT = Path(__file__).resolve().parent.parent


def takes_spark(path):
    """Whether a test of a file has the session among its parameters, as its syntax tree says."""
    text = path.read_text(encoding="utf-8")
    functions = (n for n in ast.walk(ast.parse(text if "spark" in text else "")) if isinstance(n, ast.FunctionDef))
    return any(a.arg == "spark" and f.name.startswith("test_") for f in functions for a in f.args.args)


def test_all_that_take_the_session_are_together_and_others_by_file():
    for path in ROOT.glob("tests/**/test_*.py"):
        name = str(path.relative_to(ROOT))
        if takes_spark(path):
            assert group(name) == "spark", name
    assert group("tests/contract/test_spark_parity.py") == "spark", "a fixture of its own takes it"
    assert group("tests/test_one_spark.py") == "tests/test_one_spark.py"
    assert group("README.md") == "README.md"


@pytest.mark.parametrize(
    ("dist", "marks", "ours"),
    [("loadfile", "not slow", True), ("loadfile", "", False), ("load", "not slow", False)],
)
def test_long_runs_and_other_ways_to_share_are_as_they_were(dist, marks, ours):
    config = SimpleNamespace(getvalue={"dist": dist, "markexpr": marks, "tx": ["popen"] * 2}.get)
    found = pytest_xdist_make_scheduler(config, None)
    assert (found is not None) is ours
    if ours:
        assert isinstance(found, OneSpark)
        assert found._split_scope("tests/spark/test_frames.py::test_order") == "spark"
        assert found._split_scope("tests/runtime/test_engine.py::test_x") == "tests/runtime/test_engine.py"
