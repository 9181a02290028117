"""Record which statements of the product each test runs, so that a mutant needs only the tests that reach it.

Every statement inside a function gets a mark before it when its module is compiled: a byte in a file that all
processes share: the first half belongs to the process of the tests, the second to all processes that it starts,
including Python workers of Spark. Kernels are unchanged, since numba would not compile the marks: a call from Python
marks the kernel and those that it calls as a whole.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.machinery
import mmap
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Environment variable with the path of the shared file, for started processes.
VARIABLE = "MUTANT_REACH"
#: The ``sitecustomize`` module of started processes.
FOLLOWER = "import mutant_reach\n\nmutant_reach.follow()\n"
MARK, KERNEL = "_reach_", "_reach_kernel_"


class Reach:
    """Marks of a source tree, set as statements are reached."""

    def __init__(self, product: Path, file: Path, *, own: bool) -> None:
        self._bases: dict[str, int] = {}
        self._size = 0
        for path in sorted(product.rglob("*.py")):
            self._bases[os.path.realpath(path)] = self._size
            self._size += path.read_bytes().count(b"\n") + 2
        if own:
            file.write_bytes(bytes(2 * self._size))
        with open(file, "r+b") as shared:
            self._map = mmap.mmap(shared.fileno(), 2 * self._size)
        start = 0 if own else self._size
        self._marks = memoryview(self._map)[start : start + self._size]
        self._kernels: dict[int, int] = {}
        self._install()

    def place(self, path: str, line: int) -> int:
        """Return the mark of a line."""
        return self._bases[os.path.realpath(path)] + line

    def lines(self, path: str) -> int:
        """Return all marks of a file, in either half."""
        place, size = self.place(path, 0), Path(path).read_bytes().count(b"\n") + 2
        marks = (1 << 8 * size) - 1
        return marks << 8 * place | marks << 8 * (self._size + place)

    def take(self) -> int:
        """Return and clear the marks set since the last call, as a set of bits."""
        found = int.from_bytes(self._map[:], "little")
        self._map[:] = bytes(len(self._map))
        return found

    def here(self, found: int, place: int) -> bool:
        """Whether the process of the tests reached a place."""
        return bool(found >> (8 * place) & 1)

    def tests(self, place: int | None, reached: dict[str, int]) -> tuple[list[str], list[str]]:
        """Return the tests that reach a place in their own process, and those in another one."""
        if place is None:
            return [], []
        here = [test for test, found in reached.items() if self.here(found, place)]
        return here, [test for test, found in reached.items() if self.here(found, self._size + place)]

    def _install(self) -> None:
        setattr(builtins, MARK, self._marks)
        setattr(builtins, KERNEL, self._decorator)
        loader = importlib.machinery.SourceFileLoader
        usual = loader.source_to_code

        def source_to_code(this: Any, data: Any, path: Any, **options: Any) -> types.CodeType:
            base = self._bases.get(os.path.realpath(path))
            if base is not None:
                data = ast.parse(data)
                _mark(data, base, inside=False)
                ast.fix_missing_locations(data)
            return usual(this, data, path, **options)

        loader.source_to_code = source_to_code  # type: ignore[assignment, method-assign]

    def _decorator(self, place: int) -> Callable[[Any], Any]:
        def note(kernel: Any) -> Any:
            self._watch(type(kernel))
            self._kernels[id(kernel)] = place
            return kernel

        return note

    @functools.cache  # noqa: B019 (a single instance)
    def _watch(self, kind: type) -> None:
        usual: Any = kind.__call__
        called: dict[int, list[int]] = {}

        def call(kernel: Any, *args: Any, **options: Any) -> Any:
            if id(kernel) not in called:
                called[id(kernel)] = list(self._of(kernel))
            for place in called[id(kernel)]:
                self._marks[place] = 1
            return usual(kernel, *args, **options)

        kind.__call__ = call  # type: ignore[method-assign, assignment]

    def _of(self, kernel: Any) -> Iterator[int]:
        yield self._kernels[id(kernel)]
        for name in kernel.python.__code__.co_names:
            value = kernel.python.__globals__.get(name)
            if id(value) in self._kernels:
                yield from self._of(value)


def start(product: Path) -> Reach:
    """Mark all modules that this process and the processes started by it import."""
    folder = Path("reach").resolve()
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FOLLOWER, encoding="utf-8")
    os.environ[VARIABLE] = str(folder / "marks")
    places = [os.environ.get("PYTHONPATH", ""), str(folder), str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    return Reach(product, folder / "marks", own=True)


def follow() -> None:
    """Mark reached statements in a started process, if its parent does."""
    given = os.environ.get(VARIABLE)
    if given and Path(given).exists():
        Reach(Path(given).parent.parent / "src/riot_ops", Path(given), own=False)


# -- statements ------------------------------------------------------------------------------------


def statement_of(source: bytes, start: int, end: int) -> int | None:
    """Return the line of the function's statement, or of the kernel, that spans this part of the source; else None."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def spans(node: Any) -> bool:
        first = starts[node.lineno - 1] + node.col_offset
        return first <= start and end <= starts[node.end_lineno - 1] + node.end_col_offset

    def find(node: ast.AST, found: int | None, inside: bool) -> int | None:
        if _is_kernel(node):
            return node.lineno  # type: ignore[attr-defined, no-any-return]
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for _, block in _blocks(node):
            for child in block:
                if isinstance(child, ast.stmt) and not spans(child):
                    continue
                here = child.lineno if inside and isinstance(child, ast.stmt) else found
                deeper = find(child, here, inside)
                if deeper is not None:
                    return deeper
        return found

    return find(ast.parse(source), None, inside=False)


def _mark(node: ast.AST, base: int, *, inside: bool) -> None:
    if _is_kernel(node):
        call = ast.Call(ast.Name(KERNEL, ast.Load()), [ast.Constant(base + node.lineno)], [])  # type: ignore[attr-defined]
        node.decorator_list.insert(0, ast.copy_location(call, node.decorator_list[0]))  # type: ignore[attr-defined]
        return
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for name, block in _blocks(node):
        for child in block:
            _mark(child, base, inside=inside)
        if inside and isinstance(block[0], ast.stmt):
            setattr(node, name, [part for child in block for part in _marked(child, base)])


def _marked(statement: ast.AST, base: int) -> Iterator[ast.AST]:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):  # such as a docstring
        line = statement.lineno  # type: ignore[attr-defined]
        target = ast.Subscript(ast.Name(MARK, ast.Load()), ast.Constant(base + line), ast.Store())
        yield ast.copy_location(ast.Assign([target], ast.Constant(1)), statement)
    yield statement


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of statements of a node, and its branches with such lists."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt | ast.ExceptHandler | ast.match_case):
            yield name, value


def _is_kernel(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(isinstance(d, ast.Name) and d.id == "kernel" for d in called)
