"""Class labels by quartile, for training a classifier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["LabelQuartile", "percentiles"]

PERCENTS = (25.0, 50.0, 75.0)


def percentiles(values: npt.NDArray[np.float64], percents: Iterable[float]) -> npt.NDArray[np.float64]:
    """Percentiles at position ``p (n + 1) / 100`` of the sorted values, with linear interpolation.

    >>> percentiles(np.arange(1.0, 101.0), (25, 50, 75)).tolist()
    [25.25, 50.5, 75.75]
    """
    return np.quantile(values, np.fromiter(percents, np.float64) / 100, method="weibull")


@register
@dataclass(frozen=True, kw_only=True)
class LabelQuartile(StatelessTask):
    """Label each value of a set with the quartile of the set that it falls into.

    With the percentiles P25, P50 and P75 of the set, each at position ``p (n + 1) / 100`` of its
    sorted values with linear interpolation: the first label for ``x <= P25``, the second for
    ``x <= P50``, the third for ``x <= P75``, else the fourth. Equal values get the same label, the
    lowest that fits.

    Parameters
    ----------
    value : str, default "value"
        Field with the set: a list of numbers in each record.
    output : str, default "class"
        Field for the list of labels.
    classes : tuple of 4 str, default ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
        Labels from the lowest quartile to the highest.
    reverse : bool, default False
        Whether to assign the labels in reverse order, for values that are bad when they are high.

    Shapes and rates
    ----------------
    list of float64[n] -> list of string[n], 1:1; O(n log n) time per set.

    Missing values
    --------------
    A null or NaN in a list gets a null label and does not count for the percentiles. A null list
    gives null.

    Errors
    ------
    ``not_finite``: the list has an infinite value.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, annotation in TRAIN.
    .. [2] R. J. Hyndman, Y. Fan, *Sample Quantiles in Statistical Packages*, 1996, definition 6.

    Examples
    --------
    >>> label = LabelQuartile().session()
    >>> label.push({"value": [4.0, 1.0, 3.0, 2.0]})[0]["class"]
    ['EXCELLENT', 'BAD', 'VERYGOOD', 'GOOD']
    """

    code: ClassVar[str] = "QLB"
    category: ClassVar[str] = "Parse"

    value: str = "value"
    output: str = "class"
    classes: tuple[str, ...] = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
    reverse: bool = False

    def validate(self) -> None:
        if len(self.classes) != 4:
            raise ConfigError(f"classes must be 4 labels, one per quartile, got {self.classes!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {self.value: "any"}

    @cached_property
    def float64_fields(self) -> tuple[str, ...]:
        return (self.value,)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = schema.field(self.value).type
        item = dtype.value_type if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) else pa.string()
        number = pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_null(item)
        if not (number or pa.types.is_null(dtype)):
            raise ConfigError(f"label_quartile needs lists of numbers in the field {self.value!r}, got {dtype}")
        return with_field(schema, pa.field(self.output, pa.list_(pa.string())))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        column = batch.column(self.value).cast(pa.large_list(pa.float64()), safe=False)
        sets = [float_column(column[row].values)[0] if column[row].is_valid else None for row in range(len(column))]
        infinite = np.array([values is not None and bool(np.isinf(values).any()) for values in sets], np.bool_)
        if infinite.any():
            errors.reject(batch, infinite, "not_finite", f"{self.value} has an infinite value")
            batch = batch.filter(pa.array(~infinite))
            sets = [values for values, bad in zip(sets, infinite, strict=True) if not bad]
        filled = [np.empty(0) if values is None else values for values in sets]
        offsets = np.cumsum([0, *(values.size for values in filled)]).astype(np.int32)
        codes = np.concatenate([np.empty(0, np.int64), *map(self._codes, filled)])
        words = pa.array(self.classes[::-1] if self.reverse else self.classes, pa.string())
        lists = pa.ListArray.from_arrays(
            pa.array(offsets),
            words.take(pa.array(codes, mask=codes < 0)),
            mask=pa.array([values is None for values in sets], pa.bool_()),
        )
        return replace_column(batch, self.output, lists)

    def _codes(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Quartile of each value, 0 to 3; -1 where it is missing."""
        known = ~np.isnan(values)
        codes = np.full(values.size, -1, np.int64)
        if known.any():
            small = values[known] / 4  # exact, and differences cannot overflow
            codes[known] = np.searchsorted(percentiles(small, PERCENTS), small, side="left")
        return codes

    @classmethod
    def cases(cls) -> Iterable[Case]:
        inf, nan = float("inf"), float("nan")
        lists = [[3.0, 1.0, 2.0, 2.0, None, 8.0], [], None, [nan], [1e308, -1e308, 0.0], [1.0, inf], [5.0] * 5]
        batch = pa.RecordBatch.from_pydict({"key": list("abcdefü"), "value": pa.array(lists, pa.list_(pa.float64()))})
        yield Case(cls(), batch)
        yield Case(cls(reverse=True, output="level", classes=("1", "2", "ü", "4")), batch, "reverse")
