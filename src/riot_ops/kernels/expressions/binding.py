"""Binding an expression to a schema: the base of the classes that compile nodes to functions of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean, excerpt
from riot_ops.kernels.arrays.lazy_rows import AnyRows
from riot_ops.kernels.expressions import arithmetic
from riot_ops.kernels.expressions.columns import (
    BOOL,
    FLOAT,
    NULL,
    UNITS,
    Column,
    Kind,
    constant,
    integer,
    kind_of,
    load_field,
    marked,
)
from riot_ops.kernels.expressions.syntax import Node

__all__ = ["Binder", "Binders", "Bound", "FieldReader", "Run", "mask_of", "replaced"]


class FieldReader:
    """The rows of a call, with the fields that have been read, by name and number of their error."""

    __slots__ = ("fields", "rows")

    def __init__(self, rows: AnyRows) -> None:
        self.rows = rows
        self.fields: dict[tuple[str, int], Column] = {}


#: Digits that a decimal can have.
MAX_DIGITS = 76
Run = Callable[[FieldReader], Column]

#: By operation of a node, the method of a binder that compiles it.
Binders = dict[str, Callable[[Any, Node], tuple[Kind, Run]]]


class Bound(NamedTuple):
    """A compiled node: what its values are, and the function that computes them."""

    node: Node
    kind: Kind
    run: Run

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""
        return self.node.op == "const"


class Binder:
    """Compiles the nodes of an expression for a schema, each to a function of rows.

    Attributes
    ----------
    errors : list of (reason, message)
        What the numbers of :attr:`Column.bad` stand for, from 1.
    """

    binders: ClassVar[Binders]

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.errors: list[tuple[str, str]] = []

    def bind(self, node: Node) -> Bound:
        """Compile a node; raises :class:`ConfigError` where types do not fit."""
        kind, run = self.binders[node.op](self, node)
        return Bound(node, kind, run)

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
                f"the field {name!r} is {dtype}, which expressions do not read; they read numbers, texts, "
                "booleans, times, dates and durations"
            )
        not_utf8 = self._error("invalid_utf8", f"the field {name} is not UTF-8") if kind.name == "text" else 0
        load, key = load_field(name, dtype, kind, not_utf8), (name, not_utf8)

        def run(rows: FieldReader) -> Column:
            found = rows.fields.get(key)
            if found is None:
                found = rows.fields[key] = load(rows.rows)
            return found

        return kind, run

    def _constant(self, node: Node) -> tuple[Kind, Run]:
        kind, column = constant(node.value)
        return kind, lambda rows: column

    def _condition(self, node: Node, what: str) -> Bound:
        bound = self.bind(node)
        if bound.kind.name not in ("bool", "null"):
            self._refuse(node, f"{what} takes conditions, not a {bound.kind.word}")
        if bound.kind == NULL:
            return Bound(node, BOOL, lambda rows: Column(np.False_, np.False_, bound.run(rows).bad))
        return bound

    # -- several values of one kind ----------------------------------------------------------------

    def _unified(self, node: Node, args: tuple[Node, ...]) -> tuple[Kind, list[Run]]:
        """Return the kind of values that take the place of each other, and functions that give it."""
        bounds = [self.bind(arg) for arg in args]
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
        elif names == {"decimal"}:
            kind = Kind("decimal", digits=max(k.digits for k in kinds), scale=max(k.scale for k in kinds))
            if kind.digits + kind.scale > MAX_DIGITS:
                self._refuse(node, f"the values need more than {MAX_DIGITS} digits")
        else:
            kind = max(kinds, key=lambda k: (UNITS.get(k.unit, 0), k.large))
        return kind, [self._converted(bound, kind) for bound in bounds]

    def _converted(self, bound: Bound, kind: Kind) -> Run:
        """Return a function that gives the values of a part as another kind."""
        run, own = bound.run, bound.kind
        if (own.name == kind.name and kind.in_arrow) or (own.name, own.unit, own.unsigned) == (
            kind.name,
            kind.unit,
            kind.unsigned,
        ):
            return run
        if own == NULL:
            empty: Any = pa.scalar(None, kind.arrow_type) if kind.in_arrow else kind.dtype(0)
            valid = None if kind.in_arrow else np.False_
            return lambda rows: Column(empty, valid, run(rows).bad)
        if kind.name == "float":
            return lambda rows: replaced(run(rows), lambda data: data.astype(np.float64))
        code = self._error("out_of_range", f"{excerpt(bound.node.text, 60)} is beyond the type of the result")
        if kind.name == "int":
            limit = np.uint64(2**63) if own.unsigned else np.int64(0)

            def run_integers(rows: FieldReader) -> Column:
                data, valid, bad = run(rows)
                wrong = data >= limit if own.unsigned else data < limit
                wrong = wrong if valid is None else wrong & valid
                return Column(np.asarray(data).astype(kind.dtype), valid, marked(bad, wrong, code))

            return run_integers
        factor = UNITS[kind.unit] // UNITS[own.unit]

        def run_times(rows: FieldReader) -> Column:
            data, valid, bad = run(rows)
            found, wrong = arithmetic.scaled(data, factor)
            if wrong is not None:
                bad = marked(bad, wrong if valid is None else wrong & valid, code)
            return Column(found, valid, bad)

        return run_times

    def _number_or_null(self, bound: Bound) -> Bound:
        """Return a part, as floats if it is nothing but null."""
        return bound if bound.kind != NULL else Bound(bound.node, FLOAT, bound.run)

    binders = {"field": _field, "const": _constant}  # noqa: RUF012 (declared above)


def mask_of(valid: Any) -> Any:
    """Return where values are not missing as an array."""
    return np.True_ if valid is None else valid


def replaced(column: Column, function: Callable[[Any], Any]) -> Column:
    """Return a column with other data."""
    return Column(function(column.data), column.valid, column.bad)
