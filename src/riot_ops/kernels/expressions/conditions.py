"""Conditions: three-valued logic, comparisons, ``in``, and values that take the place of each other."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import boolean_column
from riot_ops.kernels.expressions import arithmetic
from riot_ops.kernels.expressions.binding import MAX_DIGITS, Binder, Binders, Bound, FieldReader, Run, mask_of
from riot_ops.kernels.expressions.columns import (
    BOOL,
    NULL,
    UNITS,
    Column,
    Kind,
    arrow_values,
    constant,
    known,
    merged,
    restricted,
    truth_of,
    valid_of,
)
from riot_ops.kernels.expressions.syntax import Node
from riot_ops.kernels.text.strings import equal_to, name_codes

__all__ = ["COMPARISONS", "ConditionBinder"]

#: Up to this many constants of ``in`` are compared one after the other.
MAX_COMPARED = 8
COMPARISONS: dict[str, Any] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARROW_COMPARISONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


class ConditionBinder(Binder):
    """Binds connectives, comparisons, ``in``, ``is None``, ``if``, ``coalesce``, ``min`` and ``max``."""

    def _connective(self, node: Node) -> tuple[Kind, Run]:
        parts = [self._condition(arg, node.op).run for arg in node.args]
        join = _and if node.op == "and" else _or

        def run(rows: FieldReader) -> Column:
            found = parts[0](rows)
            for part in parts[1:]:
                found = join(found, part(rows))
            return found

        return BOOL, run

    def _not(self, node: Node) -> tuple[Kind, Run]:
        part = self._condition(node.args[0], "not").run

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part(rows)
            return Column(~data if valid is None else ~data & valid, valid, bad)

        return BOOL, run

    def _is_null(self, node: Node) -> tuple[Kind, Run]:
        part = self.bind(node.args[0]).run

        def run(rows: FieldReader) -> Column:
            column = part(rows)
            valid = valid_of(column)
            return Column(np.False_ if valid is None else ~valid, None, column.bad)

        return BOOL, run

    def _if(self, node: Node) -> tuple[Kind, Run]:
        condition = self._condition(node.args[0], "if").run
        kind, (then, otherwise) = self._unified(node, node.args[1:])

        def run(rows: FieldReader) -> Column:
            test, one, other = condition(rows), then(rows), otherwise(rows)
            true = test.data if test.valid is None else test.data & test.valid
            bad = merged(test.bad, merged(restricted(one.bad, true), restricted(other.bad, ~true)))
            if kind.in_arrow:
                values = arrow_values((one, other), kind.arrow_type)
                mask: Any = boolean_column(true) if np.ndim(true) else pa.scalar(bool(true))
                return Column(pc.if_else(mask, *values), None, bad)
            valid = None
            if one.valid is not None or other.valid is not None:
                valid = np.where(true, mask_of(one.valid), mask_of(other.valid))
            return Column(np.where(true, one.data, other.data), valid, bad)

        return kind, run

    def _coalesce(self, node: Node) -> tuple[Kind, Run]:
        kind, parts = self._unified(node, node.args)

        def run(rows: FieldReader) -> Column:
            found = parts[0](rows)
            for part in parts[1:]:
                other = part(rows)
                valid = mask_of(valid_of(found))
                if found.bad is not None:
                    valid = valid | (found.bad != 0)
                bad = merged(found.bad, restricted(other.bad, ~valid))
                if kind.in_arrow:
                    values = arrow_values((found, other), kind.arrow_type)
                    found = Column(pc.coalesce(*values), None, bad)
                else:
                    data = np.where(valid, found.data, other.data)
                    found = Column(data, valid | mask_of(other.valid), bad)
            return found

        return kind, run

    def _extreme(self, node: Node) -> tuple[Kind, Run]:
        kind, parts = self._unified(node, node.args)
        if kind.in_arrow or kind.name == "bool":
            self._refuse(node, f"{node.op} takes numbers, times or durations, not a {kind.word}")
        ufunc = np.minimum if node.op == "min" else np.maximum

        def run(rows: FieldReader) -> Column:
            columns = [part(rows) for part in parts]
            data, bad = columns[0].data, columns[0].bad
            for column in columns[1:]:
                data, bad = ufunc(data, column.data), merged(bad, column.bad)
            return Column(data, known(*columns), bad)

        return kind, run

    # -- comparisons -------------------------------------------------------------------------------

    def _comparison(self, node: Node) -> tuple[Kind, Run]:
        left, right = (self.bind(arg) for arg in node.args)
        if node.op in ("==", "!=") and left.is_constant:
            left, right = right, left
        function, a, b = self._comparator(node, node.op, left, right), left.run, right.run
        return BOOL, lambda rows: function(a(rows), b(rows))

    def _comparator(self, node: Node, op: str, left: Bound, right: Bound) -> Callable[[Column, Column], Column]:
        """Return a function that compares two columns."""
        one, other = left.kind, right.kind
        if NULL in (one, other):
            return lambda x, y: Column(np.False_, np.False_, merged(x.bad, y.bad))
        if "decimal" in (one.name, other.name):
            return self._decimal_comparator(node, op, left, right)
        if one.word != other.word:
            self._refuse(node, f"cannot compare {one.word} with {other.word}")
        if one.name == "bool" and op not in ("==", "!="):
            self._refuse(node, f"booleans have no order for {op}")
        if one.name == "text":
            return _text_comparator(op, right)
        ufunc = COMPARISONS[op]
        if one.is_number:
            function = arithmetic.compare(one, other, ufunc)
        elif one.unit == other.unit:
            function = ufunc
        else:
            function = _time_comparison(one.unit, other.unit, ufunc)

        def compared(x: Column, y: Column) -> Column:
            valid = known(x, y)
            found = function(x.data, y.data)
            return Column(found if valid is None else found & valid, valid, merged(x.bad, y.bad))

        return compared

    def _decimal_comparator(self, node: Node, op: str, left: Bound, right: Bound) -> Callable[[Column, Column], Column]:
        """Return a function that compares decimals with decimals, or with a number constant as it is written."""
        kinds: list[Kind] = []
        wanted: list[Decimal | None] = []
        for bound in (left, right):
            kind, number = bound.kind, None
            if kind.is_number and bound.is_constant:
                number = Decimal(repr(bound.node.value))
                _, written, exponent = number.normalize().as_tuple()
                scale = max(-int(exponent), 0)
                kind = Kind("decimal", digits=max(len(written) + int(exponent), 1), scale=scale)
            if kind.name != "decimal":
                names = (left.kind.word, right.kind.word)
                self._refuse(node, f"cannot compare {names[0]} with {names[1]}, other than a constant")
            kinds.append(kind)
            wanted.append(number)
        digits, scale = max(k.digits for k in kinds), max(k.scale for k in kinds)
        if digits + scale > MAX_DIGITS:
            self._refuse(node, f"the comparison needs more than {MAX_DIGITS} digits")
        dtype = pa.decimal256(digits + scale, scale)
        constants = [None if number is None else pa.scalar(number, dtype) for number in wanted]
        function = getattr(pc, _ARROW_COMPARISONS[op])

        def compared(x: Column, y: Column) -> Column:
            sides = [
                one.data.cast(dtype) if fixed is None else fixed for one, fixed in zip((x, y), constants, strict=True)
            ]
            return truth_of(function(*sides), None)._replace(bad=merged(x.bad, y.bad))

        return compared

    def _in(self, node: Node) -> tuple[Kind, Run]:
        left, *constants = (self.bind(arg) for arg in node.args)
        if left.kind.name == "text" and all(c.kind.name == "text" for c in constants):
            return BOOL, _text_membership(left, [c.node.value for c in constants])
        run = left.run
        if left.kind.is_number and len(constants) > MAX_COMPARED and all(c.kind.is_number for c in constants):
            values = [_exactly(c.node.value, left.kind) for c in constants]
            members = np.array([value for value in values if value is not None], left.kind.dtype)

            def run_members(rows: FieldReader) -> Column:
                data, valid, bad = run(rows)
                found = np.isin(data, members)
                return Column(found if valid is None else found & valid, valid, bad)

            return BOOL, run_members
        equal = [(self._comparator(node, "==", left, c), constant(c.node.value)[1]) for c in constants]

        def run_each(rows: FieldReader) -> Column:
            column = run(rows)
            found = [compared(column, one) for compared, one in equal]
            return found[0]._replace(data=functools.reduce(operator.or_, (one.data for one in found)))

        return BOOL, run_each

    binders: ClassVar[Binders] = {
        "and": _connective,
        "or": _connective,
        "not": _not,
        "is_null": _is_null,
        "if": _if,
        "in": _in,
        "coalesce": _coalesce,
        **dict.fromkeys(("min", "max"), _extreme),
        **dict.fromkeys(COMPARISONS, _comparison),
    }


# -- three-valued logic ----------------------------------------------------------------------------


def _and(one: Column, other: Column) -> Column:
    """Return ``one and other``: the other's error counts only where one is not False."""
    if one.valid is None:
        bad = merged(one.bad, restricted(other.bad, one.data))
        if other.valid is None:
            return Column(one.data & other.data, None, bad)
        return Column(one.data & other.data, ~one.data | other.valid, bad)
    false = one.valid & ~one.data
    bad = merged(one.bad, restricted(other.bad, ~false))
    other_false = ~other.data if other.valid is None else other.valid & ~other.data
    true = one.data & other.data
    return Column(true, true | false | other_false, bad)


def _or(one: Column, other: Column) -> Column:
    """Return ``one or other``: the other's error counts only where one is not True."""
    bad = merged(one.bad, restricted(other.bad, ~one.data))
    true = one.data | other.data
    if one.valid is None and other.valid is None:
        return Column(true, None, bad)
    return Column(true, true | (mask_of(one.valid) & mask_of(other.valid)), bad)


# -- comparisons -----------------------------------------------------------------------------------


def _time_comparison(one: str, other: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    """Return the comparison of times, or durations, of different units."""
    if UNITS[one] > UNITS[other]:
        factor = UNITS[one] // UNITS[other]
        return lambda x, y: ufunc(arithmetic.order_of_times(factor, x, y), 0)
    factor = UNITS[other] // UNITS[one]
    return lambda x, y: ufunc(-arithmetic.order_of_times(factor, y, x), 0)


def _text_comparator(op: str, right: Bound) -> Callable[[Column, Column], Column]:
    function = getattr(pc, _ARROW_COMPARISONS[op])
    wanted = right.node.value if right.is_constant and op in ("==", "!=") else None

    def compared(x: Column, y: Column) -> Column:
        bad = merged(x.bad, y.bad)
        if wanted is not None and isinstance(x.data, pa.Array):
            found, valid, _ = truth_of(equal_to(x.data, wanted), x.data)
            if op == "!=":
                found = ~found if valid is None else ~found & valid
            return Column(found, valid, bad)
        truth = function(*arrow_values((x, y)))
        if isinstance(truth, pa.Scalar):
            return Column(np.bool_(bool(truth.as_py())), None if truth.is_valid else np.False_, bad)
        return truth_of(truth, None)._replace(bad=bad)

    return compared


def _text_membership(left: Bound, wanted: list[str]) -> Run:
    def run(rows: FieldReader) -> Column:
        texts, _, bad = left.run(rows)
        if isinstance(texts, pa.Scalar):
            return Column(np.bool_(texts.as_py() in wanted), None if texts.is_valid else np.False_, bad)
        if len(wanted) <= MAX_COMPARED:
            found = name_codes(texts, wanted) >= 0
        else:
            found = np.asarray(pc.is_in(texts, value_set=pa.array(wanted, texts.type)))
        return truth_of(found, texts)._replace(bad=bad)

    return run


def _exactly(value: Any, kind: Kind) -> Any:
    """Return a number as the type of a kind; None if no value of the type equals it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind.name == "float":
        return float(value) if float(value) == value else None
    low, high = (0, 2**64 - 1) if kind.unsigned else (-(2**63), 2**63 - 1)
    return int(value) if value == int(value) and low <= value <= high else None
