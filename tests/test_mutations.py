"""The faults that `make mutants` makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
mutations = pytest.importorskip("mutations")


#: A function whose result is removed.
NOTHING = "g()\n    return None"


def faults(text, kind=None):
    """The lines that each fault leaves in place of the original."""
    source = text.encode()
    found = []
    for mutant in mutations.mutants_of("a.py", source):
        if kind in (None, mutant.kind) and mutations.compiles(mutant, source):
            found.append(mutant.apply(source).decode())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b\n", ["x = (a <= b)\n", "x = (a >= b)\n"]),
        ("x = a == b\n", ["x = (a != b)\n"]),
        ("x = a is not b\n", ["x = (a is b)\n"]),
        ("x = a in b\n", ["x = (a not in b)\n"]),
        ("x = a + b\n", ["x = (a - b)\n"]),
        ("x = a << b\n", ["x = (a >> b)\n"]),
        ("x = a and b\n", ["x = (a or b)\n"]),
        ("x = not a\n", ["x = a\n"]),
        ("x = -a\n", ["x = a\n"]),
        ("x = 3\n", ["x = 4\n", "x = 2\n"]),
        ("x = 0.5\n", ["x = 1.5\n", "x = 0.25\n"]),
        ("x = True\n", ["x = False\n"]),
        ('x = "left"\n', ["x = 'right'\n"]),
        ("x = min(a, b)\n", ["x = max(a, b)\n"]),
        ("x = a.min()\n", ["x = a.max()\n"]),
        ("f(a)\n", ["pass\n"]),
        ("a += b\n", ["pass\n", "a -= b\n"]),
        ("a[b] = c\n", ["pass\n"]),
        ("x = a if b else c\n", ["x = a if (not b) else c\n"]),
        (
            "class A:\n    n: float = x\n    m: float = f()\n    def g(self): return self.n, self.m\n",
            [
                f"class A:\n    n: float = x\n    m: float = f()\n    def g(self): return {returned}\n"
                for returned in ("x, self.m", "None")
            ],
        ),
        ("def f(a=1): return a\n", ["def f(a=2): return a\n", "def f(a=0): return a\n", "def f(a=1): return None\n"]),
        (
            "def f():\n    g()\n    return a\n",
            [
                f"def f():\n    {body}\n"
                for body in ("return None\n    g()\n    return a", "pass\n    return a", NOTHING)
            ],
        ),
        ("if a:\n    raise b\n", ["if (not a):\n    raise b\n", "if a:\n    pass\n"]),
        ("x = (a <\n     b)\n", ["x = ((a <= b))\n", "x = ((a >= b))\n"]),
    ],
)
def test_each_kind_of_fault(text, expected):
    assert sorted(faults(text)) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        '"""One of 3."""\n',
        "x: Literal[3]\n",
        "def f(a: A[3]) -> B[3]: ...\n",
        "__all__ = [3]\n",
        'log.warning("a %d", a + 1)\n',
        "if TYPE_CHECKING:\n    x = 3\n",
        "assert a < 3\n",
        "def cases():\n    return a + 1\n",
        "def zip_cases():\n    return a + 1\n",
        'x = f"{a + 1}"\n',
        "x = 'other'\n",
    ],
)
def test_code_without_faults(text):
    assert faults(text) == []


def test_error_texts_have_no_faults():
    assert faults("raise E(3 + 4)\n") == ["pass\n"]


def test_fault_keeps_its_name_while_its_line_stays():
    one = mutations.mutants_of("a.py", b"x = a < b\n")
    assert len({m.key for m in one}) == 2
    assert [m.key for m in mutations.mutants_of("a.py", b"x = a < b\ny = 1\n")[:2]] == [m.key for m in one]
    assert {m.key for m in mutations.mutants_of("b.py", b"x = a < b\n")}.isdisjoint(m.key for m in one)


SOURCE = '''"""A module that counts."""

import functools

LEAST = 1


@functools.cache
def table():
    return [LEAST, 2, 3]


class Counter:
    most: int = 3

    def add(self, a, b=1):
        """
        >>> Counter().add(1, 2)
        3
        """
        if a > self.most:
            return None
        return a + b + table()[0] - 1


def forever(n):
    while n > 0:
        n -= 1
    return n


class Kernel:
    def __init__(self, python):
        self.python = python

    def __call__(self, *args):
        return self.python(*args)


def kernel(function):
    return Kernel(function)


@kernel
def inner(n):
    return n + 7


@kernel
def outer(n):
    return inner(n)


def apart():
    return 11


def unused():
    return 13
'''
TESTS = """
import time
import pytest
import subprocess
import sys
from riot_ops.a import Counter, forever, outer

def test_sum():
    assert Counter().add(2, 3) == 5
    assert Counter().add(2) == 3

def test_most():
    assert Counter().add(9) is None

def test_end():
    assert forever(3) == 0

def test_kernels():
    assert outer(1) == 8

def test_another_process():
    script = "from riot_ops.a import apart; print(apart())"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "11\\n"

def test_that_takes_too_long():
    until = time.process_time() + 100
    while time.process_time() < until:
        pass

def test_that_fails_anyway():
    assert False

@pytest.mark.slow
def test_left_out():
    assert False
"""


@pytest.mark.slow  # a tool of ours
def test_killed_survived_and_hanging(tmp_path):
    for name, text in (
        ("src/riot_ops/__init__.py", ""),
        ("src/riot_ops/a.py", SOURCE),
        ("tests/test_a.py", TESTS),
        ("pyproject.toml", '[tool.pytest.ini_options]\nmarkers = ["slow: left out"]\n'),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    expected = {
        ("Counter.add", "a > self.most", "(a >= self.most)"): "survived",  # no test is at the limit
        ("Counter.add", "a > self.most", "(a <= self.most)"): "killed",
        ("forever", "n > 0", "(n >= 0)"): "killed",
        ("forever", "n -= 1", "pass"): "timeout",
        ("inner", "7", "8"): "killed",  # called by another kernel alone
        ("apart", "11", "12"): "killed",  # called by another process alone
        ("unused", "13", "14"): "survived",
        # outside of functions: the file is imported again
        ("", "1", "2"): "killed",
        ("Counter", "3", "4"): "survived",
        ("Counter.add", "self.most", "3"): "survived",  # no test gives another
    }
    every = mutations.mutants_of("a.py", SOURCE.encode())
    given = [m for m in every if (m.function, m.before, m.after) in expected]
    job = {
        "file": "a.py",
        "tests": ["tests/test_a.py", "src/riot_ops/a.py"],
        "codes": [],
        "skipped": [],
        "servers": False,
        "spark": False,
        "notes": str(tmp_path / "notes.json"),
        "mutants": [vars(m) for m in given],
    }
    runner = Path(__file__).resolve().parent.parent / "tools" / "mutant_runner.py"
    done = subprocess.run(
        [sys.executable, str(runner), "--long", "0.5", "--least", "1"],
        input=json.dumps(job),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert reports[:2] == [
        {"failed": ["tests/test_a.py::test_that_fails_anyway"]},
        {"long": ["tests/test_a.py::test_that_takes_too_long"]},
    ]
    results = {r["key"]: r for r in reports[2:]}
    assert set(results) == {m.key for m in given}, done.stdout + done.stderr
    found = {(m.function, m.before, m.after): results[m.key]["status"] for m in given}
    assert found == expected
    by = {(m.function, m.before, m.after): results[m.key]["by"].partition("::")[2] for m in given}
    assert by["inner", "7", "8"] == "test_kernels"
    assert by["apart", "11", "12"] == "test_another_process"
    assert "no test reaches it" in {r["by"] for r in results.values()}
    assert all(("::" in r["by"]) == (r["status"] == "killed") for r in results.values()), "a test is named that noticed"
