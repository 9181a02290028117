"""Range filter: drop, blank or reject readings outside their valid range."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import OWN_CHECK, Names, as_names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import stream_schema
from riot_ops.kernels.arrays.arrow import float_column, readonly, valid_mask
from riot_ops.kernels.arrays.exact import compared, exact_numbers, exact_pair
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats, materialize
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.strings import name_codes
from riot_ops.task import Case, FilterTask, Requirement, register, replace_column

__all__ = ["RangeFilter"]

Bounds = tuple[tuple[str, float, float], ...]

#: Integer bounds below it in size are compared exactly.
MAX_BOUND = 1 << 100


@kernel
def in_range(values: Any, valid: Any, codes: Any, lower: Any, upper: Any, out: Any) -> None:
    for i in range(values.size):
        c = codes[i]
        if c < 0 or (valid.size > 0 and not valid[i]):
            out[i] = True  # no bounds, or no value
        else:
            out[i] = lower[c] <= values[i] <= upper[c]


@register
@dataclass(frozen=True, kw_only=True)
class RangeFilter(FilterTask):
    """Drop readings outside the valid range of their type, blank them for later repair, or reject them.

    A value passes iff ``min <= value <= max``. Integers are compared exactly; decimals are refused.

    Parameters
    ----------
    bounds : str, mapping of str to (min, max), or sequence of (name, min, max)
        The name of a stream schema whose bounds apply, such as ``"city"``; or the range of each name,
        in the unit of the reading; or text such as ``"light:0:5153,dust:83.36:3322.67"``, as one
        string or a list. Names without a range pass.
    by : tuple of str or None, default "obs_type"
        The one field with the name of the range that applies (long form). None is the wide form: the names
        are columns, and a record passes iff all of them pass.
    value : str, default "value"
        Numeric field to check in the long form.
    on_error : "drop", "null" or "reject", default "drop"
        Drop the record, keep it with the failing value set to null, or send it to the errors stream.

    Shapes and rates
    ----------------
    float64[n] -> float64[m], 1:0/1 (1:1 with ``on_error="null"``); O(1) time, no state.

    Missing values
    --------------
    A null value passes; NaN fails. A null name has no range and passes.

    Errors
    ------
    With ``on_error="reject"``: ``out_of_range``. A malformed entry, ``min > max``, and an infinite or NaN bound are
    configuration errors.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task RGF.

    Examples
    --------
    >>> rgf = RangeFilter(bounds={"light": (0, 10)}).session()
    >>> [len(rgf.push({"obs_type": "light", "value": v})) for v in (0, 10, -0.001, 10.001)]
    [1, 1, 0, 0]
    >>> repair = RangeFilter(bounds="light:0:10", on_error="null").session()
    >>> repair.push({"obs_type": "light", "value": 11.0})
    [{'obs_type': 'light', 'value': None}]
    """

    code: ClassVar[str] = "RGF"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"
    accepts_lazy_rows: ClassVar[bool] = True

    bounds: Annotated[str | Mapping[str, Sequence[float]] | Sequence[Any], OWN_CHECK] = "city"
    by: Names | None = "obs_type"
    value: str = "value"
    on_error: Literal["drop", "null", "reject"] = "drop"

    def validate(self) -> None:
        if self.by is not None and len(as_names(self.by)) != 1:
            raise ConfigError(f"range_filter: by must be one field, or None, got {self.by!r}")
        if isinstance(self.bounds, str) and ":" not in self.bounds:
            if not stream_schema(self.bounds).bounds:
                raise ConfigError(f"range_filter: the stream schema {self.bounds!r} has no bounds")
            return
        object.__setattr__(self, "bounds", _normalized_bounds(self.bounds))

    @property
    def ranges(self) -> Bounds:
        """The bounds as ``(name, min, max)``."""
        if isinstance(self.bounds, str):
            return tuple((name, low, high) for name, (low, high) in stream_schema(self.bounds).bounds.items())
        return cast("Bounds", self.bounds)

    @cached_property
    def _by(self) -> str:
        """The field with the name of the range."""
        return as_names(self.by or ())[0]

    def requires(self) -> Mapping[str, Requirement]:
        if self.by is None:
            return {name: "exact number" for name, _, _ in self.ranges}
        return {self._by: "text", self.value: "exact number"}

    def writes(self) -> frozenset[str] | None:
        if self.on_error != "null":
            return frozenset()
        return frozenset({self.value} if self.by is not None else {name for name, _, _ in self.ranges})

    def passes(self, batch: AnyRows, errors: RejectedRecords) -> npt.NDArray[np.bool_] | None:
        if self.on_error == "null":
            return None
        passed: npt.NDArray[np.bool_] | None = None
        for name, ok in self._checked_columns(batch):
            before, passed = passed, ok if passed is None else passed & ok
            if self.on_error == "reject":  # rejected once, for its first wrong field
                wrong = np.flatnonzero(~ok if before is None else before & ~ok)
                if wrong.size:
                    whole = materialize(batch)
                    errors.reject(whole, wrong, "out_of_range", self._messages(whole, name, wrong))
        return passed

    def _messages(self, batch: pa.RecordBatch, field: str, rows: npt.NDArray[np.int64]) -> pa.StringArray:
        """Describe the wrong value of each of some rows."""
        names = [name for name, _, _ in self.ranges]
        texts = [" to ".join(str(edge).removesuffix(".0") for edge in edges) for _, *edges in self.ranges]
        if self.by is None:
            allowed = pa.scalar(texts[names.index(field)])
        else:
            codes = name_codes(batch.column(self._by).take(pa.array(rows)), names)
            allowed = pa.array([f"{text}, the range of {name}" for name, text in zip(names, texts, strict=True)])
            allowed = allowed.take(pa.array(codes))
        values = batch.column(field).take(pa.array(rows)).cast(pa.string())
        return pc.binary_join_element_wise(f"{field} = ", values, " is not from ", allowed, "")

    def _checked_columns(self, batch: AnyRows) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Yield each column to check, with which of its values pass."""
        ranges = self.ranges
        if self.by is None:
            for name, low, high in ranges:
                if _is_exact(batch.schema.field(name).type, low, high):
                    yield name, _within(*floats(batch, name), low, high)
                else:
                    column = materialize(batch).column(name)
                    yield name, _exactly_within(column, exact_pair(low), exact_pair(high))
        else:
            codes = name_codes(batch.column(self._by), [name for name, _, _ in ranges])
            yield self.value, _passes(batch.column(self.value), codes, ranges)

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        if self.on_error != "null":
            return super().apply(batch, errors)
        for name, ok in self._checked_columns(batch):
            if not ok.all():
                column = batch.column(name)
                blanked = pc.if_else(pa.array(ok), column, pa.scalar(None, column.type))
                batch = replace_column(batch, name, blanked)
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "obs_type": ["temperature", "humidity", "unknown", None, "light", "temperature", "", "dust"],
                "value": [0.7, 69.2, 5.0, 1.0, None, float("nan"), float("inf"), float("-inf")],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(on_error="null"), batch, "null")
        wide = pa.RecordBatch.from_pydict(
            {
                "größe": pa.array([1.0, None, float("nan"), 7.5], pa.float64()),
                "n": pa.array([1, 2, None, 3], pa.int64()),
            }
        )
        yield Case(cls(by=None, bounds={"größe": (0, 5), "n": (1, 2)}), wide, "wide")
        yield Case(cls(by=None, bounds={"größe": (0, 5), "n": (1, 2)}, on_error="null"), wide, "wide null")
        yield Case(cls(by=None, bounds={"größe": (0, 5), "n": (1, 2)}, on_error="reject"), wide, "wide reject")


@functools.lru_cache(maxsize=4096)
def _limits(ranges: Bounds) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], bool]:
    """The lower and upper bounds as arrays of pairs (the nearest float64, the rest), and whether all rests are 0."""
    lower = np.array([exact_pair(low) for _, low, _ in ranges]).T.copy()
    upper = np.array([exact_pair(high) for _, _, high in ranges]).T.copy()
    return readonly(lower), readonly(upper), not (lower[1].any() or upper[1].any())


def _is_exact(dtype: pa.DataType, *bounds: float) -> bool:
    """Whether float64 holds all values of a type, and the bounds."""
    return dtype not in (pa.int64(), pa.uint64()) and not any(exact_pair(bound)[1] for bound in bounds)


def _exactly_within(column: pa.Array, low: tuple[Any, Any], high: tuple[Any, Any]) -> npt.NDArray[np.bool_]:
    """Return which values are null or within bounds, which are pairs."""
    values, rests = exact_numbers(column)
    inside = (compared(values, rests, *low) >= 0) & (compared(values, rests, *high) <= 0)
    found: npt.NDArray[np.bool_] = inside | ~valid_mask(column)
    return found


def _within(
    values: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_], low: float, high: float
) -> npt.NDArray[np.bool_]:
    passes: npt.NDArray[np.bool_] = (values >= low) & (values <= high)
    return passes | ~valid if valid.size else passes


def _passes(column: pa.Array, codes: npt.NDArray[np.int32], ranges: Bounds) -> npt.NDArray[np.bool_]:
    if pa.types.is_null(column.type):
        return np.ones(len(column), np.bool_)
    lower, upper, rounded = _limits(ranges)
    if not rounded or not _is_exact(column.type):
        inside = _exactly_within(column, (lower[0][codes], lower[1][codes]), (upper[0][codes], upper[1][codes]))
        return inside | (codes < 0)
    values, valid = float_column(column)
    out = np.empty(values.size, np.bool_)
    in_range(values, valid, readonly(codes), lower[0], upper[0], out)
    return out


def _normalized_bounds(bounds: Any) -> Bounds:
    """Normalise bounds of any form to sorted triples, so that equal bounds make equal tasks."""
    entries: list[Any]
    if isinstance(bounds, str):
        entries = [part for part in bounds.split(",") if part.strip()]
    elif isinstance(bounds, Mapping):
        entries = [
            (name, *pair) if isinstance(pair, Sequence) and not isinstance(pair, str) else (name, pair)
            for name, pair in bounds.items()
        ]
    elif isinstance(bounds, Sequence):
        entries = list(bounds)
    else:
        raise _wrong_bounds(bounds)
    ranges = sorted(_parse_entry(entry, bounds) for entry in entries)
    if not ranges:
        raise ConfigError(f"range_filter: bounds must not be empty, got {bounds!r}")
    for (name, _, _), (following, _, _) in itertools.pairwise(ranges):
        if name == following:
            raise ConfigError(f"range_filter: bounds name {name!r} twice")
    return tuple(ranges)


def _wrong_bounds(bounds: Any, why: str = "") -> ConfigError:
    return ConfigError(
        'range_filter: bounds must be {"name": (min, max), …}, [("name", min, max), …], "name:min:max,…" or the name '
        f'of a stream schema such as "city", got {value_text(bounds)}{why}'
    )


def _number(given: Any) -> float:
    """Return a bound as float64; an integer that is none stays an integer."""
    value = float(given)
    if isinstance(given, str) and given.lstrip("+-").isdecimal():
        given = int(given)
    return given if isinstance(given, int) and given != value and abs(given) < MAX_BOUND else value


def _parse_entry(entry: Any, bounds: Any) -> tuple[str, float, float]:
    parts = [part.strip() for part in entry.rsplit(":", 2)] if isinstance(entry, str) else entry
    try:
        name, low, high = parts
        if not isinstance(name, str) or not name:
            raise ValueError("the name must be a non-empty text")
        low, high = _number(low), _number(high)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong_bounds(bounds, f": {value_text(entry)} is not name, min, max: {error}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(f"range_filter: the bounds of {name!r} must be finite, got {low} and {high}")
    if low > high:
        raise ConfigError(f"range_filter: min {low} of {name!r} is above its max {high}")
    return name, low, high
