"""Filter by an expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.lazy_rows import AnyRows
from riot_ops.kernels.expressions.expression import Expression, reject_bad
from riot_ops.task import Case, FilterTask, Requirement, register

__all__ = ["Filter"]


@register
@dataclass(frozen=True, kw_only=True)
class Filter(FilterTask):
    """Pass records for which an expression is true, such as ``Filter("value > 3 and kind == 'temp'")``.

    Parameters
    ----------
    condition : str
        An expression in Python's syntax, and the only parameter that may be given by position. Names are fields; a
        field whose name is no Python name is ``field('a.b')``. It is parsed when the task is made, its types are
        checked when the dataflow is built, and Python never evaluates it. The how-to
        "Filter and compute with expressions" lists operators and functions.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:0/1; O(1) time per operation, no state.

    Missing values
    --------------
    A comparison or computation with null gives null; ``and``, ``or`` and ``not`` follow SQL's three-valued logic. A
    record passes only where the condition is true, not where it is null. Comparisons with NaN are false, but ``!=``.

    Errors
    ------
    ``division_by_zero``: by ``/``, ``//`` or ``%``, or 0 to a negative power. ``out_of_range``: an integer beyond 64
    bits; a finite float without a finite result, such as ``sqrt(-1)``; a time beyond the years 1 to 9999.
    ``invalid_utf8``: bytes that are not text. A part that decides nothing raises no error: with
    ``n != 0 and total / n > 3``, no record is divided by zero.

    References
    ----------
    .. [1] ISO/IEC 9075-2, SQL: three-valued logic of conditions.

    Examples
    --------
    >>> warm = Filter("value > 3 and kind == 'temp'").session()
    >>> [len(warm.push({"value": v, "kind": k})) for v, k in ((4, "temp"), (3, "temp"), (4, "dust"), (None, "temp"))]
    [1, 0, 0, 0]
    >>> Filter("mni(value, 3) > 1")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: Filter: condition: 'mni(value, 3)' at character 1: there is no function 'mni'; \
    did you mean "min"?
    """

    code: ClassVar[str] = "FEX"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"
    accepts_lazy_rows: ClassVar[bool] = True

    condition: str = field(kw_only=False)

    @cached_property
    def expression(self) -> Expression:
        """The parsed condition."""
        return Expression(self.condition)

    def validate(self) -> None:
        try:
            parsed = self.expression
        except ConfigError as error:
            raise ConfigError(f"Filter: condition: {error}") from None
        if not parsed.requirements:
            raise ConfigError(f"Filter: condition: {self.condition!r} reads no field")

    def requires(self) -> Mapping[str, Requirement]:
        return self.expression.requirements

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        try:
            bound = self.expression.bind(schema)
        except ConfigError as error:
            raise ConfigError(f"{self.name()}: {error}") from None
        if bound.kind.name not in ("bool", "null"):
            raise ConfigError(
                f"{self.name()}: condition = {self.condition!r} gives a {bound.kind.word}, it must be true or false"
            )
        return schema

    def passes(self, batch: AnyRows, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
        bound = self.expression.bind(batch.schema)
        found, valid, bad = bound.column(batch)
        if bound.kind.name == "null":
            found = np.False_
        elif valid is not None:
            found = found & valid
        if bad is not None:
            reject_bad(batch, bad, bound.errors, errors)
            found = found & (bad == 0)
        return found if np.ndim(found) else np.full(batch.num_rows, found)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        nan, infinite = float("nan"), float("inf")
        batch = pa.RecordBatch.from_pydict(
            {
                "größe": [1.5, None, nan, infinite, -0.0, 4.5, 7.0, 1e308],
                "n": pa.array([2**53 + 1, None, 0, -(2**63), 1, 3, 2**63 - 1, 0], pa.int64()),
                "kind": ["temp", "", None, "ü", "dust", "TEMP ", "a,b", "temp"],
                "flag": [True, False, None, True, False, None, True, False],
                "payload": pa.array([b"ok", b"\xff", None, b"", b"a", b"ok", b"b", b"c"], pa.binary()),
                "at": pa.array([0, 1, None, 10**15, -1, 5, 6, 7], pa.timestamp("us", "UTC")),
            }
        )
        unsigned = batch.append_column("u", pa.array([2**64 - 1, 1, 0, None, 2**63, 5, 7, 9], pa.uint64()))
        yield Case(cls("größe > 3 and kind == 'temp' or flag"), batch)
        yield Case(cls("n != 0 and 12 / n > 3 or 7 % n == 1"), batch, "divided")
        yield Case(cls("n * 3 >= u or -n > 9.0e18"), unsigned, "integers")
        yield Case(cls("not (flag or größe is None) and lower(strip(kind)) in ('temp', 'dust')"), batch, "nulls")
        yield Case(cls("hour(at) == 0 and at < time('2001-09-09') and startswith(payload, 'o')"), batch, "times")
        yield Case(cls("sqrt(größe) ** 2 < coalesce(größe, n, 0) if flag else len(kind) > 1"), batch, "functions")
