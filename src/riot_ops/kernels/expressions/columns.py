"""Values of an expression: columns with validity and errors, their kinds, and how a field becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from riot_ops.kernels.arrays.arrow import boolean_column, numpy_values, pack_bits, truth_codes, valid_mask
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats
from riot_ops.kernels.text.strings import non_utf8

__all__ = [
    "BOOL",
    "FLOAT",
    "NULL",
    "TEXT",
    "UNITS",
    "WORDS",
    "Column",
    "Kind",
    "Mask",
    "arrow_column",
    "arrow_values",
    "constant",
    "integer",
    "kind_of",
    "known",
    "load_field",
    "marked",
    "merged",
    "restricted",
    "truth_of",
    "valid_of",
]

Mask = npt.NDArray[np.bool_]

INT64, UINT64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
#: Units of times and durations, in a second.
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400


class Kind(NamedTuple):
    """What the values of a part of an expression are.

    Parameters
    ----------
    name : "bool", "int", "float", "decimal", "text", "time", "duration" or "null"
    unit : str
        Unit of times and durations.
    low, high : int
        Bounds of integers that are known without data.
    unsigned : bool
        Whether integers are stored as uint64 instead of int64.
    large : bool
        Whether texts have offsets of 64 bits.
    digits, scale : int
        Digits of decimals before and after the point.
    """

    name: str
    unit: str = ""
    low: int = 0
    high: int = 0
    unsigned: bool = False
    large: bool = False
    digits: int = 0
    scale: int = 0

    @property
    def word(self) -> str:
        """The kind in a message."""
        return WORDS[self.name]

    @property
    def is_number(self) -> bool:
        """Whether it is an integer or a float."""
        return self.name in ("int", "float")

    @property
    def in_arrow(self) -> bool:
        """Whether the values stay in Arrow's arrays: those of texts and decimals."""
        return self.name in ("text", "decimal")

    @property
    def dtype(self) -> Any:
        """The type of the NumPy array."""
        if self.name == "int":
            return np.uint64 if self.unsigned else np.int64
        return {"bool": np.bool_, "float": np.float64, "null": np.float64}.get(self.name, np.int64)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of a result."""
        if self.name == "int":
            return pa.uint64() if self.unsigned else pa.int64()
        if self.name == "time":
            return pa.timestamp(self.unit, tz="UTC")
        if self.name == "duration":
            return pa.duration(self.unit)
        if self.name == "decimal":
            made = pa.decimal128 if self.digits + self.scale <= 38 else pa.decimal256
            return made(self.digits + self.scale, self.scale)
        if self.name == "text":
            return pa.large_string() if self.large else pa.string()
        return pa.bool_() if self.name == "bool" else pa.float64()


WORDS = {
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "decimal": "decimal",
    "text": "text",
    "time": "time",
    "duration": "duration",
    "null": "null",
}
BOOL, FLOAT, TEXT, NULL = Kind("bool"), Kind("float"), Kind("text"), Kind("null")


def integer(low: int, high: int, unsigned: bool = False) -> Kind:
    """Return the kind of integers with bounds, which are cut at those of the stored type."""
    lowest, highest = UINT64 if unsigned else INT64
    return Kind("int", low=max(low, lowest), high=min(high, highest), unsigned=unsigned)


class Column(NamedTuple):
    """The values of a part of an expression, one for each row, or one for all.

    Parameters
    ----------
    data : array
        A NumPy array, of texts and decimals an Arrow array or scalar. A value that is missing or bad is of no
        meaning, but False among booleans.
    valid : array of bool, optional
        Where a value is not missing; None: everywhere, or as an Arrow array says.
    bad : array of uint16, optional
        Number of the error of each row, 0 for none; None: no row has one.
    """

    data: Any
    valid: Any = None
    bad: Any = None


def marked(bad: Any, rows: Any, code: int) -> Any:
    """Add an error to rows that have none."""
    if not np.any(rows):
        return bad
    new = np.where(rows, np.uint16(code), np.uint16(0))
    return new if bad is None else np.where(bad != 0, bad, new)


def merged(bad: Any, other: Any) -> Any:
    """Return the first error of each row."""
    if bad is None or other is None:
        return other if bad is None else bad
    return np.where(bad != 0, bad, other)


def restricted(bad: Any, rows: Any) -> Any:
    """Return the errors of some rows alone."""
    return None if bad is None else np.where(rows, bad, np.uint16(0))


def known(*columns: Column) -> Any:
    """Return where all of some columns have a value; None: everywhere."""
    found = None
    for column in columns:
        if column.valid is not None:
            found = column.valid if found is None else found & column.valid
    return found


def valid_of(column: Column) -> Any:
    """Return where a column has a value, as an array; None: everywhere."""
    data = column.data
    if isinstance(data, pa.Scalar):
        return None if data.is_valid else np.False_
    if isinstance(data, pa.Array):
        return valid_mask(data) if data.null_count else None
    return column.valid


# -- kinds of types and of constants ---------------------------------------------------------------


def kind_of(dtype: pa.DataType) -> Kind | None:
    """Return the kind of the values of a field; None if expressions do not read its type.

    >>> kind_of(pa.int8()) == integer(-128, 127), kind_of(pa.list_(pa.int8()))
    (True, None)
    """
    if types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    if types.is_null(dtype):
        return NULL
    if types.is_boolean(dtype):
        return BOOL
    if types.is_integer(dtype):
        bits = dtype.bit_width
        if types.is_unsigned_integer(dtype):
            return integer(0, 2**bits - 1, unsigned=bits == 64)
        return integer(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if types.is_floating(dtype):
        return FLOAT
    if types.is_decimal(dtype):
        return Kind("decimal", digits=dtype.precision - dtype.scale, scale=max(dtype.scale, 0))
    if types.is_timestamp(dtype) or types.is_duration(dtype):
        return Kind("time" if types.is_timestamp(dtype) else "duration", unit=dtype.unit)
    if types.is_date(dtype):
        return Kind("time", unit="s" if types.is_date32(dtype) else "ms")
    if types.is_large_string(dtype) or types.is_large_binary(dtype):
        return TEXT._replace(large=True)
    if types.is_string(dtype) or types.is_binary(dtype) or types.is_fixed_size_binary(dtype):
        return TEXT
    return TEXT if types.is_string_view(dtype) or types.is_binary_view(dtype) else None


def constant(value: Any) -> tuple[Kind, Column]:
    """Return the kind of a constant and its column."""
    if value is None:
        return NULL, Column(np.float64(np.nan), np.False_)
    if isinstance(value, bool):
        return BOOL, Column(np.bool_(value))
    if isinstance(value, int):
        kind = integer(value, value, unsigned=value >= 2**63)
        return kind, Column(kind.dtype(value))
    if isinstance(value, float):
        return FLOAT, Column(np.float64(value))
    if isinstance(value, str):
        return TEXT, Column(pa.scalar(value, pa.string()))
    if isinstance(value, timedelta):
        return Kind("duration", unit="us"), Column(np.int64(value // timedelta(microseconds=1)))
    since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo)
    return Kind("time", unit="us"), Column(np.int64(since // timedelta(microseconds=1)))


# -- fields ----------------------------------------------------------------------------------------


def load_field(name: str, dtype: pa.DataType, kind: Kind, not_utf8: int) -> Callable[[AnyRows], Column]:
    """Return a function that reads a field of a batch or lazy rows; ``not_utf8`` is the error of wrong bytes."""
    if kind.name == "float" and not types.is_dictionary(dtype):

        def load_floats(rows: AnyRows) -> Column:
            values, valid = floats(rows, name)  # lazy rows keep them for all its readers
            return Column(values, valid if valid.size else None)

        return load_floats
    convert = _CONVERTERS[kind.name]

    def load(rows: AnyRows) -> Column:
        column = rows.column(name)
        if types.is_dictionary(dtype):
            column = column.dictionary_decode()
        return convert(column, not_utf8)

    return load


def _load_null(column: pa.Array, not_utf8: int) -> Column:
    return Column(np.full(len(column), np.nan), np.zeros(len(column), np.bool_))


def _load_floats(column: pa.Array, not_utf8: int) -> Column:
    values = column.cast(pa.float64())
    return Column(numpy_values(values.fill_null(np.nan)), _valid(column))


def _load_booleans(column: pa.Array, not_utf8: int) -> Column:
    codes = truth_codes(column)
    return Column(codes == 1, codes >= 0 if column.null_count else None)


def _load_integers(column: pa.Array, not_utf8: int) -> Column:
    dtype = column.type
    valid = _valid(column)
    if types.is_date32(dtype):
        days = _numbers(column.cast(pa.int32()))
        return Column(days.astype(np.int64) * _DAY, valid)
    if types.is_temporal(dtype):
        return Column(_numbers(column.view(pa.int64())), valid)
    numbers = _numbers(column)
    return Column(numbers if numbers.itemsize == 8 else numbers.astype(np.int64), valid)


def _load_decimals(column: pa.Array, not_utf8: int) -> Column:
    return Column(column)


def _load_texts(column: pa.Array, not_utf8: int) -> Column:
    dtype, bad = column.type, None
    if types.is_string(dtype) or types.is_large_string(dtype):
        return Column(column)
    if types.is_string_view(dtype):
        return Column(column.cast(pa.string()))
    if not types.is_large_binary(dtype):
        column = column.cast(pa.binary())
    wrong = non_utf8(column)
    if wrong.any():
        bad = marked(None, wrong, not_utf8)
        column = pc.if_else(boolean_column(wrong), pa.scalar(None, column.type), column)
    return Column(column.cast(pa.large_string() if types.is_large_binary(dtype) else pa.string()), None, bad)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return integers as an array, any number where null, without copying."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    stored = column.buffers()[1]
    if stored is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(stored, dtype, len(column), column.offset * dtype.itemsize)


def _valid(column: pa.Array) -> Any:
    return valid_mask(column) if column.null_count else None


_CONVERTERS: dict[str, Callable[[pa.Array, int], Column]] = {
    "null": _load_null,
    "float": _load_floats,
    "bool": _load_booleans,
    "int": _load_integers,
    "time": _load_integers,
    "duration": _load_integers,
    "text": _load_texts,
    "decimal": _load_decimals,
}


# -- results ---------------------------------------------------------------------------------------


def arrow_column(column: Column, kind: Kind, size: int) -> pa.Array:
    """Return the values of an expression as an Arrow column; a NaN is null.

    >>> arrow_column(Column(np.array([1.0, np.nan])), FLOAT, 2).to_pylist()
    [1.0, None]
    """
    data, dtype = column.data, kind.arrow_type
    if kind.in_arrow:
        if isinstance(data, pa.Scalar):
            return pa.repeat(data.cast(dtype), size)
        return data if data.type == dtype else data.cast(dtype)
    values, valid = np.ascontiguousarray(_of_size(data, size), kind.dtype), column.valid
    if kind.name in ("float", "null"):
        known = ~np.isnan(values)
        valid = known if valid is None else known & valid
    stored = pack_bits(values) if kind.name == "bool" else pa.py_buffer(values)
    missing = 0
    if valid is not None:
        valid = _of_size(valid, size)
        missing = size - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(dtype, size, [pack_bits(valid) if missing else None, stored], missing)


def _of_size(data: Any, size: int) -> Any:
    return data if np.shape(data) == (size,) else np.broadcast_to(data, size)


def arrow_values(columns: Sequence[Column], dtype: pa.DataType | None = None) -> list[Any]:
    """Return the values of texts or decimals, all of one type: the given one, or that of texts."""
    values = [column.data for column in columns]
    if dtype is None and len({value.type for value in values}) > 1:
        dtype = pa.large_string()
    return [value if dtype is None or value.type == dtype else value.cast(dtype) for value in values]


def truth_of(found: Any, texts: Any) -> Column:
    """Return a comparison of texts, from an Arrow column or a mask that is False for null."""
    if isinstance(found, pa.Array):
        codes = truth_codes(found)
        return Column(codes == 1, codes >= 0 if found.null_count else None)
    return Column(found, valid_of(Column(texts)))
