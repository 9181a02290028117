"""Small faults to put into a source file, one at a time, to see whether a test notices.

Left out is what no test should pin: docstrings, annotations, texts of errors and of the log, ``__all__``, and the
``cases`` of tasks, which are inputs of tests themselves.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Mutant", "compiles", "mutants_of"]

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
#: Functions and methods by their opposites.
NAMES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all", "floor": "ceil"}
NAMES |= {b: a for a, b in NAMES.items()}
TEXTS = {"left": "right", "right": "left"}
#: Calls whose arguments are texts for people.
SAYS = {"debug", "info", "warning", "warn", "error", "exception", "did_you_mean", "excerpt"}
SKIPPED_FUNCTIONS = {"cases", "__repr__", "_repr_svg_", "_repr_html_"}


@dataclass(frozen=True)
class Mutant:
    """One fault: a part of the source, and its replacement."""

    file: str
    kind: str
    function: str
    line: int
    start: int
    end: int
    text: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """Names it as long as its line, its function and its file's path stay."""
        parts = (self.file, self.function, self.kind, str(self.line), str(self.start), self.before, self.after)
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    def apply(self, source: bytes) -> bytes:
        """Return the file with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Return all faults for a file, in the order of its lines; a few do not compile, see :func:`compiles`."""
    found = {(m.start, m.end, m.text): m for m in _Maker(file, source).run()}
    return sorted(found.values(), key=lambda m: (m.line, m.start))


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Whether the file with the fault is Python, and another than the original."""
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


class _Maker:
    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.tree = ast.parse(source)
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.where: list[str] = []
        #: By class around, its options: fields with a default.
        self.options: list[dict[str, ast.expr]] = []

    def run(self) -> Iterator[Mutant]:
        yield from self._visit(self.tree)

    # -- walking -----------------------------------------------------------------------------------

    def _visit(self, node: ast.AST) -> Iterator[Mutant]:
        if self._left_out(node):
            return
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named:
            self.where.append(node.name)  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef):
            self.options.append(_options(node))
        yield from self._mutate(node)
        for child in self._children(node):
            yield from self._visit(child)
        if isinstance(node, ast.ClassDef):
            self.options.pop()
        if named:
            self.where.pop()

    @staticmethod
    def _left_out(node: ast.AST) -> bool:
        if isinstance(node, ast.FunctionDef) and (node.name in SKIPPED_FUNCTIONS or node.name.endswith("_cases")):
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return True
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return name in SAYS or name.endswith("Error")
        return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert)

    @staticmethod
    def _children(node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            if isinstance(node, ast.Raise) and name == "exc":
                continue
            yield from (v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST))

    # -- faults ------------------------------------------------------------------------------------

    def _mutate(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            for i, op in enumerate(node.ops):
                for other in COMPARISONS.get(type(op), ()):
                    changed = copy.deepcopy(node)
                    changed.ops[i] = other()
                    yield self._replace("comparison", node, changed)
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            yield self._replace("arithmetic", node, changed)
        elif isinstance(node, ast.BoolOp):
            changed = copy.deepcopy(node)
            changed.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield self._replace("boolean", node, changed)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            yield self._replace("sign" if isinstance(node.op, ast.USub) else "not", node, node.operand)
        elif isinstance(node, ast.Constant):
            yield from self._constants(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            default = self.options[-1].get(node.attr) if self.options else None
            if default is not None and isinstance(node.value, ast.Name) and node.value.id == "self":
                yield self._replace("ignored", node, default)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            yield self._replace("opposite", node.func, ast.Name(NAMES[node.func.id], ast.Load()))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
            other = ast.Attribute(node.func.value, NAMES[node.func.attr], ast.Load())
            yield self._replace("opposite", node.func, other)
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.Constant):
            inverted = ast.UnaryOp(ast.Not(), node.test)
            yield self._replace("condition", node.test, inverted)
        elif isinstance(node, ast.stmt):
            yield from self._statement(node)

    def _constants(self, node: ast.Constant) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self._replace("constant", node, ast.Constant(not value))
        elif isinstance(value, int | float) and math.isfinite(value):
            others: tuple[float, ...] = (value + 1, value - 1) if isinstance(value, int) else (value + 1.0, value / 2)
            for other in others:
                if other != value:
                    yield self._replace("constant", node, ast.Constant(other))
        elif isinstance(value, str) and value in TEXTS:
            yield self._replace("constant", node, ast.Constant(TEXTS[value]))

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        gone = ast.Pass()
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call | ast.Await)
            and not self._left_out(node.value)
        ):
            yield self._replace("deleted", node, gone)
        elif isinstance(node, ast.AugAssign):
            yield self._replace("deleted", node, gone)
            if type(node.op) in ARITHMETIC:
                changed = copy.deepcopy(node)
                changed.op = ARITHMETIC[type(node.op)]()
                yield self._replace("arithmetic", node, changed)
        elif isinstance(node, ast.Raise | ast.Delete) or (
            isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript | ast.Attribute) for t in node.targets)
        ):
            yield self._replace("deleted", node, gone)
        elif isinstance(node, ast.Continue):
            yield self._replace("loop", node, ast.Break())
        elif isinstance(node, ast.Break):
            yield self._replace("loop", node, ast.Continue())
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield self._replace("returned", node, ast.Return(ast.Constant(None)))
        elif isinstance(node, ast.Return) and node.value is None:
            yield self._replace("deleted", node, gone)
        elif isinstance(node, ast.FunctionDef) and len(node.body) > 1:
            yield from self._early(node)

    def _early(self, node: ast.FunctionDef) -> Iterator[Mutant]:
        """Yield the mutant that returns before the first statement of a function."""
        first = next((s for s in node.body if not self._left_out(s)), None)
        if first is None or isinstance(first, ast.Return | ast.Pass):
            return
        if getattr(first, "decorator_list", None):
            return
        start = self._at(first.lineno, first.col_offset)
        line = self.lines[first.lineno - 1].decode().strip()
        text = "return None\n" + " " * first.col_offset
        yield Mutant(
            self.file, "early", ".".join(self.where), first.lineno, start, start, text, line, f"return None; {line}"
        )

    def _replace(self, kind: str, node: ast.AST, changed: ast.AST) -> Mutant:
        start = self._at(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        text = ast.unparse(ast.fix_missing_locations(changed))
        if isinstance(changed, ast.expr) and not isinstance(changed, ast.Name | ast.Attribute | ast.Constant):
            text = f"({text})"
        before = " ".join(self.source[start:end].decode().split())
        where = ".".join(self.where)
        return Mutant(self.file, kind, where, node.lineno, start, end, text, before, text)  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column


def _options(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Yield the fields of a class with a literal default."""
    fields = [f for f in node.body if isinstance(f, ast.AnnAssign) and "ClassVar" not in ast.unparse(f.annotation)]
    plain = [f for f in fields if f.value is not None and not any(isinstance(n, ast.Call) for n in ast.walk(f.value))]
    return {f.target.id: f.value for f in plain if isinstance(f.target, ast.Name) and f.value is not None}
