"""Value filter: pass records whose field has one of some values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.kernels.text.strings import equal_to, name_codes
from riot_ops.task import Case, FilterTask, Requirement, register

__all__ = ["ValueFilter"]

#: Up to this many texts are compared one after the other.
MAX_COMPARED = 8


@register
@dataclass(frozen=True, kw_only=True)
class ValueFilter(FilterTask):
    """Pass records whose field has one of some values, such as languages, types or a flag.

    Parameters
    ----------
    field : str
        Field to check.
    values : sequence of str, or of numbers and booleans
        Values that pass, at least one. A text field is compared with texts, byte by byte.
    keep_null : bool, default False
        Whether records with a null value also pass.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:0/1; O(1) time, no state.

    Missing values
    --------------
    Null passes iff ``keep_null``; NaN does not pass.

    Errors
    ------
    No record is rejected.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the language filter of sentiment analysis.

    Examples
    --------
    >>> english = ValueFilter(field="lang", values=("en",), keep_null=True).session()
    >>> [len(english.push({"lang": lang})) for lang in ("en", "de", None)]
    [1, 0, 1]
    """

    code: ClassVar[str] = "VAF"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    field: str
    values: Any
    keep_null: bool = False

    def validate(self) -> None:
        values = self.values
        if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
            raise ConfigError(f"values must be a list of at least one text or number, got {value_text(values)}")
        texts = all(isinstance(value, str) for value in values)
        if not texts and not all(isinstance(v, bool | int | float) and math.isfinite(v) for v in values):
            raise ConfigError(f"values must all be texts, or all numbers or booleans, got {value_text(values)}")
        object.__setattr__(self, "values", tuple(values))

    @property
    def _of_text(self) -> bool:
        return isinstance(self.values[0], str)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text" if self._of_text else "any"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = schema.field(self.field).type
        if not self._of_text and not any(is_type(dtype) for is_type in _NUMERIC):
            raise ConfigError(f"{self.name()} needs a number or boolean in the field {self.field!r}, it has {dtype}")
        return schema

    def passes(self, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_]:
        column = batch.column(self.field)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_null(column.type):
            return np.full(batch.num_rows, self.keep_null)
        if self._of_text and len(self.values) <= MAX_COMPARED:
            found = equal_to(column, self.values[0]) if len(self.values) == 1 else name_codes(column, self.values) >= 0
            return found | np.asarray(column.is_null()) if self.keep_null and column.null_count else found
        passes = pc.is_in(column, value_set=self._value_set(column.type))
        if self.keep_null and column.null_count:
            passes = pc.or_(passes, column.is_null())
        return np.asarray(passes)

    def _value_set(self, dtype: pa.DataType) -> pa.Array:
        """Return those of the values that a column of this type can have."""
        if self._of_text:
            return pa.array([value.encode() for value in self.values], pa.binary()).cast(dtype)
        possible = []
        for value in self.values:
            if pa.types.is_boolean(dtype):
                possible += [bool(value)] if value in (0, 1) else []
                continue
            try:
                possible.append(_as_type(float(value) if isinstance(value, bool) else value, dtype))
            except (pa.ArrowInvalid, OverflowError):  # such as 0.5 in an integer column
                continue
        return pa.array(possible, dtype)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "lang": ["en", "", None, "ü", "EN", "en"],
                "n": pa.array([1.0, 0.5, None, float("nan"), -0.0, 1e300], pa.float64()),
                "flag": [True, False, None, True, False, True],
            }
        )
        yield Case(cls(field="lang", values=("en", "ü")), batch)
        yield Case(cls(field="lang", values=["en"], keep_null=True), batch, "nulls")
        yield Case(cls(field="n", values=(0, 0.5, True)), batch, "numbers")
        yield Case(cls(field="flag", values=(True, 2)), batch, "flag")


def _as_type(value: float, dtype: pa.DataType) -> Any:
    """Return the value of a type that equals a number."""
    if pa.types.is_floating(dtype) and isinstance(value, int) and float(value) != value:
        raise pa.ArrowInvalid(f"no {dtype} is {value}")
    if isinstance(value, int) and (pa.types.is_decimal(dtype) or pa.types.is_integer(dtype)):
        return pa.scalar(value, dtype).as_py()
    return pa.scalar(value).cast(dtype).as_py()


_NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
