"""Expressions: parsed once, bound to the types of a schema, and evaluated on batches or selections of rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean, excerpt
from riot_ops.core.operator import Requirement
from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.arrays.arrow import boolean_column, truth_codes
from riot_ops.kernels.arrays.selection import Rows, materialize
from riot_ops.kernels.expressions import arithmetic
from riot_ops.kernels.expressions.columns import (
    BOOL,
    FLOAT,
    NULL,
    UNITS,
    Column,
    Kind,
    arrow_column,
    constant,
    integer,
    kind_of,
    known,
    load_field,
    marked,
    merged,
    restricted,
    text_arrays,
    valid_of,
)
from riot_ops.kernels.expressions.syntax import Node, parse, requirements
from riot_ops.kernels.text.strings import contains, equal_to, name_codes

__all__ = ["BoundExpression", "Expression", "reject_bad"]

Run = Callable[["_Rows"], Column]

#: Up to this many constants of ``in`` are compared one after the other.
MAX_COMPARED = 8
_UFUNCS: dict[str, Any] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_TEXT_COMPARISONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_FLOAT_UFUNCS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}
_CLOCK = {
    "hour": "hour",
    "minute": "minute",
    "day": "day",
    "weekday": "day_of_week",
    "month": "month",
    "year": "year",
}


class Expression:
    """An expression over the fields of a record.

    Parameters
    ----------
    text : str
        In Python's syntax, see :mod:`riot_ops.kernels.expressions.syntax`.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"value": [1, 5, None], "kind": ["temp", "temp", "temp"]})
    >>> Expression("value > 3 and kind == 'temp'").bind(batch.schema).evaluate(batch).to_pylist()
    [False, True, None]
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.node = parse(text)
        #: The fields that it reads, and what they must be.
        self.requirements: Mapping[str, Requirement] = requirements(self.node)
        self._last: tuple[pa.Schema, BoundExpression] | None = None

    def bind(self, schema: pa.Schema) -> BoundExpression:
        """Compile the expression for a schema; raises :class:`ConfigError` where types do not fit.

        The result for the last schema is kept.
        """
        last = self._last
        if last is None or not last[0].equals(schema):
            last = self._last = schema, _Binder(schema).bind(self.node)
        return last[1]


class BoundExpression:
    """An expression that is compiled for a schema.

    Attributes
    ----------
    kind : Kind
        What its values are.
    errors : list of (reason, message)
        What the numbers of :attr:`Column.bad` stand for, from 1.
    """

    def __init__(self, kind: Kind, run: Run, errors: list[tuple[str, str]]) -> None:
        self.kind = kind
        self.errors = errors
        self._run = run

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of its results."""
        return self.kind.arrow_type

    def column(self, rows: Rows) -> Column:
        """Return the values of rows, or one value for all of them."""
        return self._run(_Rows(rows))

    def evaluate(self, rows: Rows) -> pa.Array:
        """Return the values of rows, null also where one is bad."""
        column = self.column(rows)
        if column.bad is None:
            return arrow_column(column, self.kind, rows.num_rows)
        bad = np.broadcast_to(column.bad != 0, rows.num_rows)
        found = arrow_column(column._replace(bad=None), self.kind, rows.num_rows)
        return pc.if_else(boolean_column(bad), pa.scalar(None, found.type), found)


def reject_bad(rows: Rows, bad: Any, errors: list[tuple[str, str]], dead: DeadLetters) -> None:
    """Reject the rows with an error."""
    bad = np.broadcast_to(bad, rows.num_rows)
    batch = materialize(rows)
    for code in np.unique(bad[bad != 0]).tolist():
        reason, message = errors[code - 1]
        dead.reject(batch, bad == code, reason, message)


class _Rows:
    """The rows of a call, and the fields that were read."""

    __slots__ = ("fields", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.fields: dict[str, Column] = {}


class _Bound(NamedTuple):
    node: Node
    kind: Kind
    run: Run

    @property
    def is_constant(self) -> bool:
        return self.node.op == "const"


class _Binder:
    """Compiles the nodes of an expression for a schema, each to a function of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.errors: list[tuple[str, str]] = []

    def bind(self, node: Node) -> BoundExpression:
        bound = self._bind(node)
        return BoundExpression(bound.kind, bound.run, self.errors)

    def _bind(self, node: Node) -> _Bound:
        kind, run = self.binders[node.op](self, node)
        return _Bound(node, kind, run)

    def _error(self, reason: str, message: str) -> int:
        self.errors.append((reason, message))
        return len(self.errors)

    def _refuse(self, node: Node, why: str) -> NoReturn:
        names = dict.fromkeys(n.value for n in node.walk() if n.op == "field")
        types = ", ".join(f"{name!r} is {self.schema.field(name).type}" for name in names)
        raise ConfigError(f"{why}: {excerpt(node.text, 100)}{f'; the field {types}' if types else ''}")

    # -- fields, constants, truth values -----------------------------------------------------------

    def _field(self, node: Node) -> tuple[Kind, Run]:
        name, schema = node.value, self.schema
        if name not in schema.names:
            raise ConfigError(
                f"the expression reads the field {name!r}, which its input lacks; "
                f"fields are {', '.join(schema.names) or '(none)'}{did_you_mean(name, schema.names)}"
            )
        dtype = schema.field(name).type
        kind = kind_of(dtype)
        if kind is None:
            raise ConfigError(
                f"the field {name!r} is {dtype}, which expressions do not read; they read integers, floats, texts, "
                "booleans, times, dates and durations"
            )
        not_utf8 = self._error("invalid_utf8", f"the field {name} is not UTF-8") if kind.name == "text" else 0
        load = load_field(name, dtype, kind, not_utf8)

        def run(rows: _Rows) -> Column:
            found = rows.fields.get(name)
            if found is None:
                found = rows.fields[name] = load(rows.rows)
            return found

        return kind, run

    def _constant(self, node: Node) -> tuple[Kind, Run]:
        kind, column = constant(node.value)
        return kind, lambda rows: column

    def _condition(self, node: Node, what: str) -> _Bound:
        bound = self._bind(node)
        if bound.kind.name not in ("bool", "null"):
            self._refuse(node, f"{what} takes conditions, not a {bound.kind.word}")
        if bound.kind == NULL:
            return _Bound(node, BOOL, lambda rows: Column(np.False_, np.False_, bound.run(rows).bad))
        return bound

    def _connective(self, node: Node) -> tuple[Kind, Run]:
        parts = [self._condition(arg, node.op).run for arg in node.args]
        join = _and if node.op == "and" else _or

        def run(rows: _Rows) -> Column:
            found = parts[0](rows)
            for part in parts[1:]:
                found = join(found, part(rows))
            return found

        return BOOL, run

    def _not(self, node: Node) -> tuple[Kind, Run]:
        part = self._condition(node.args[0], "not").run

        def run(rows: _Rows) -> Column:
            data, valid, bad = part(rows)
            return Column(~data if valid is None else ~data & valid, valid, bad)

        return BOOL, run

    def _is_null(self, node: Node) -> tuple[Kind, Run]:
        part = self._bind(node.args[0]).run

        def run(rows: _Rows) -> Column:
            column = part(rows)
            valid = valid_of(column)
            return Column(np.False_ if valid is None else ~valid, None, column.bad)

        return BOOL, run

    # -- several values of one kind ----------------------------------------------------------------

    def _unified(self, node: Node, args: tuple[Node, ...]) -> tuple[Kind, list[Run]]:
        """Return the kind of values that take the place of each other, and functions that give it."""
        bounds = [self._bind(arg) for arg in args]
        kinds = [bound.kind for bound in bounds if bound.kind != NULL]
        names = {kind.name for kind in kinds}
        if not kinds:
            return NULL, [bound.run for bound in bounds]
        if names == {"int"}:
            unsigned = any(k.unsigned for k in kinds) and all(k.low >= 0 for k in kinds)
            kind = integer(min(k.low for k in kinds), max(k.high for k in kinds), unsigned)
        elif names <= {"int", "float"}:
            kind = FLOAT
        elif len(names) > 1:
            words = " and ".join(dict.fromkeys(kind.word for kind in kinds))
            self._refuse(node, f"the values must be of one kind, not {words}")
        else:
            kind = max(kinds, key=lambda k: (UNITS.get(k.unit, 0), k.large))
        return kind, [self._converted(bound, kind) for bound in bounds]

    def _converted(self, bound: _Bound, kind: Kind) -> Run:
        """Return a function that gives the values of a part as another kind."""
        run, own = bound.run, bound.kind
        if own.name == kind.name == "text" or (own.name, own.unit, own.unsigned) == (
            kind.name,
            kind.unit,
            kind.unsigned,
        ):
            return run
        if own == NULL:
            empty: Any = pa.scalar(None, kind.arrow_type) if kind.name == "text" else kind.dtype(0)
            valid = None if kind.name == "text" else np.False_
            return lambda rows: Column(empty, valid, run(rows).bad)
        if kind.name == "float":
            return lambda rows: _replaced(run(rows), lambda data: data.astype(np.float64))
        code = self._error("out_of_range", f"{excerpt(bound.node.text, 60)} is beyond the type of the result")
        if kind.name == "int":
            limit = np.uint64(2**63) if own.unsigned else np.int64(0)

            def run_integers(rows: _Rows) -> Column:
                data, valid, bad = run(rows)
                wrong = data >= limit if own.unsigned else data < limit
                wrong = wrong if valid is None else wrong & valid
                return Column(np.asarray(data).astype(kind.dtype), valid, marked(bad, wrong, code))

            return run_integers
        factor = UNITS[kind.unit] // UNITS[own.unit]

        def run_times(rows: _Rows) -> Column:
            data, valid, bad = run(rows)
            found, wrong = arithmetic.scaled(data, factor)
            if wrong is not None:
                bad = marked(bad, wrong if valid is None else wrong & valid, code)
            return Column(found, valid, bad)

        return run_times

    def _if(self, node: Node) -> tuple[Kind, Run]:
        condition = self._condition(node.args[0], "if").run
        kind, (then, otherwise) = self._unified(node, node.args[1:])

        def run(rows: _Rows) -> Column:
            test, one, other = condition(rows), then(rows), otherwise(rows)
            true = test.data if test.valid is None else test.data & test.valid
            bad = merged(test.bad, merged(restricted(one.bad, true), restricted(other.bad, ~true)))
            if kind.name == "text":
                values = text_arrays((one, other))
                mask: Any = boolean_column(true) if np.ndim(true) else pa.scalar(bool(true))
                return Column(pc.if_else(mask, *values), None, bad)
            valid = None
            if one.valid is not None or other.valid is not None:
                valid = np.where(true, _mask(one.valid), _mask(other.valid))
            return Column(np.where(true, one.data, other.data), valid, bad)

        return kind, run

    def _coalesce(self, node: Node) -> tuple[Kind, Run]:
        kind, parts = self._unified(node, node.args)

        def run(rows: _Rows) -> Column:
            found = parts[0](rows)
            for part in parts[1:]:
                other = part(rows)
                valid = _mask(valid_of(found))
                if found.bad is not None:
                    valid = valid | (found.bad != 0)
                bad = merged(found.bad, restricted(other.bad, ~valid))
                if kind.name == "text":
                    values = text_arrays((found, other))
                    found = Column(pc.coalesce(*values), None, bad)
                else:
                    data = np.where(valid, found.data, other.data)
                    found = Column(data, valid | _mask(other.valid), bad)
            return found

        return kind, run

    def _extreme(self, node: Node) -> tuple[Kind, Run]:
        kind, parts = self._unified(node, node.args)
        if kind.name in ("text", "bool"):
            self._refuse(node, f"{node.op} takes numbers, times or durations, not a {kind.word}")
        ufunc = np.minimum if node.op == "min" else np.maximum

        def run(rows: _Rows) -> Column:
            columns = [part(rows) for part in parts]
            data, bad = columns[0].data, columns[0].bad
            for column in columns[1:]:
                data, bad = ufunc(data, column.data), merged(bad, column.bad)
            return Column(data, known(*columns), bad)

        return kind, run

    # -- comparisons -------------------------------------------------------------------------------

    def _comparison(self, node: Node) -> tuple[Kind, Run]:
        left, right = (self._bind(arg) for arg in node.args)
        if node.op in ("==", "!=") and left.is_constant:
            left, right = right, left
        function, a, b = self._comparator(node, node.op, left, right), left.run, right.run
        return BOOL, lambda rows: function(a(rows), b(rows))

    def _comparator(self, node: Node, op: str, left: _Bound, right: _Bound) -> Callable[[Column, Column], Column]:
        """Return a function that compares two columns."""
        one, other = left.kind, right.kind
        if NULL in (one, other):
            return lambda x, y: Column(np.False_, np.False_, merged(x.bad, y.bad))
        if one.word != other.word:
            self._refuse(node, f"cannot compare {one.word} with {other.word}")
        if one.name == "bool" and op not in ("==", "!="):
            self._refuse(node, f"booleans have no order for {op}")
        if one.name == "text":
            return _text_comparator(op, right)
        ufunc = _UFUNCS[op]
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

    def _in(self, node: Node) -> tuple[Kind, Run]:
        left, *constants = (self._bind(arg) for arg in node.args)
        if left.kind.name == "text" and all(c.kind.name == "text" for c in constants):
            return BOOL, _text_membership(left, [c.node.value for c in constants])
        run = left.run
        if left.kind.is_number and len(constants) > MAX_COMPARED and all(c.kind.is_number for c in constants):
            values = [_exactly(c.node.value, left.kind) for c in constants]
            members = np.array([value for value in values if value is not None], left.kind.dtype)

            def run_members(rows: _Rows) -> Column:
                data, valid, bad = run(rows)
                found = np.isin(data, members)
                return Column(found if valid is None else found & valid, valid, bad)

            return BOOL, run_members
        equal = [(self._comparator(node, "==", left, c), constant(c.node.value)[1]) for c in constants]

        def run_each(rows: _Rows) -> Column:
            column = run(rows)
            found = [compared(column, one) for compared, one in equal]
            return found[0]._replace(data=functools.reduce(operator.or_, (one.data for one in found)))

        return BOOL, run_each

    # -- arithmetic --------------------------------------------------------------------------------

    def _arithmetic(self, node: Node) -> tuple[Kind, Run]:
        left, right = (self._number_or_null(self._bind(arg)) for arg in node.args)
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

    def _number_or_null(self, bound: _Bound) -> _Bound:
        """Return a part, as floats if it is nothing but null."""
        return bound if bound.kind != NULL else _Bound(bound.node, FLOAT, bound.run)

    def _integers(self, node: Node, left: _Bound, right: _Bound) -> tuple[Kind, Run]:
        op, a, b = node.op, left.run, right.run
        kind, checked = arithmetic.integer_result(op, left.kind, right.kind)
        too_large = self._error("out_of_range", f"{excerpt(node.text, 100)} is beyond 64 bits")
        divides = op in ("//", "%")
        by_zero = self._error("division_by_zero", f"division by zero in {excerpt(node.text, 100)}") if divides else 0

        def run(rows: _Rows) -> Column:
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

    def _floats(self, node: Node, left: _Bound, right: _Bound) -> Run:
        op, a, b = node.op, left.run, right.run
        whole = op == "/" and left.kind.name == right.kind.name == "int"
        function = arithmetic.float_power if op == "**" else _FLOAT_UFUNCS[op]
        by_zero = self._error("division_by_zero", f"division by zero in {excerpt(node.text, 100)}")
        infinite = self._error("out_of_range", f"{excerpt(node.text, 100)} has no finite value")
        divides = op in ("/", "//", "%")

        def run(rows: _Rows) -> Column:
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
            if not np.isfinite(data).all():
                wrong = ~np.isfinite(data) & np.isfinite(x) & np.isfinite(y)
                bad = marked(bad, wrong if valid is None else wrong & valid, infinite)
            return Column(data, valid, bad)

        return run

    def _time_arithmetic(self, node: Node, left: _Bound, right: _Bound) -> tuple[Kind, Run]:
        op, one, other = node.op, left.kind, right.kind
        names = (one.name, other.name)
        if op == "/" and names == ("duration", "duration"):
            unit = max(one.unit, other.unit, key=UNITS.__getitem__)
            whole = integer(-(2**63), 2**63 - 1)
            parts = [
                _Bound(part.node, whole, self._converted(part, part.kind._replace(unit=unit))) for part in (left, right)
            ]
            return FLOAT, self._floats(node, *parts)
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
        whole = integer(-(2**63), 2**63 - 1)
        one_side, other_side = (
            _Bound(part.node, whole, self._converted(part, part.kind._replace(unit=unit))) for part in (left, right)
        )
        _, run = self._integers(node, one_side, other_side)
        kind = Kind(result, unit=unit)
        return kind, run if result == "duration" else self._within_years(node, kind, run)

    def _within_years(self, node: Node, kind: Kind, part: Run) -> Run:
        """Reject times before the year 1 or after 9999, which Python cannot hold."""
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is not in the years 1 to 9999")
        low, high = (limit * UNITS[kind.unit] // 1_000_000 for limit in (EARLIEST, LATEST))
        if kind.unit == "ns":
            return part  # 64 bits end before

        def run(rows: _Rows) -> Column:
            data, valid, bad = part(rows)
            wrong = (data < low) | (data > high)
            return Column(data, valid, marked(bad, wrong if valid is None else wrong & valid, code))

        return run

    def _negative(self, node: Node) -> tuple[Kind, Run]:
        part = self._number_or_null(self._bind(node.args[0]))
        if part.kind.name == "float":
            return FLOAT, lambda rows: _replaced(part.run(rows), operator.neg)
        if part.kind.name not in ("int", "duration"):
            self._refuse(node, f"- does not take a {part.kind.word}")
        whole = part.kind if part.kind.name == "int" else integer(-(2**63), 2**63 - 1)
        zero = _Bound(node, integer(0, 0), lambda rows: Column(np.int64(0)))
        kind, run = self._integers(node._replace(op="-"), zero, part._replace(kind=whole))
        return (kind if part.kind.name == "int" else part.kind), run

    # -- functions of numbers ----------------------------------------------------------------------

    def _number(self, node: Node) -> _Bound:
        part = self._number_or_null(self._bind(node.args[0]))
        if not part.kind.is_number:
            self._refuse(node, f"{node.op} takes a number, not a {part.kind.word}")
        return part

    def _abs(self, node: Node) -> tuple[Kind, Run]:
        part = self._number_or_null(self._bind(node.args[0]))
        if part.kind.name == "float":
            return FLOAT, lambda rows: _replaced(part.run(rows), np.abs)
        if part.kind.name not in ("int", "duration"):
            self._refuse(node, f"abs takes a number or a duration, not a {part.kind.word}")
        if part.kind.low >= 0 and part.kind.name == "int":
            return part.kind, part.run
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is beyond 64 bits")

        def run(rows: _Rows) -> Column:
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
            return FLOAT, lambda rows: _replaced(part.run(rows), np.floor if node.op == "floor" else np.ceil)
        digits = node.args[1].value if len(node.args) == 2 else 0
        return FLOAT, lambda rows: _replaced(part.run(rows), lambda data: arithmetic.rounded(data, digits))

    def _real_function(self, node: Node) -> tuple[Kind, Run]:
        """Bind sqrt, log or exp; a finite argument without a finite result is an error."""
        part = self._number(node)
        name = {"log": "ln"}.get(node.op, node.op)
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} has no finite value")

        def run(rows: _Rows) -> Column:
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

        def run(rows: _Rows) -> Column:
            data, valid, bad = part.run(rows)
            found = np.isnan(data)
            return Column(found if valid is None else found & valid, valid, bad)

        return BOOL, run

    # -- functions of texts and times --------------------------------------------------------------

    def _text(self, node: Node) -> tuple[Kind, Callable[[_Rows], tuple[Any, Any]]]:
        """Return the kind of an argument, and a function that returns its texts and its errors."""
        part = self._bind(node.args[0])
        if part.kind == NULL:
            return Kind("text"), lambda rows: (pa.nulls(rows.rows.num_rows, pa.string()), part.run(rows).bad)
        if part.kind.name != "text":
            self._refuse(node, f"{node.op} takes a text, not a {part.kind.word}")

        def run(rows: _Rows) -> tuple[Any, Any]:
            data, _, bad = part.run(rows)
            return data, bad

        return part.kind, run

    def _text_function(self, node: Node) -> tuple[Kind, Run]:
        kind, part = self._text(node)
        function = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "strip": pc.utf8_trim_whitespace}[node.op]

        def run(rows: _Rows) -> Column:
            texts, bad = part(rows)
            return Column(function(texts), None, bad)

        return kind, run

    def _length(self, node: Node) -> tuple[Kind, Run]:
        _, part = self._text(node)

        def run(rows: _Rows) -> Column:
            texts, bad = part(rows)
            lengths = pc.utf8_length(texts).cast(pa.int64())
            valid = valid_of(Column(lengths))
            if isinstance(lengths, pa.Scalar):
                return Column(np.int64(lengths.as_py() or 0), valid, bad)
            return Column(lengths.fill_null(0).to_numpy(), valid, bad)

        return integer(0, 2**31 - 1), run

    def _search(self, node: Node) -> tuple[Kind, Run]:
        _, part = self._text(node)
        wanted = node.args[1].value
        function: Callable[[Any], Any] = {
            "contains": lambda texts: contains(texts, wanted),
            "startswith": lambda texts: pc.call_function("starts_with", [texts], pc.MatchSubstringOptions(wanted)),
            "endswith": lambda texts: pc.call_function("ends_with", [texts], pc.MatchSubstringOptions(wanted)),
            "matches": lambda texts: pc.match_substring_regex(texts, wanted),
        }[node.op]

        def run(rows: _Rows) -> Column:
            texts, bad = part(rows)
            if isinstance(texts, pa.Scalar):
                texts = pa.array([texts.as_py()], texts.type)
                found = _truth(function(texts), texts)
                return Column(found.data[0], found.valid, bad)
            return _truth(function(texts), texts)._replace(bad=bad)

        return BOOL, run

    def _clock(self, node: Node) -> tuple[Kind, Run]:
        part = self._bind(node.args[0])
        if part.kind == NULL:
            part = _Bound(part.node, Kind("time", unit="us"), self._converted(part, Kind("time", unit="us")))
        if part.kind.name != "time":
            self._refuse(node, f"{node.op} takes a time, not a {part.kind.word}")
        function, dtype = getattr(pc, _CLOCK[node.op]), pa.timestamp(part.kind.unit)

        def run(rows: _Rows) -> Column:
            data, valid, bad = part.run(rows)
            found = np.asarray(function(pa.array(np.atleast_1d(data)).view(dtype))).astype(np.int64, copy=False)
            return Column(found if np.ndim(data) else found[0], valid, bad)

        return integer(0, 9999), run

    binders: ClassVar[dict[str, Callable[[Any, Node], tuple[Kind, Run]]]] = {
        "field": _field,
        "const": _constant,
        "and": _connective,
        "or": _connective,
        "not": _not,
        "is_null": _is_null,
        "if": _if,
        "in": _in,
        **dict.fromkeys(_UFUNCS, _comparison),
        "neg": _negative,
        **dict.fromkeys(("+", "-", "*", "/", "//", "%", "**"), _arithmetic),
        "abs": _abs,
        **dict.fromkeys(("round", "floor", "ceil"), _rounding),
        **dict.fromkeys(("sqrt", "log", "exp"), _real_function),
        "is_nan": _is_nan,
        "coalesce": _coalesce,
        **dict.fromkeys(("min", "max"), _extreme),
        **dict.fromkeys(("lower", "upper", "strip"), _text_function),
        "len": _length,
        **dict.fromkeys(("startswith", "endswith", "contains", "matches"), _search),
        **dict.fromkeys(_CLOCK, _clock),
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
    return Column(true, true | (_mask(one.valid) & _mask(other.valid)), bad)


def _mask(valid: Any) -> Any:
    return np.True_ if valid is None else valid


def _replaced(column: Column, function: Callable[[Any], Any]) -> Column:
    return Column(function(column.data), column.valid, column.bad)


def _as_floats(data: Any) -> Any:
    return data if data.dtype == np.float64 else data.astype(np.float64)


# -- comparisons -----------------------------------------------------------------------------------


def _time_comparison(one: str, other: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    """Return the comparison of times, or durations, of different units."""
    if UNITS[one] > UNITS[other]:
        factor = UNITS[one] // UNITS[other]
        return lambda x, y: ufunc(arithmetic.order_of_times(factor, x, y), 0)
    factor = UNITS[other] // UNITS[one]
    return lambda x, y: ufunc(-arithmetic.order_of_times(factor, y, x), 0)


def _truth(found: Any, texts: Any) -> Column:
    """Return a comparison of texts, from an Arrow column or a mask that is False for null."""
    if isinstance(found, pa.Array):
        codes = truth_codes(found)
        return Column(codes == 1, codes >= 0 if found.null_count else None)
    return Column(found, valid_of(Column(texts)))


def _text_comparator(op: str, right: _Bound) -> Callable[[Column, Column], Column]:
    function = getattr(pc, _TEXT_COMPARISONS[op])
    wanted = right.node.value if right.is_constant and op in ("==", "!=") else None

    def compared(x: Column, y: Column) -> Column:
        bad = merged(x.bad, y.bad)
        if wanted is not None and isinstance(x.data, pa.Array):
            found, valid, _ = _truth(equal_to(x.data, wanted), x.data)
            if op == "!=":
                found = ~found if valid is None else ~found & valid
            return Column(found, valid, bad)
        truth = function(*text_arrays((x, y)))
        if isinstance(truth, pa.Scalar):
            return Column(np.bool_(bool(truth.as_py())), None if truth.is_valid else np.False_, bad)
        return _truth(truth, None)._replace(bad=bad)

    return compared


def _text_membership(left: _Bound, wanted: list[str]) -> Run:
    def run(rows: _Rows) -> Column:
        texts, _, bad = left.run(rows)
        if isinstance(texts, pa.Scalar):
            return Column(np.bool_(texts.as_py() in wanted), None if texts.is_valid else np.False_, bad)
        if len(wanted) <= MAX_COMPARED:
            found = name_codes(texts, wanted) >= 0
        else:
            found = np.asarray(pc.is_in(texts, value_set=pa.array(wanted, texts.type)))
        return _truth(found, texts)._replace(bad=bad)

    return run


def _exactly(value: Any, kind: Kind) -> Any:
    """Return a number as the type of a kind; None if no value of the type equals it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind.name == "float":
        return float(value) if float(value) == value else None
    low, high = (0, 2**64 - 1) if kind.unsigned else (-(2**63), 2**63 - 1)
    return int(value) if value == int(value) and low <= value <= high else None
