"""Arithmetic and functions of numbers, and arithmetic of times and durations."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from riot_ops.core.errors import excerpt
from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.expressions import arithmetic
from riot_ops.kernels.expressions.binding import Binder, Binders, Bound, FieldReader, Run, replaced
from riot_ops.kernels.expressions.columns import (
    BOOL,
    FLOAT,
    NULL,
    UNITS,
    Column,
    Kind,
    integer,
    known,
    marked,
    merged,
)
from riot_ops.kernels.expressions.syntax import Node

__all__ = ["NumberBinder"]

_FLOAT_UFUNCS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}


class NumberBinder(Binder):
    """Binds operators and functions of numbers, times and durations."""

    # -- arithmetic --------------------------------------------------------------------------------

    def _arithmetic(self, node: Node) -> tuple[Kind, Run]:
        left, right = (self.bind(arg) for arg in node.args)
        left, right = self._typed_null(node, left, right.kind), self._typed_null(node, right, left.kind)
        one, other = left.kind, right.kind
        if not (one.is_number and other.is_number):
            return self._time_arithmetic(node, left, right)
        op = node.op
        if one.name == other.name == "int" and op != "/":
            if op != "**":
                return self._integers(node, left, right)
            if right.is_constant and right.node.value >= 0:
                return self._integers(node, left, right)
        return FLOAT, self._floats(node, left, right)

    def _typed_null(self, node: Node, bound: Bound, other: Kind) -> Bound:
        """Return an operand; one that is nothing but null is of the kind that fits the other operand."""
        if bound.kind != NULL or other.name not in ("time", "duration"):
            return self._number_or_null(bound)
        kind = other._replace(name="time" if node.op == "-" and other.name == "time" else "duration")
        return Bound(bound.node, kind, self._converted(bound, kind))

    def _integers(self, node: Node, left: Bound, right: Bound) -> tuple[Kind, Run]:
        op, a, b = node.op, left.run, right.run
        kind, checked = arithmetic.integer_result(op, left.kind, right.kind)
        too_large = self._error("out_of_range", f"{excerpt(node.text, 100)} is beyond 64 bits")
        divides = op in ("//", "%") and not (right.is_constant and right.node.value)  # by what may be 0
        by_zero = self._error("division_by_zero", f"division by zero in {excerpt(node.text, 100)}") if divides else 0

        def run(rows: FieldReader) -> Column:
            x, y = a(rows), b(rows)
            valid, bad, divisor = known(x, y), merged(x.bad, y.bad), y.data
            if divides:
                zero = divisor == 0
                if np.any(zero):
                    bad = marked(bad, zero if valid is None else zero & valid, by_zero)
                    divisor = np.where(zero, np.asarray(divisor).dtype.type(1), divisor)
            data, wrong = arithmetic.integers(op, kind, checked, x.data, divisor)
            if wrong is not None:
                bad = marked(bad, wrong if valid is None else wrong & valid, too_large)
            return Column(data, valid, bad)

        return kind, run

    def _floats(self, node: Node, left: Bound, right: Bound) -> Run:
        op, a, b = node.op, left.run, right.run
        largest = max(-left.kind.low, left.kind.high, -right.kind.low, right.kind.high)
        whole = op == "/" and left.kind.name == right.kind.name == "int" and largest > arithmetic.EXACT
        function = arithmetic.float_power if op == "**" else _FLOAT_UFUNCS[op]
        by_zero = self._error("division_by_zero", f"division by zero in {excerpt(node.text, 100)}")
        infinite = self._error("out_of_range", f"{excerpt(node.text, 100)} has no finite value")
        constant = right.is_constant and right.node.value
        divides = op in ("/", "//", "%") and not constant  # by what may be 0

        def run(rows: FieldReader) -> Column:
            left, right = a(rows), b(rows)
            valid, bad = known(left, right), merged(left.bad, right.bad)
            x, y = left.data, right.data
            if divides or op == "**":
                zero = y == 0 if divides else (x == 0) & (y < 0)
                if np.any(zero):
                    bad = marked(bad, zero if valid is None else zero & valid, by_zero)
                    y = np.where(zero, np.asarray(y).dtype.type(1), y)
            if whole:
                return Column(arithmetic.true_quotient(x, y), valid, bad)
            with np.errstate(all="ignore"):
                data = function(_as_floats(x), _as_floats(y))
            if op == "**" and not np.isfinite(data).all():
                wrong = ~np.isfinite(data) & np.isfinite(x) & np.isfinite(y)
                bad = marked(bad, wrong if valid is None else wrong & valid, infinite)
            return Column(data, valid, bad)

        return run

    def _time_arithmetic(self, node: Node, left: Bound, right: Bound) -> tuple[Kind, Run]:
        op, one, other = node.op, left.kind, right.kind
        names = (one.name, other.name)
        if op == "/" and names == ("duration", "duration"):
            unit = max(one.unit, other.unit, key=UNITS.__getitem__)
            return FLOAT, self._floats(node, *(self._counted(part, unit) for part in (left, right)))
        result = {
            ("time", "-", "time"): "duration",
            ("time", "+", "duration"): "time",
            ("duration", "+", "time"): "time",
            ("time", "-", "duration"): "time",
            ("duration", "+", "duration"): "duration",
            ("duration", "-", "duration"): "duration",
        }.get((names[0], op, names[1]))
        if result is None:
            words = one.word if one.word == other.word else f"{one.word} and {other.word}"
            self._refuse(node, f"{op} does not take {words}")
        unit = max(one.unit, other.unit, key=UNITS.__getitem__)
        _, run = self._integers(node, *(self._counted(part, unit) for part in (left, right)))
        kind = Kind(result, unit=unit)
        return kind, run if result == "duration" else self._within_years(node, kind, run)

    def _counted(self, part: Bound, unit: str) -> Bound:
        """Return a time or duration as its number of units, with the bounds that are known without data."""
        low, high, node = -(2**63), 2**63 - 1, part.node
        if node.op == "time_of_day":
            low, high = 0, 86_400 * UNITS[unit]
        elif part.is_constant and part.kind.name == "duration":
            low = high = node.value // timedelta(microseconds=1) * UNITS[unit] // UNITS["us"]
        return Bound(node, integer(low, high), self._converted(part, part.kind._replace(unit=unit)))

    def _within_years(self, node: Node, kind: Kind, part: Run) -> Run:
        """Reject times before the year 1 or after 9999, which Python cannot hold."""
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is not in the years 1 to 9999")
        low, high = (limit * UNITS[kind.unit] // 1_000_000 for limit in (EARLIEST, LATEST))
        if kind.unit == "ns":
            return part  # 64 bits end before

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part(rows)
            wrong = (data < low) | (data > high)
            return Column(data, valid, marked(bad, wrong if valid is None else wrong & valid, code))

        return run

    def _negative(self, node: Node) -> tuple[Kind, Run]:
        part = self._number_or_null(self.bind(node.args[0]))
        if part.kind.name == "float":
            return FLOAT, lambda rows: replaced(part.run(rows), operator.neg)
        if part.kind.name not in ("int", "duration"):
            self._refuse(node, f"- does not take a {part.kind.word}")
        whole = part.kind if part.kind.name == "int" else integer(-(2**63), 2**63 - 1)
        zero = Bound(node, integer(0, 0), lambda rows: Column(np.int64(0)))
        kind, run = self._integers(node._replace(op="-"), zero, part._replace(kind=whole))
        return (kind if part.kind.name == "int" else part.kind), run

    # -- functions of numbers ----------------------------------------------------------------------

    def _number(self, node: Node) -> Bound:
        part = self._number_or_null(self.bind(node.args[0]))
        if not part.kind.is_number:
            self._refuse(node, f"{node.op} takes a number, not a {part.kind.word}")
        return part

    def _abs(self, node: Node) -> tuple[Kind, Run]:
        part = self._number_or_null(self.bind(node.args[0]))
        if part.kind.name == "float":
            return FLOAT, lambda rows: replaced(part.run(rows), np.abs)
        if part.kind.name not in ("int", "duration"):
            self._refuse(node, f"abs takes a number or a duration, not a {part.kind.word}")
        if part.kind.low >= 0 and part.kind.name == "int":
            return part.kind, part.run
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is beyond 64 bits")

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part.run(rows)
            wrong = data == -(2**63)
            with np.errstate(all="ignore"):
                found = np.abs(data)
            return Column(found, valid, marked(bad, wrong if valid is None else wrong & valid, code))

        kind = part.kind
        if kind.name == "int":
            kind = integer(0, max(abs(kind.low), abs(kind.high)))
        return kind, run

    def _rounding(self, node: Node) -> tuple[Kind, Run]:
        part = self._number(node)
        if part.kind.name == "int":
            if node.op == "round" and len(node.args) == 2 and node.args[1].value < 0:
                self._refuse(node, "integers are not rounded to tens")
            return part.kind, part.run
        if node.op != "round":
            return FLOAT, lambda rows: replaced(part.run(rows), np.floor if node.op == "floor" else np.ceil)
        digits = node.args[1].value if len(node.args) == 2 else 0
        return FLOAT, lambda rows: replaced(part.run(rows), lambda data: arithmetic.rounded(data, digits))

    def _real_function(self, node: Node) -> tuple[Kind, Run]:
        """Bind sqrt, log, exp, sin or cos; a finite argument without a finite result is an error."""
        part = self._number(node)
        name = {"log": "ln"}.get(node.op, node.op)
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} has no finite value")

        def run(rows: FieldReader) -> Column:
            column = part.run(rows)
            x = _as_floats(column.data)
            data = arithmetic.float_function(name, x)
            if not np.isfinite(data).all():
                wrong = ~np.isfinite(data) & np.isfinite(x)
                wrong = wrong if column.valid is None else wrong & column.valid
                return Column(data, column.valid, marked(column.bad, wrong, code))
            return column._replace(data=data)

        return FLOAT, run

    def _is_nan(self, node: Node) -> tuple[Kind, Run]:
        part = self._number(node)

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part.run(rows)
            found = np.isnan(data)
            return Column(found if valid is None else found & valid, valid, bad)

        return BOOL, run

    binders: ClassVar[Binders] = {
        **dict.fromkeys(("+", "-", "*", "/", "//", "%", "**"), _arithmetic),
        "neg": _negative,
        "abs": _abs,
        **dict.fromkeys(("round", "floor", "ceil"), _rounding),
        **dict.fromkeys(("sqrt", "log", "exp", "sin", "cos"), _real_function),
        "is_nan": _is_nan,
    }


def _as_floats(data: Any) -> Any:
    return data if data.dtype == np.float64 else data.astype(np.float64)
