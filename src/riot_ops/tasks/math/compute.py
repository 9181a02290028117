"""Fields computed by expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import both_requirements
from riot_ops.core.order import is_ordinal
from riot_ops.core.parameters import OWN_CHECK
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import boolean_column, replace_column
from riot_ops.kernels.expressions.binding import FieldReader
from riot_ops.kernels.expressions.columns import arrow_column
from riot_ops.kernels.expressions.expression import BoundExpression, Expression, reject_bad
from riot_ops.task import Case, Requirement, StatelessTask, register, with_field

__all__ = ["Compute"]


@register
@dataclass(frozen=True, kw_only=True)
class Compute(StatelessTask):
    """Add fields that expressions compute, such as ``Compute({"spread": "high - low"})``.

    All expressions read the fields of the input, none the result of another.

    Parameters
    ----------
    expressions : mapping of str to str
        By name of the field to add, an expression as of :class:`Filter`; the only parameter that may be given by
        position. A field of the input is replaced only if its own expression reads it, as in
        ``{"value": "value * 2"}``; any other expression with its name is refused when the dataflow is built. That of
        ``event_time`` must give a time.

    Shapes and rates
    ----------------
    any[n] -> any[n], 1:1; O(1) time per operation, no state. Results are int64 or uint64, float64, string, boolean,
    timestamp in UTC or duration.

    Missing values
    --------------
    A result is null where an operand is null, but for ``and``, ``or``, ``is None``, ``coalesce`` and ``if``; also where
    it is NaN.

    Errors
    ------
    ``division_by_zero``, ``out_of_range`` and ``invalid_utf8`` as of :class:`Filter`, for the first expression with an
    error.

    References
    ----------
    .. [1] ISO/IEC 9075-2, SQL: expressions of a select list.

    Examples
    --------
    >>> spread = Compute({"spread": "high - low", "wide": "high - low > 0.1 * abs(low)"}).session()
    >>> spread.push({"high": 23.5, "low": 22.0})
    [{'high': 23.5, 'low': 22.0, 'spread': 1.5, 'wide': False}]
    """

    code: ClassVar[str] = "CMP"
    category: ClassVar[str] = "Math"

    expressions: Annotated[Mapping[str, str], OWN_CHECK] = field(kw_only=False)

    def validate(self) -> None:
        object.__setattr__(self, "expressions", _normalized(self.expressions))
        _ = self._parsed

    @cached_property
    def _parsed(self) -> dict[str, Expression]:
        parsed = {}
        for name, text in cast("tuple[tuple[str, str], ...]", self.expressions):
            try:
                parsed[name] = Expression(text)
            except ConfigError as error:
                raise ConfigError(f"Compute: expressions: {name!r}: {error}") from None
            if text.strip() == "None":
                raise ConfigError(f"Compute: expressions: {name!r}: 'None' has no type; Project adds fields of nulls")
        return parsed

    def requires(self) -> Mapping[str, Requirement]:
        found: dict[str, Requirement] = {}
        for expression in self._parsed.values():
            for name, wanted in expression.requirements.items():
                found[name] = both_requirements(found.get(name), wanted)
        return found

    def writes(self) -> frozenset[str] | None:
        return frozenset(self._parsed)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        bounds = self._bound(schema)
        out = schema
        for name, bound in bounds.items():
            if name in schema.names and name not in self._parsed[name].requirements:
                raise ConfigError(
                    f"{self.name()}: the expression of {name!r} would replace a field of the input that it does not "
                    "read; give its result another name, or drop that field before"
                )
            if name == "event_time" and bound.arrow_type != TIMESTAMP:
                raise ConfigError(
                    f"{self.name()}: the expression of 'event_time' gives {bound.arrow_type}, it must give {TIMESTAMP}"
                )
            out = with_field(out, pa.field(name, bound.arrow_type))
        return out

    def _bound(self, schema: pa.Schema) -> dict[str, BoundExpression]:
        bounds = {}
        for name, expression in self._parsed.items():
            try:
                bounds[name] = expression.bind(schema)
            except ConfigError as error:
                raise ConfigError(f"{self.name()}: {name!r}: {error}") from None
        return bounds

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        out, rows, wrong, fields = batch, batch.num_rows, np.False_, FieldReader(batch)
        for name, bound in self._bound(batch.schema).items():
            column = bound.column(fields)
            if column.bad is not None:
                bad = np.where(wrong, 0, column.bad)  # a record is rejected once
                reject_bad(batch, bad, bound.errors, errors)
                wrong = wrong | (bad != 0)
            out = replace_column(out, name, arrow_column(column, bound.kind, rows))
        return out.filter(boolean_column(~np.broadcast_to(wrong, rows))) if wrong.any() else out

    @classmethod
    def cases(cls) -> Iterable[Case]:
        nan, infinite = float("nan"), float("inf")
        batch = pa.RecordBatch.from_pydict(
            {
                "größe": [1.5, None, nan, infinite, -0.0, 4.5, 7.0, 1e308],
                "low": [1.0, 2.0, 0.0, 1.0, None, -4.5, infinite, -1e308],
                "n": pa.array([2**53 + 1, None, 0, -(2**63), 1, 3, 2**63 - 1, 0], pa.int64()),
                "kind": ["temp", "", None, "ü", "dust", "TEMP ", "a,b", "temp"],
                "at": pa.array([0, 1, None, 10**15, -1, 5, 6, 7], pa.timestamp("us", "UTC")),
            }
        )
        yield Case(cls({"spread": "größe - low", "wide": "größe - low > 0.1 * abs(low)"}), batch)
        yield Case(cls({"next": "n + 1", "share": "größe / n"}), batch, "errors")
        yield Case(cls({"größe": "round(größe, 1)", "hour": "hour(at)", "since": "at - time('2024-05-01')"}), batch)
        yield Case(cls({"week": "floor_time(at, '7d')", "sine": "sin(time_of_day(at) / duration('1h'))"}), batch)
        yield Case(cls({"kind": "coalesce(strip(lower(kind)), 'none')", "unit": "'°C' if n > 0 else '-'"}), batch)


def _normalized(given: Any) -> tuple[tuple[str, str], ...]:
    """Return the expressions as pairs."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, Sequence) or isinstance(pairs, str | bytes) or not pairs:
        raise _wrong(given)
    found: dict[str, str] = {}
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise _wrong(given)
        name, text = pair
        if not name or name == "seq" or is_ordinal(name):
            raise ConfigError(
                f"Compute: expressions must not name {name!r}: a name is not empty, and seq and ordinals are kept "
                "unchanged"
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"Compute: expressions: the name {name!r} is not Unicode text") from None
        if name in found:
            raise ConfigError(f"Compute: expressions name {name!r} twice")
        found[name] = text
    return tuple(found.items())


def _wrong(given: Any) -> ConfigError:
    return ConfigError(
        'Compute: expressions must map names of fields to expressions, as {"spread": "high - low"}, got '
        f"{value_text(given)}"
    )
