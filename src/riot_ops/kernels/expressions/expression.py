"""Expressions: parsed once, bound to the types of a schema, and evaluated on batches or lazy rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.operator import Requirement
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import boolean_column
from riot_ops.kernels.arrays.lazy_rows import AnyRows, materialize
from riot_ops.kernels.expressions.binding import Binder, Binders, FieldReader, Run
from riot_ops.kernels.expressions.columns import Column, Kind, arrow_column
from riot_ops.kernels.expressions.conditions import ConditionBinder
from riot_ops.kernels.expressions.number_functions import NumberBinder
from riot_ops.kernels.expressions.syntax import parse, requirements
from riot_ops.kernels.expressions.text_functions import TextBinder

__all__ = ["BoundExpression", "Expression", "reject_bad"]


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
        if last is None or not (last[0] is schema or last[0].equals(schema)):
            binder = _NodeBinder(schema)
            bound = binder.bind(self.node)
            last = self._last = schema, BoundExpression(bound.kind, bound.run, binder.errors)
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

    def column(self, rows: AnyRows | FieldReader) -> Column:
        """Return the values of rows, or one value for all of them; expressions share the fields of a reader."""
        return self._run(rows if isinstance(rows, FieldReader) else FieldReader(rows))

    def evaluate(self, rows: AnyRows) -> pa.Array:
        """Return the values of rows, null also where one is bad."""
        column = self.column(rows)
        if column.bad is None:
            return arrow_column(column, self.kind, rows.num_rows)
        bad = np.broadcast_to(column.bad != 0, rows.num_rows)
        found = arrow_column(column._replace(bad=None), self.kind, rows.num_rows)
        return pc.if_else(boolean_column(bad), pa.scalar(None, found.type), found)


def reject_bad(rows: AnyRows, bad: Any, reasons: list[tuple[str, str]], errors: RejectedRecords) -> None:
    """Reject the rows with an error."""
    bad = np.broadcast_to(bad, rows.num_rows)
    batch = materialize(rows)
    for code in np.unique(bad[bad != 0]).tolist():
        reason, message = reasons[code - 1]
        errors.reject(batch, bad == code, reason, message)


class _NodeBinder(ConditionBinder, NumberBinder, TextBinder):
    """Binds all nodes."""

    binders: ClassVar[Binders] = {
        **Binder.binders,
        **ConditionBinder.binders,
        **NumberBinder.binders,
        **TextBinder.binders,
    }
