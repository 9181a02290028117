"""Window aggregates by name: each is a function of the cells of a few stats.

A mean and a sum of one field share their stats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from math import inf, isfinite, isinf
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.casting import is_key_type
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.parameters import MAX_LENGTH
from riot_ops.kernels.arrays.arrow import NO_MASK, nullable_column
from riot_ops.kernels.arrays.exact import exact_result, exact_type, normalized
from riot_ops.kernels.stats import accumulators as loops
from riot_ops.kernels.stats.hyperloglog import alpha, linear_counts
from riot_ops.task import Requirement
from riot_ops.tasks.window.windowing.custom_stat import Aggregate, CustomStat
from riot_ops.tasks.window.windowing.sample import quantiles
from riot_ops.tasks.window.windowing.stats import (
    CLIPPED,
    RELATIONS,
    Cells,
    ClippedMeans,
    Counts,
    DistinctRegisters,
    ExactSums,
    ExponentialMeans,
    Extremes,
    Firsts,
    Lasts,
    Lines,
    MatchCounts,
    Moments,
    Products,
    Stat,
    Sums,
    TimeGaps,
    TimeSpans,
    Weights,
    is_whole,
)
from riot_ops.tasks.window.windowing.value_stats import Collected, DistinctHashes, HashSet, Samples, ValueCounts

__all__ = ["BoundAggregate", "bind_aggregate", "field_of"]

#: Values are compared with whole numbers below it in size.
MAX_BOUND = 2**100


@dataclass(frozen=True)
class BoundAggregate:
    """An aggregate of a window, bound to its field.

    Attributes
    ----------
    stats : tuple of Stat
        Stats whose cells it reads.
    kind : pyarrow.DataType
        Type of its result.
    needs : str
        Requirement on its field.
    result : function of cells
        Computes its value for each group.
    timed : bool
        Whether it depends on the event times of records.
    ordered : bool
        Whether it is only known at each record, as it depends on the order of all records.
    weight : (str, str) or None
        A second field and the requirement on it.
    """

    stats: tuple[Stat, ...]
    dtype: pa.DataType
    needs: Requirement
    result: Callable[[Cells], pa.Array]
    timed: bool = False
    ordered: bool = False
    weight: tuple[str, Requirement] | None = None


def field_of(spec: Any) -> str | None:
    """Return the field that an aggregate reads; None for one of records."""
    return None if isinstance(spec, str) else spec[0]


def bind_aggregate(name: str, spec: Any, schema: pa.Schema | None = None) -> BoundAggregate:
    """Bind the aggregate that ``(field, function, option …)`` names; ``schema`` has the type of its field."""
    if isinstance(spec, str) and spec in _FUNCTIONS:
        spec = (None, spec)
    if not isinstance(spec, (tuple, list)) or len(spec) < 2:
        raise ConfigError(
            f"aggregates: {name!r} must be (field, function, …) such as ('value', 'mean'), or one of "
            f"{', '.join(_RECORD_AGGREGATES)}, got {spec!r}{did_you_mean(spec, _RECORD_AGGREGATES)}"
        )
    of, function, *options = spec
    if isinstance(function, Aggregate):
        make, max_options = functools.partial(_custom, function), 0
    elif isinstance(function, str) and function in _FUNCTIONS:
        make, max_options = _FUNCTIONS[function]
    elif isinstance(of, Aggregate) or (isinstance(of, str) and of in _FUNCTIONS):
        right = ", ".join(repr(one) for one in (function, of, *options))
        right = repr(of) if function is None and not options else f"({right})"
        raise ConfigError(f"aggregates: {name!r}: the field comes before the function: write {right}, got {spec!r}")
    else:
        hint = did_you_mean(function, _FUNCTIONS)
        raise ConfigError(
            f"aggregates: {name!r}: the function must be one of {', '.join(_FUNCTIONS)} or an Aggregate, "
            f"got {function!r}{hint}"
        )
    if not isinstance(of, str) and not (of is None and function in _RECORD_AGGREGATES):
        raise ConfigError(
            f"aggregates: {name!r}: {function if isinstance(function, str) else function.name} needs a field, "
            f"as in ('value', {function!r}), got {of!r}"
        )
    if len(options) > max_options:
        raise ConfigError(
            f"aggregates: {name!r}: {function} takes {max_options} options after its field, got {options!r}"
        )
    dtype = _type_of(of, schema)
    if function == "top" and len(options) == 2:
        options.append(_type_of(options[1], schema))
    return make(name, of, dtype, *options)


def _type_of(field: Any, schema: pa.Schema | None) -> pa.DataType | None:
    return schema.field(field).type if schema is not None and field in schema.names else None


def _null_where_empty(values: npt.NDArray[np.float64], n: Any) -> pa.Array:
    missing = np.equal(n, 0)
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def _count(name: str, of: str | None, dtype: pa.DataType | None) -> BoundAggregate:
    stat = Counts(of)
    (cell,) = stat.cells()
    return BoundAggregate((stat,), pa.int64(), "any", lambda cells: pa.array(cells[cell]))


def _numeric(dtype: pa.DataType) -> bool:
    return bool(is_whole(dtype) or pa.types.is_floating(dtype))


def _value_aggregate(stat: type[Stat], parts: slice) -> Any:
    """Make an aggregate that takes one of the values, with their type: the cells ``parts`` are its pair."""

    def make(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
        counts, wanted = Counts(of), stat(of)
        (n,) = counts.cells()
        high, rest = list(wanted.cells())[parts]

        def result(cells: Cells) -> pa.Array:
            return exact_result(cells[high], cells[rest], np.asarray(cells[n]) == 0, dtype)

        return BoundAggregate((counts, wanted), exact_type(dtype), "value", result)

    return make


def _mean(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
    counts, sums = Counts(of), Sums(of)
    (n,), (total, rest) = counts.cells(), sums.cells()

    def result(cells: Cells) -> pa.Array:
        with np.errstate(all="ignore"):
            if sums.whole in cells:
                return _null_where_empty(cells[sums.whole] / cells[n], cells[n])
            if sums.plain in cells:
                return _null_where_nan(cells[sums.plain] / (cells[n] * loops.SCALE))
            return _null_where_empty((cells[total] + cells[rest]) / cells[n] / loops.SCALE, cells[n])

    return BoundAggregate((counts, sums), pa.float64(), "number", result)


def _sum(name: str, of: str, dtype: pa.DataType | None, empty: Any = None) -> BoundAggregate:
    _check_empty(name, empty)
    counts, sums = (() if empty == 0 else (Counts(of),)), Sums(of)
    total, rest = sums.cells()
    kind = dtype
    if dtype is not None:
        kind = pa.float64() if not is_whole(dtype) else pa.uint64() if dtype == pa.uint64() else pa.int64()

    def result(cells: Cells) -> pa.Array:
        n = [cells[name] for stat in counts for name in stat.cells()]
        if sums.whole in cells:
            return _null_where_empty(cells[sums.whole], n[0]) if n else pa.array(cells[sums.whole])
        with np.errstate(all="ignore"):
            if sums.plain in cells:
                return nullable_column(cells[sums.plain] / loops.SCALE, np.equal(n[0], 0) if n else NO_MASK)
            missing = np.equal(n[0], 0) if n else np.zeros(len(cells[total]), np.bool_)
            return exact_result(*normalized(cells[total] / loops.SCALE, cells[rest] / loops.SCALE), missing, kind)

    return BoundAggregate((*counts, sums), kind or pa.float64(), "exact number", result)


def _check_empty(name: str, empty: Any) -> None:
    if empty is not None and (isinstance(empty, bool) or empty != 0):
        raise ConfigError(f"aggregates: {name!r}: the sum of no values is None or 0, got {empty!r}")


def _exact_sum(name: str, of: str, dtype: pa.DataType | None, empty: Any = None) -> BoundAggregate:
    _check_empty(name, empty)
    counts, sums = (() if empty == 0 else (Counts(of),)), ExactSums(of)

    def result(cells: Cells) -> pa.Array:
        values = sums.rounded_sums(cells)
        missing = np.isnan(values)
        for stat in counts:
            missing |= np.equal(cells[next(iter(stat.cells()))], 0)
        return nullable_column(values, missing)

    return BoundAggregate((*counts, sums), pa.float64(), "exact number", result)


def _exact_mean(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
    counts, sums = Counts(of), ExactSums(of)
    (n,) = counts.cells()

    def result(cells: Cells) -> pa.Array:
        values = sums.rounded_sums(cells) / np.maximum(cells[n], 1)
        values[cells[n] == 0] = np.nan
        return _null_where_nan(values)

    return BoundAggregate((counts, sums), pa.float64(), "exact number", result)


def _deviation(name: str, of: str, dtype: pa.DataType | None, otherwise: Any = None) -> BoundAggregate:
    stat = Moments(of)
    n, _, m2 = stat.cells()

    def result(cells: Cells) -> pa.Array:
        if stat.variance in cells:
            spread = np.sqrt(cells[stat.variance])
            return _with_default(spread, np.isnan(spread), otherwise)
        return _with_default(_sample_deviation(cells[m2], cells[n]), cells[n] < 2, otherwise)

    _check_otherwise(name, otherwise)
    return BoundAggregate((stat,), pa.float64(), "number", result)


def _variance(name: str, of: str, dtype: pa.DataType | None, ddof: Any = 1) -> BoundAggregate:
    if ddof not in (0, 1) or isinstance(ddof, bool):
        raise ConfigError(f"aggregates: {name!r}: var takes 0 or 1 degrees of freedom after its field, got {ddof!r}")
    stat = Moments(of, ddof)
    n, _, m2 = stat.cells()

    def result(cells: Cells) -> pa.Array:
        if stat.variance in cells:
            return _null_where_nan(cells[stat.variance])
        # fmin: infinite where the squares overflow
        return _with_default(np.fmin(cells[m2] / np.maximum(cells[n] - ddof, 1), np.inf), cells[n] <= ddof, None)

    return BoundAggregate((stat,), pa.float64(), "number", result)


def _sample_deviation(m2: npt.NDArray[np.float64], n: Any) -> npt.NDArray[np.float64]:
    """Compute the sample standard deviation; infinite where it overflows float64."""
    with np.errstate(all="ignore"):
        spread = np.sqrt(m2 / np.maximum(n - 1, 1))
    return np.where(np.isnan(spread), np.inf, spread)


def _with_default(values: npt.NDArray[np.float64], missing: Any, otherwise: float | None) -> pa.Array:
    if otherwise is None:
        return pa.array(values, mask=missing) if missing.any() else pa.array(values)
    return pa.array(np.where(missing, float(otherwise), values))


def _check_otherwise(name: str, otherwise: Any) -> None:
    if otherwise is not None and (
        isinstance(otherwise, bool) or not isinstance(otherwise, (int, float)) or not isfinite(otherwise)
    ):
        raise ConfigError(
            f"aggregates: {name!r}: the replacement for a missing result must be a number, got {otherwise!r}"
        )


def _duration(name: str, of: str | None, dtype: pa.DataType | None) -> BoundAggregate:
    stat = TimeSpans(of)
    begin, end = stat.cells()

    def result(cells: Cells) -> pa.Array:
        none = cells[end] < cells[begin]
        return pa.array(np.where(none, 0, cells[end] - cells[begin]) / loops.US_PER_SECOND, mask=none)

    return BoundAggregate((stat,), pa.float64(), "any", result, timed=True)


def _mean_gap(name: str, of: str | None, dtype: pa.DataType | None, otherwise: Any = None) -> BoundAggregate:
    stat = TimeGaps(of)
    n, _, _, mean, _ = stat.cells()
    _check_otherwise(name, otherwise)
    return BoundAggregate(
        (stat,),
        pa.float64(),
        "any",
        lambda cells: _with_default(cells[mean] / loops.US_PER_SECOND, cells[n] < 2, otherwise),
        timed=True,
    )


def _gap_deviation(name: str, of: str | None, dtype: pa.DataType | None, otherwise: Any = None) -> BoundAggregate:
    stat = TimeGaps(of)
    n, *_, m2 = stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _with_default(_sample_deviation(cells[m2], cells[n] - 1) / loops.US_PER_SECOND, cells[n] < 3, otherwise)

    _check_otherwise(name, otherwise)
    return BoundAggregate((stat,), pa.float64(), "any", result, timed=True)


def _line(intercept: bool) -> Any:
    def make(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
        stat = Lines(of)
        _, origin, earliest, mean_x, mean_y, xx, xy = stat.cells()

        def result(cells: Cells) -> pa.Array:
            with np.errstate(all="ignore"):
                values = cells[xy] / cells[xx]
                if intercept:  # where the earliest value is
                    x = (cells[earliest] - cells[origin]) / loops.US_PER_SECOND
                    values = cells[mean_y] + values * (x - cells[mean_x])
            return _null_where_nan(np.where(np.isfinite(values), values, np.nan))

        return BoundAggregate((stat,), pa.float64(), "number", result, timed=True)

    return make


def _match_stat(name: str, of: str, relation: Any, bound: Any) -> MatchCounts:
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ConfigError(f"aggregates: {name!r}: the relation must be one of {' '.join(RELATIONS)}, got {relation!r}")
    if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not isfinite(bound):
        raise ConfigError(f"aggregates: {name!r}: values must be compared with a number, got {bound!r}")
    if isinstance(bound, int) and abs(bound) >= MAX_BOUND:
        raise ConfigError(f"aggregates: {name!r}: a whole number must be below 2^100 in size, got {bound!r}")
    if relation == "&" and (bound != int(bound) or not 0 < bound < 2**64):
        raise ConfigError(f"aggregates: {name!r}: the bits must be a positive integer below 2^64, got {bound!r}")
    return MatchCounts(of, relation, float(bound) if float(bound) == bound else bound)


def _matches(name: str, of: str, dtype: pa.DataType | None, relation: Any = None, bound: Any = None) -> BoundAggregate:
    stat = _match_stat(name, of, relation, bound)
    (hits,) = stat.cells()
    return BoundAggregate((stat,), pa.int64(), "exact number", lambda cells: pa.array(cells[hits]))


def _share(name: str, of: str, dtype: pa.DataType | None, relation: Any = None, bound: Any = None) -> BoundAggregate:
    counts, stat = Counts(of), _match_stat(name, of, relation, bound)
    (n,), (hits,) = counts.cells(), stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _null_where_empty(cells[hits] / np.maximum(cells[n], 1), cells[n])

    return BoundAggregate((counts, stat), pa.float64(), "exact number", result)


def _unique(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
    if dtype is not None and not is_key_type(dtype):
        raise ConfigError(
            f"aggregates: {name!r}: unique values of {of} = {dtype} cannot be counted; use text or numbers"
        )
    stat = DistinctHashes(of)
    (hashes,) = stat.cells()

    def result(cells: Cells) -> pa.Array:
        return pa.array([one.count if isinstance(one, HashSet) else one or 0 for one in cells[hashes]], pa.int64())

    return BoundAggregate((stat,), pa.int64(), "any", result)


def _quantile(name: str, of: str, dtype: pa.DataType | None, q: Any = None, accuracy: Any = None) -> BoundAggregate:
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ConfigError(f"aggregates: {name!r}: quantile needs a number from 0 to 1 after its field, got {q!r}")
    if accuracy is not None and (not isinstance(accuracy, float) or not 0.001 <= accuracy <= 0.5):
        raise ConfigError(f"aggregates: {name!r}: the accuracy must be from 0.001 to 0.5, got {accuracy!r}")
    stat = Samples(of, accuracy)
    (samples,) = stat.cells()

    def result(cells: Cells) -> pa.Array:
        found = quantiles(cells[samples], float(q))
        return _null_where_empty(found, ~np.isnan(found))

    return BoundAggregate((stat,), pa.float64(), "number", result)


def _distinct(name: str, of: str, dtype: pa.DataType | None, precision: Any = 10) -> BoundAggregate:
    if not isinstance(precision, int) or not 4 <= precision <= 16:
        raise ConfigError(f"aggregates: {name!r}: the precision must be from 4 to 16, got {precision!r}")
    if dtype is not None and not is_key_type(dtype):
        raise ConfigError(
            f"aggregates: {name!r}: distinct values of {of} = {dtype} cannot be counted; use text or numbers"
        )
    stat = DistinctRegisters(of, precision)

    def result(cells: Cells) -> pa.Array:
        (registers,) = (cells[cell] for cell in stat.cells())
        out = np.empty(len(registers))
        loops.distinct_estimates(registers, precision, alpha(precision), linear_counts(precision), out)
        return pa.array(np.floor(out + 0.5).astype(np.int64))

    return BoundAggregate((stat,), pa.int64(), "any", result)


def _weight_of(name: str, function: str, weight: Any) -> str:
    if not isinstance(weight, str):
        raise ConfigError(f"aggregates: {name!r}: {function} needs the field of the weights, got {weight!r}")
    return weight


def _top(
    name: str,
    of: str,
    dtype: pa.DataType | None,
    k: Any = None,
    weight: Any = None,
    of_weight: pa.DataType | None = None,
) -> BoundAggregate:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ConfigError(f"aggregates: {name!r}: top needs a number of values >= 1 after its field, got {k!r}")
    known = None if dtype is None or pa.types.is_null(dtype) else dtype
    if known is not None and pa.types.is_dictionary(known):
        known = known.value_type
    if known is not None and not (_numeric(known) or pa.types.is_string(known) or pa.types.is_large_string(known)):
        raise ConfigError(
            f"aggregates: {name!r}: top supports text, numbers and booleans, its field {of!r} has {dtype}"
        )
    stat = ValueCounts(of, None if weight is None else _weight_of(name, "top", weight))
    whole = weight is None or of_weight is None or is_whole(of_weight)
    label, kind = ("count" if weight is None else "weight"), (pa.int64() if whole else pa.float64())

    def result(cells: Cells) -> pa.Array:
        (counted,) = (cells[cell] for cell in stat.cells())
        best = [nsmallest(k, (one or {}).items(), key=lambda pair: (-pair[1], pair[0])) for one in counted]
        pairs = [pair for one in best for pair in one]
        # without a declared type, infer it from the values
        found = [v for v, _ in pairs]
        inferred = known if known is not None or pairs else pa.string()
        if inferred is None and any(isinstance(v, int) and v >= 2**63 for v in found):
            inferred = pa.uint64()
        values = pa.array(found, inferred)
        counts = _weights([n for _, n in pairs], kind if weight is None or of_weight is not None else None)
        ends = pa.array(np.cumsum([0, *map(len, best)]), pa.int32())
        return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([values, counts], ["value", label]))

    pairs = pa.list_(pa.struct([("value", known or pa.string()), (label, kind)]))
    needs: tuple[str, Requirement] | None = None if weight is None else (weight, "exact number")
    return BoundAggregate((stat,), pairs, "any", result, weight=needs)


def _weights(sums: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Build a column of sums, null where one does not fit; without a type, that of the sums."""
    if kind is None:
        kind = pa.float64() if any(isinstance(n, float) for n in sums) else pa.int64()
    return pa.array([None if isinstance(n, int) and not -(2**63) <= n < 2**63 else n for n in sums], kind)


def _weighted_mean(name: str, of: str, dtype: pa.DataType | None, weight: Any = None) -> BoundAggregate:
    weight = _weight_of(name, "weighted_mean", weight)
    products, weights = Products(of, weight), Weights(of, weight)
    cells_of = (*products.cells(), *weights.cells())

    def result(cells: Cells) -> pa.Array:
        with np.errstate(all="ignore"):
            if products.plain in cells:
                means = cells[products.plain] / cells[weights.plain]
            else:
                total, rest, whole, part = (cells[cell] for cell in cells_of)
                means = (total + rest) / (whole + part)
        return _null_where_nan(np.where(np.isfinite(means), means, np.nan))

    return BoundAggregate((products, weights), pa.float64(), "number", result, weight=(weight, "number"))


def _collect(name: str, of: str, dtype: pa.DataType | None) -> BoundAggregate:
    stat = Collected(of)
    (cell,) = stat.cells()
    known = None if dtype is None or pa.types.is_null(dtype) else dtype

    def result(cells: Cells) -> pa.Array:
        parts = [part for one in cells[cell] for part in one or ()]
        kind = known or (parts[0].type if parts else pa.string())
        sizes = [sum(map(len, one or ())) for one in cells[cell]]
        values = pa.concat_arrays([part.cast(kind) for part in parts]) if parts else pa.nulls(0, kind)
        return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *sizes]), pa.int32()), values)

    return BoundAggregate((stat,), pa.list_(known or pa.string()), "any", result)


def _checked_number(name: str, what: str, value: Any, low: float, high: float = inf) -> float:
    """Raise unless an option is a number from ``low`` on up to ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high or isinf(value):
        raise ConfigError(f"aggregates: {name!r}: {what} must be a number from {low} on, got {value!r}")
    return value


def _ewm(name: str, of: str, dtype: pa.DataType | None, span: Any = None, warmup: Any = 0) -> BoundAggregate:
    _checked_number(name, "the span", span, 1)
    if not isinstance(warmup, int) or isinstance(warmup, bool) or warmup < 0:
        raise ConfigError(f"aggregates: {name!r}: the warm-up must be a number of values >= 0, got {warmup!r}")
    stat = ExponentialMeans(of, float(span), warmup)
    mean, _ = stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _null_where_nan(cells[mean])

    return BoundAggregate((stat,), pa.float64(), "number", result, ordered=True)


def _null_where_nan(values: npt.NDArray[np.float64]) -> pa.Array:
    return nullable_column(values, np.isnan(values))


def _clipped(cell: str, kind: pa.DataType) -> Any:
    def make(
        name: str, of: str, dtype: pa.DataType | None, window: Any = 30, sigma: Any = 2.0, whole: Any = False
    ) -> BoundAggregate:
        if not isinstance(window, int) or isinstance(window, bool) or not 2 <= window <= MAX_LENGTH:
            raise ConfigError(
                f"aggregates: {name!r}: the window must be a number of values from 2 to {MAX_LENGTH:,}, got {window!r}"
            )
        if _checked_number(name, "sigma", sigma, 0) == 0:
            raise ConfigError(f"aggregates: {name!r}: sigma must be greater than 0, got {sigma!r}")
        if not isinstance(whole, bool):
            raise ConfigError(f"aggregates: {name!r}: whole must be True or False, got {whole!r}")
        stat = ClippedMeans(of, window, float(sigma), whole)
        taken = [*stat.cells()][CLIPPED.index(cell)]

        def result(cells: Cells) -> pa.Array:
            return _null_where_nan(cells[taken]) if cell == "average" else pa.array(cells[taken])

        return BoundAggregate((stat,), kind, "number", result, ordered=True)

    return make


def _custom(aggregate: Aggregate, name: str, of: str | None, dtype: pa.DataType | None) -> BoundAggregate:
    stat = CustomStat(of, aggregate)
    return BoundAggregate(
        (stat,), pa.float64(), "number", lambda cells: _null_where_empty(v := stat.results(cells), ~np.isnan(v))
    )


#: Aggregates of records, which need no field.
_RECORD_AGGREGATES = ("count", "duration", "mean_gap", "std_gap")
#: By name: the function that makes the aggregate, and the number of options after its field.
_FUNCTIONS: dict[str, tuple[Any, int]] = {
    "count": (_count, 0),
    "sum": (_sum, 1),
    "mean": (_mean, 0),
    "fsum": (_exact_sum, 1),
    "fmean": (_exact_mean, 0),
    "min": (_value_aggregate(Extremes, slice(0, None, 2)), 0),
    "max": (_value_aggregate(Extremes, slice(1, None, 2)), 0),
    "first": (_value_aggregate(Firsts, slice(0, 2)), 0),
    "last": (_value_aggregate(Lasts, slice(0, 2)), 0),
    "std": (_deviation, 1),
    "ewm": (_ewm, 2),
    "clipped_mean": (_clipped("average", pa.float64()), 3),
    "clipped_count": (_clipped("size", pa.int64()), 3),
    "var": (_variance, 1),
    "quantile": (_quantile, 2),
    "median": (functools.partial(_quantile, q=0.5), 0),
    "distinct": (_distinct, 1),
    "unique": (_unique, 0),
    "top": (_top, 2),
    "weighted_mean": (_weighted_mean, 1),
    "collect": (_collect, 0),
    "matches": (_matches, 2),
    "share": (_share, 2),
    "duration": (_duration, 0),
    "mean_gap": (_mean_gap, 1),
    "std_gap": (_gap_deviation, 1),
    "slope": (_line(False), 0),
    "intercept": (_line(True), 0),
}
