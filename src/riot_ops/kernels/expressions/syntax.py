"""Read the text of an expression: Python's parser, a list of what is allowed, and limits; nothing is evaluated.

The result is a tree of :class:`Node`, in which chained comparisons, ``not in`` and ``is not None`` are expressed by
simpler operations, and operations on number constants are carried out.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, did_you_mean, excerpt
from riot_ops.core.operator import Requirement, both_requirements
from riot_ops.core.parameters import duration
from riot_ops.kernels.stats.local_calendar import UNITS as CALENDAR_UNITS
from riot_ops.kernels.stats.local_calendar import check_zone

__all__ = ["FUNCTIONS", "MAX_DEPTH", "MAX_EXPONENT", "MAX_NODES", "MAX_TEXT", "Node", "parse", "requirements"]

#: Limits of an expression: its characters, the parts of its tree, how deeply they are nested, and a constant exponent.
MAX_TEXT, MAX_NODES, MAX_DEPTH, MAX_EXPONENT = 10_000, 1_000, 64, 1_024
#: Largest number of characters of a regular expression.
MAX_PATTERN = 1_000
#: Most digits to which a number is rounded.
MAX_DIGITS = 15

#: By function, the smallest and the largest number of arguments; those of ``field``, ``time`` and ``duration`` are
#: constants.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("abs", "floor", "ceil", "sqrt", "log", "exp", "sin", "cos", "is_nan"), (1, 1)),
    "round": (1, 2),
    **dict.fromkeys(("min", "max", "coalesce"), (2, MAX_NODES)),
    **dict.fromkeys(("lower", "upper", "strip", "len"), (1, 1)),
    **dict.fromkeys(("startswith", "endswith", "contains", "matches"), (2, 2)),
    **dict.fromkeys(("hour", "minute", "day", "weekday", "month", "year", "time_of_day"), (1, 1)),
    "floor_time": (2, 3),
    **dict.fromkeys(("field", "time", "duration"), (1, 1)),
}
#: Functions whose last argument is a constant text.
_SEARCHES = ("startswith", "endswith", "contains", "matches")
_TEXT_FUNCTIONS = ("lower", "upper", "strip", "len", *_SEARCHES)
_TIME_FUNCTIONS = ("hour", "minute", "day", "weekday", "month", "year")
_NUMBER_FUNCTIONS = ("floor", "ceil", "sqrt", "log", "exp", "sin", "cos", "is_nan", "round")

_UNIT_NAMES = ", ".join(f"'{unit}'" for unit in CALENDAR_UNITS)
_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ALLOWED = "allowed are and, or, not, comparisons, in, is None, + - * / // % **, a if b else c, fields and functions"


class Node(NamedTuple):
    """A part of an expression.

    Parameters
    ----------
    op : str
        What it computes: ``field``, ``const`` and ``floor_time`` with a value; ``and``, ``or``, ``not``, ``if``
        (condition, then, else), ``in`` (with its constants as value), ``is_null``, a comparison, an arithmetic
        operator, ``neg``, or a function.
    args : tuple of Node
    value : object
        Name of a field, a constant, the constants of ``in``, or the intervals of ``floor_time``.
    text : str
        Its source, for messages.
    at : int
        Where the source begins, in characters from 1.
    """

    op: str
    args: tuple[Node, ...]
    value: Any
    text: str
    at: int

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()


def parse(text: str) -> Node:
    """Parse an expression.

    Raises
    ------
    ConfigError
        Where the text is not an expression, or has something that is not allowed: the place, the offending text and
        what is allowed.

    Examples
    --------
    >>> node = parse("value > 3 and kind == 'temp'")
    >>> node.op, [arg.op for arg in node.args], node.args[0].args[0].value
    ('and', ['>', '=='], 'value')
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text.lstrip(" \t\r\n")
        self.begin = len(text) - len(self.text)  # as in the text of a triple-quoted string
        self.nodes = 0

    def parse(self) -> Node:
        text = self.text
        if not text.strip():
            raise ConfigError("the expression is empty; write a condition such as 'value > 3'")
        if len(text) > MAX_TEXT:
            raise ConfigError(f"the expression has {len(text):,} characters, at most {MAX_TEXT:,} are allowed")
        try:
            self._encoded = [line.encode() for line in text.split("\n")]
        except UnicodeEncodeError:
            raise ConfigError(f"the expression {excerpt(ascii(text), 60)} is not Unicode text") from None
        try:
            with warnings.catch_warnings():  # "\d" in a regular expression
                warnings.simplefilter("ignore")
                tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            before = sum(len(line) + 1 for line in text.split("\n")[: (error.lineno or 1) - 1])
            at = self.begin + before + (error.offset or len(text) - before + 1)
            why = f"{error.msg} at character {at}"
            raise ConfigError(f"{excerpt(text, 60)!r} is not an expression: {why}; {_ALLOWED}") from None
        except (MemoryError, RecursionError):
            raise ConfigError(f"the expression is nested too deeply, at most {MAX_DEPTH} levels are allowed") from None
        except ValueError as error:
            raise ConfigError(f"{excerpt(ascii(text), 60)} is not an expression: {error}") from None
        return self._node(tree.body, 1)

    # -- places and messages -----------------------------------------------------------------------

    def _source(self, node: Any) -> str:
        """Return the source of a node: a name is not normalised as Python's parser does ("µ" stays a micro sign)."""
        lines = self._encoded[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def _at(self, node: Any) -> int:
        before = self.begin + sum(len(line.decode()) + 1 for line in self._encoded[: node.lineno - 1])
        return before + len(self._encoded[node.lineno - 1][: node.col_offset].decode()) + 1

    def _refuse(self, node: Any, why: str) -> NoReturn:
        raise ConfigError(f"{excerpt(self._source(node), 60)!r} at character {self._at(node)}: {why}")

    def _made(self, origin: Any, op: str, args: tuple[Node, ...] = (), value: Any = None) -> Node:
        return Node(op, args, value, self._source(origin), self._at(origin))

    # -- the tree ----------------------------------------------------------------------------------

    def _node(self, node: ast.expr, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ConfigError(f"the expression has more than {MAX_NODES:,} parts")
        if depth > MAX_DEPTH:
            self._refuse(node, f"nested too deeply, at most {MAX_DEPTH} levels are allowed")
        read = self.readers.get(type(node))
        if read is None:
            self._refuse(node, f"{type(node).__name__} is not allowed; {_ALLOWED}")
        return read(self, node, depth + 1)

    def _name(self, node: ast.Name, depth: int) -> Node:
        return self._made(node, "field", value=self._source(node))

    def _literal(self, node: ast.Constant, depth: int) -> Node:
        return self._constant(node, node.value)

    def _constant(self, node: Any, value: Any) -> Node:
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
            self._refuse(node, "an integer has at most 64 bits; write 1e30 for a large number")
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(node, "the number is not finite")
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                self._refuse(node, "the text is not Unicode text")
        elif not isinstance(value, bool | int | float | None):
            self._refuse(node, "constants are numbers, texts, True, False and None")
        return self._made(node, "const", value=value)

    def _connective(self, node: ast.BoolOp, depth: int) -> Node:
        op = "and" if isinstance(node.op, ast.And) else "or"
        return self._made(node, op, tuple(self._node(one, depth) for one in node.values))

    def _unary(self, node: ast.UnaryOp, depth: int) -> Node:
        value: Any = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and _is_number(value):
            return self._constant(node, -value)  # -2**63 has no positive counterpart
        operand = self._node(node.operand, depth)
        if isinstance(node.op, ast.Not):
            return self._made(node, "not", (operand,))
        if isinstance(node.op, ast.USub):
            if operand.op == "const" and _is_number(operand.value):
                return self._constant(node, -operand.value)
            return self._made(node, "neg", (operand,))
        self._refuse(node, f"{type(node.op).__name__} is not allowed; {_ALLOWED}")

    def _binary(self, node: ast.BinOp, depth: int) -> Node:
        if type(node.op) not in _BINARY:
            self._refuse(node, f"{type(node.op).__name__} is not allowed; {_ALLOWED}")
        op, function = _BINARY[type(node.op)]
        left, right = self._node(node.left, depth), self._node(node.right, depth)
        if op == "**" and right.op == "const" and _is_number(right.value) and abs(right.value) > MAX_EXPONENT:
            self._refuse(node, f"a constant exponent is at most {MAX_EXPONENT:,} in size, got {right.value}")
        if left.op == right.op == "const" and _is_number(left.value) and _is_number(right.value):
            try:
                value = function(left.value, right.value)
            except ArithmeticError as error:
                self._refuse(node, f"the constant has no value: {error}")
            if isinstance(value, complex):
                self._refuse(node, "the constant is not a real number")
            return self._constant(node, value)
        return self._made(node, op, (left, right))

    def _compare(self, node: ast.Compare, depth: int) -> Node:
        sides = [node.left, *node.comparators]
        parts = [
            self._comparison(node, op, left, right, depth)
            for op, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else self._made(node, "and", tuple(parts))

    def _comparison(self, node: ast.Compare, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> Node:
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                self._refuse(node, "`is` only compares with None; write == or !=")
            found = self._made(node, "is_null", (self._node(left, depth),))
            return self._made(node, "not", (found,)) if isinstance(op, ast.IsNot) else found
        if isinstance(op, ast.In | ast.NotIn):
            found = self._membership(node, left, right, depth)
            return self._made(node, "not", (found,)) if isinstance(op, ast.NotIn) else found
        args = self._node(left, depth), self._node(right, depth)
        for side, other in (args, args[::-1]):
            if side.op == "const" and side.value is None:
                self._refuse(node, f"a comparison with None is never true; write {other.text} is None")
        return self._made(node, _COMPARISONS[type(op)], args)

    def _membership(self, node: ast.Compare, left: ast.expr, right: ast.expr, depth: int) -> Node:
        if not isinstance(right, ast.Tuple | ast.List):
            return self._search(node, "contains", (self._node(right, depth), self._node(left, depth)), "in")
        constants = tuple(self._node(one, depth) for one in right.elts)
        for element, constant in zip(right.elts, constants, strict=True):
            if constant.op != "const" or constant.value is None:
                self._refuse(element, "the values of `in` are constants other than None")
        if not constants:
            self._refuse(node, "`in` needs at least one constant")
        return self._made(node, "in", (self._node(left, depth), *constants))

    def _choice(self, node: ast.IfExp, depth: int) -> Node:
        return self._made(node, "if", tuple(self._node(n, depth) for n in (node.test, node.body, node.orelse)))

    def _call(self, node: ast.Call, depth: int) -> Node:
        if not isinstance(node.func, ast.Name):
            self._refuse(node, f"only functions can be called, as in lower(text); functions are {_names()}")
        name = node.func.id
        if name not in FUNCTIONS:
            hint = did_you_mean(name, FUNCTIONS)
            self._refuse(node, f"there is no function {name!r}{hint or f'; functions are {_names()}'}")
        least, most = FUNCTIONS[name]
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            self._refuse(node, f"{name} takes arguments by position alone")
        if not least <= len(node.args) <= most:
            wanted = f"{least}" if least == most else f"at least {least}" if most == MAX_NODES else f"{least} or {most}"
            self._refuse(node, f"{name} takes {wanted} argument{'s' * (most > 1)}, got {len(node.args)}")
        args = tuple(self._node(arg, depth) for arg in node.args)
        if name in ("field", "time", "duration"):
            return self._named_constant(node, name, args[0])
        if name in _SEARCHES:
            return self._search(node, name, args, name)
        if name == "floor_time":
            return self._made(node, name, args[:1], self._interval(node, *args[1:]))
        digits = args[1].value if name == "round" and len(args) == 2 else 0
        if type(digits) is not int or abs(digits) > MAX_DIGITS:
            self._refuse(node, f"round takes a constant number of digits, at most {MAX_DIGITS}")
        return self._made(node, name, args)

    def _attribute(self, node: ast.Attribute, depth: int) -> Node:
        name = self._source(node)
        self._refuse(node, f"attributes are not allowed; for a field of this name write field({name!r})")

    def _named_constant(self, node: ast.Call, name: str, arg: Node) -> Node:
        """Return the field, time or duration that a constant text names."""
        text = arg.value if arg.op == "const" else None
        if not isinstance(text, str) or not text:
            example = {"field": "field('a.b')", "time": "time('2024-05-01T12:00Z')", "duration": "duration('1h')"}[name]
            self._refuse(node, f"{name} takes a constant text, as in {example}")
        if name == "field":
            return self._made(node, "field", value=text)
        if name == "duration":
            try:
                return self._made(node, "const", value=duration(text))
            except ConfigError as error:
                self._refuse(node, str(error))
        return self._made(node, "const", value=self._time(node, text))

    def _interval(self, node: ast.Call, arg: Node, zone: Node | None = None) -> timedelta | tuple[str, str]:
        """Return the intervals of ``floor_time``: their length, or a unit of the calendar and its time zone."""
        if zone is not None and not (zone.op == "const" and isinstance(zone.value, str)):
            example = "floor_time(at, 'day', 'Europe/Berlin')"
            self._refuse(node, f"the time zone of floor_time is a constant text, as in {example}")
        if arg.op == "const" and arg.value in CALENDAR_UNITS:
            tz = "UTC" if zone is None else zone.value
            try:
                check_zone("the time zone", tz)
            except ConfigError as error:
                self._refuse(node, str(error))
            return arg.value, tz
        if zone is not None:
            self._refuse(node, f"a time zone is for units of the calendar: {', '.join(CALENDAR_UNITS)}")
        try:
            length = duration(arg.value) if arg.op == "const" and isinstance(arg.value, str) else timedelta(0)
        except ConfigError as error:
            self._refuse(node, str(error))
        if length <= timedelta(0):
            example = "floor_time(at, '1min')"
            self._refuse(node, f"floor_time takes a constant duration longer than 0, as in {example}, or {_UNIT_NAMES}")
        return length

    def _time(self, node: ast.Call, text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self._refuse(node, "time takes ISO 8601, as in time('2024-05-01T12:00Z'), in UTC unless it has a zone")

    def _search(self, node: Any, name: str, args: tuple[Node, ...], word: str) -> Node:
        """Return a search for a constant text, or for a regular expression."""
        wanted = args[1]
        if wanted.op != "const" or not isinstance(wanted.value, str):
            allowed = "the values of `in` are constants, in parentheses" if word == "in" else "it is the last argument"
            self._refuse(node, f"the text to search for must be a constant; {allowed}")
        if name == "matches":
            if len(wanted.value) > MAX_PATTERN:
                self._refuse(node, f"a regular expression has at most {MAX_PATTERN:,} characters")
            try:
                pc.match_substring_regex(pa.array([""]), wanted.value)
            except pa.ArrowInvalid as error:
                self._refuse(node, f"{error}; the syntax is that of RE2")
        return self._made(node, name, args)

    readers: ClassVar[dict[type[ast.expr], Callable[[Any, Any, int], Node]]] = {
        ast.Name: _name,
        ast.Constant: _literal,
        ast.BoolOp: _connective,
        ast.UnaryOp: _unary,
        ast.BinOp: _binary,
        ast.Compare: _compare,
        ast.IfExp: _choice,
        ast.Call: _call,
        ast.Attribute: _attribute,
    }


def _names() -> str:
    return ", ".join(sorted(FUNCTIONS))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- what the fields must be -----------------------------------------------------------------------


def requirements(node: Node) -> dict[str, Requirement]:
    """Return the fields that an expression reads, in order, and what can be said of their types without a schema.

    >>> requirements(parse("value * 2 > limit and contains(name, 'x') and flag"))
    {'value': 'exact number', 'limit': 'exact number', 'name': 'text', 'flag': 'any'}
    """
    found: dict[str, Requirement] = {}
    _collect(node, "any", found)
    return found


def _collect(node: Node, wanted: Requirement, found: dict[str, Requirement]) -> None:
    op = node.op
    if op == "field":
        found[node.value] = both_requirements(found.get(node.value), wanted)
        return
    each: Requirement = "any"
    if op in ("*", "//", "%", "**", *_NUMBER_FUNCTIONS):
        each = "exact number"
    elif op in ("+", "-", "/", "neg", "abs"):  # also of times and durations
        known = [*map(_class, node.args), None if op == "/" else wanted]
        each = "exact number" if "exact number" in known else "any"
    elif op in _TEXT_FUNCTIONS:
        each = "text"
    elif op in _COMPARISONS.values() or op in ("in", "min", "max", "coalesce"):
        known = [*map(_class, node.args), wanted if op in ("min", "max", "coalesce") else None]
        each = next((one for one in known if one is not None and one != "any"), "any")
    for i, arg in enumerate(node.args):
        passed: Requirement = each
        if op == "if":
            passed = "any" if i == 0 else wanted
        _collect(arg, passed, found)


def _class(node: Node) -> Requirement | None:
    """Return what the values of a node can only be."""
    op, value = node.op, node.value
    if op == "const":
        if isinstance(value, str):
            return "text"
        return "exact number" if _is_number(value) else None
    if op in ("*", "//", "%", "**", "len", *_TIME_FUNCTIONS) or (op in _NUMBER_FUNCTIONS and op != "is_nan"):
        return "exact number"
    if op in ("lower", "upper", "strip"):
        return "text"
    if op in ("+", "-", "neg", "abs", "min", "max", "coalesce"):
        classes = [_class(arg) for arg in node.args]
        return "exact number" if "exact number" in classes else next((c for c in classes if c is not None), None)
    return None
