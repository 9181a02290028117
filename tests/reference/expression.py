"""Expressions by Python itself: its tree, its numbers and its texts, one record at a time; null is None."""

from __future__ import annotations

import ast
import math
import operator
import re
from datetime import UTC, datetime, timedelta

__all__ = ["Bad", "value_of"]

COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
TEXTS = {
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "len": len,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
}
CLOCK = ("hour", "minute", "day", "month", "year")
REAL = ("sqrt", "log", "exp", "sin", "cos")
UNITS = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds", "us": "microseconds"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bad(Exception):
    """The record has no result."""


def value_of(text, record, types):
    """The value of an expression for a record; :class:`Bad` with the reason. ``types`` says int, uint, float, …"""
    return Reference(record, types).value(ast.parse(text, mode="eval").body)


class Reference:
    def __init__(self, record, types):
        self.record = record
        self.types = types

    # -- types: what a result is stored in does not depend on the record ---------------------------

    def type(self, node):
        if isinstance(node, ast.Name):
            return self.types[node.id]
        if isinstance(node, ast.Constant):
            return "uint" if type(node.value) is int and node.value >= 2**63 else type(node.value).__name__
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return "int" if self.type(node.operand) == "uint" else self.type(node.operand)
        if isinstance(node, ast.IfExp):
            return self.common([node.body, node.orelse])
        if isinstance(node, ast.BinOp):
            types = {self.type(node.left), self.type(node.right)}
            whole = isinstance(node.right, ast.Constant)  # a negative constant is an operation
            if "float" in types or isinstance(node.op, ast.Div) or (isinstance(node.op, ast.Pow) and not whole):
                return "float"
            unsigned = "uint" in types and self.positive(node.left) and self.positive(node.right)
            return "uint" if unsigned and not isinstance(node.op, ast.Sub) else "int"
        if isinstance(node, ast.Call):
            name = node.func.id
            if name in ("min", "max", "coalesce"):
                return self.common(node.args)
            if name in ("abs", "round", "floor", "ceil"):
                return self.type(node.args[0])
            return {"len": "int", "lower": "str", "upper": "str", "strip": "str"}.get(
                name, "int" if name in (*CLOCK, "weekday") else "float" if name in REAL else "bool"
            )
        return "bool"

    def common(self, nodes):
        types = {self.type(node) for node in nodes} - {"NoneType"}
        if types <= {"int", "uint"} and types:
            return "uint" if "uint" in types and all(self.positive(node) for node in nodes) else "int"
        return "float" if types <= {"int", "uint", "float"} else types.pop()

    def positive(self, node):
        """Whether the type of an integer says that it is not negative."""
        if self.type(node) == "uint" or (isinstance(node, ast.Constant) and (node.value or 0) >= 0):
            return True
        if isinstance(node, ast.Call):
            if node.func.id in ("round", "floor", "ceil", "min", "max", "coalesce"):
                return all(self.positive(arg) for arg in node.args)
            return node.func.id in ("abs", "len", "weekday", *CLOCK)
        if isinstance(node, ast.IfExp):
            return self.positive(node.body) and self.positive(node.orelse)
        if isinstance(node, ast.BinOp):
            grows = isinstance(node.op, ast.Add | ast.Mult | ast.Pow)
            return grows and self.positive(node.left) and self.positive(node.right)
        return False

    def stored(self, value, node):
        """The value as its type holds it."""
        if value is None or isinstance(value, bool):
            return value
        dtype = self.type(node)
        if dtype == "float":
            return float(value)
        if dtype in ("int", "uint"):
            low, high = (0, 2**64) if dtype == "uint" else (-(2**63), 2**63)
            if not low <= value < high:
                raise Bad("out_of_range")
        return value

    # -- values ------------------------------------------------------------------------------------

    def value(self, node):
        return getattr(self, f"of_{type(node).__name__}")(node)

    def of_Name(self, node):  # noqa: N802
        return self.record[node.id]

    def of_Constant(self, node):  # noqa: N802
        return node.value

    def of_BoolOp(self, node):  # noqa: N802
        decides = isinstance(node.op, ast.Or)
        found = [None]
        for one in node.values:
            found.append(self.value(one))
            if found[-1] is decides:
                return decides
        return None if None in found[1:] else not decides

    def of_UnaryOp(self, node):  # noqa: N802
        value = self.value(node.operand)
        if value is None:
            return None
        return (not value) if isinstance(node.op, ast.Not) else self.stored(-value, node)

    def of_IfExp(self, node):  # noqa: N802
        return self.stored(self.value(node.body if self.value(node.test) is True else node.orelse), node)

    def of_Compare(self, node):  # noqa: N802
        sides = [node.left, *node.comparators]
        found = True
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            one = self.compared(op, left, right)
            if one is False:
                return False
            found = found if one else None
        return found

    def compared(self, op, left, right):
        if isinstance(op, ast.Is | ast.IsNot):
            return (self.value(left) is None) is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            if isinstance(right, ast.Tuple):
                known, values = self.value(left), [self.value(one) for one in right.elts]
                found = None if known is None else any(known == value for value in values)
            else:
                text = self.value(right)
                found = None if text is None else self.value(left) in text
            return found if found is None else found is isinstance(op, ast.In)
        one, other = self.value(left), self.value(right)
        return None if one is None or other is None else COMPARE[type(op)](one, other)

    def of_BinOp(self, node):  # noqa: N802
        left, right = self.value(node.left), self.value(node.right)
        if left is None or right is None:
            return None
        if self.type(node) == "float" and not (isinstance(node.op, ast.Div) and type(left) is type(right) is int):
            left, right = float(left), float(right)
        try:
            found = ARITHMETIC[type(node.op)](left, right)
        except ZeroDivisionError:
            raise Bad("division_by_zero") from None
        except OverflowError:
            raise Bad("out_of_range") from None
        return self.checked(found, node)

    def checked(self, found, node):
        if isinstance(found, complex):
            raise Bad("out_of_range")
        return self.stored(found, node)

    def of_Call(self, node):  # noqa: N802
        name = node.func.id
        if name == "time":
            moment = datetime.fromisoformat(node.args[0].value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if name == "coalesce":
            for arg in node.args:
                if (value := self.value(arg)) is not None:
                    return self.stored(value, node)
            return None
        args = [self.value(arg) for arg in node.args]
        if name in ("min", "max"):
            args = [self.stored(arg, node) for arg in args]  # each is brought to the type of the result
        if None in args:
            return None
        if name in TEXTS:
            return TEXTS[name](*args)
        if name in CLOCK:
            return getattr(args[0], name)
        if name == "weekday":
            return args[0].weekday()
        if name == "floor_time":
            number, unit = re.fullmatch(r"(\d+)(\w+)", args[1]).groups()
            every = timedelta(**{UNITS[unit]: int(number)})
            try:
                return EPOCH + (args[0] - EPOCH) // every * every
            except OverflowError:
                raise Bad("out_of_range") from None
        if name == "is_nan":
            return args[0] != args[0]
        if name in ("min", "max"):
            return math.nan if any(map(math.isnan, args)) else {"min": min, "max": max}[name](args)
        return self.number(node, name, *args)

    def number(self, node, name, value, *digits):
        if name == "abs":
            return self.stored(abs(value), node)
        if name in ("round", "floor", "ceil"):
            if isinstance(value, float) and not math.isfinite(value):
                return value
            function = {"round": round, "floor": math.floor, "ceil": math.ceil}[name]
            return value if isinstance(value, int) else float(function(value, *digits))
        try:
            return getattr(math, name)(value)
        except (ValueError, OverflowError):
            if math.isinf(value):
                return math.nan
            raise Bad("out_of_range") from None
