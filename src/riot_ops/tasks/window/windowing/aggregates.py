"""What a window says of its records: an aggregate is a function of the cells of a few stats.

So a mean and a sum of one field share theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.kernels.stats import cells as loops
from riot_ops.kernels.stats.hyperloglog import alpha, countable, linear_counts
from riot_ops.task import Requirement
from riot_ops.tasks.window.windowing.stats import (
    LEAST,
    RELATIONS,
    Aggregate,
    Bins,
    Cells,
    Counts,
    Extremes,
    Firsts,
    Gaps,
    Hits,
    Lasts,
    Own,
    Ranks,
    Spans,
    Spreads,
    Stat,
    Sums,
)
from riot_ops.tasks.window.windowing.values import Tops, Uniques

__all__ = ["Reading", "reading"]

#: In microseconds.
SECOND = 1e6


@dataclass(frozen=True)
class Reading:
    """One aggregate of a window.

    Attributes
    ----------
    stats : tuple of Stat
        What it reads.
    kind : pyarrow.DataType
        Of its result.
    needs : str
        What its field must be.
    result : function of cells
        Its value for each group.
    timed : bool
        Whether it is about times of records.
    """

    stats: tuple[Stat, ...]
    kind: pa.DataType
    needs: Requirement
    result: Callable[[Cells], pa.Array]
    timed: bool = False


def reading(name: str, given: Any, schema: pa.Schema | None = None) -> Reading:
    """The aggregate that ``(function, field, option …)`` names; ``schema`` has the type of its field."""
    if isinstance(given, str) or not isinstance(given, (tuple, list)) or len(given) < 2:
        raise ConfigError(f"aggregates: {name!r} must be (function, field, …) such as ('mean', 'value'), got {given!r}")
    function, of, *options = given
    if isinstance(function, Aggregate):
        make, most = functools.partial(_own, function), 0
    elif isinstance(function, str) and function in _KINDS:
        make, most = _KINDS[function]
    else:
        hint = did_you_mean(function, _KINDS) if isinstance(function, str) else ""
        raise ConfigError(
            f"aggregates: {name!r}: the function must be one of {', '.join(_KINDS)} or an Aggregate, "
            f"got {function!r}{hint}"
        )
    if not isinstance(of, str) and not (of is None and function in _OF_RECORDS):
        raise ConfigError(f"aggregates: {name!r}: {function} needs the name of a field, got {of!r}")
    if len(options) > most:
        raise ConfigError(f"aggregates: {name!r}: {function} takes {most} options behind its field, got {options!r}")
    kind = None if schema is None or of not in schema.names else schema.field(of).type
    return make(name, of, kind, *options)


def _valid(values: npt.NDArray[np.float64], n: Any) -> pa.Array:
    return pa.array(values, mask=np.asarray(n) == 0)


def _counted(name: str, of: str | None, kind: pa.DataType | None) -> Reading:
    stat = Counts(of)
    (cell,) = stat.cells()
    return Reading((stat,), pa.int64(), "any", lambda cells: pa.array(cells[cell]))


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _number(stats: Callable[[str], tuple[Stat, ...]], value: Callable[..., Any]) -> Any:
    """An aggregate of numbers that is null where there is none: of the cells of the stats."""

    def make(name: str, of: str, kind: pa.DataType | None) -> Reading:
        counts, wanted = Counts(of), stats(of)
        (n,) = counts.cells()
        names = [cell for stat in wanted for cell in stat.cells()]

        def result(cells: Cells) -> pa.Array:
            with np.errstate(all="ignore"):
                return _valid(value(cells[n], *(cells[cell] for cell in names)), cells[n])

        return Reading((counts, *wanted), pa.float64(), "number", result)

    return make


def _deviation(name: str, of: str, kind: pa.DataType | None, otherwise: Any = None) -> Reading:
    stat = Spreads(of)
    n, _, m2 = stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _or(_spread(cells[m2], cells[n]), cells[n] < 2, otherwise)

    _check_otherwise(name, otherwise)
    return Reading((stat,), pa.float64(), "number", result)


def _spread(m2: npt.NDArray[np.float64], n: Any) -> npt.NDArray[np.float64]:
    """Sample standard deviation; infinite where it is beyond what a float holds."""
    with np.errstate(all="ignore"):
        spread = np.sqrt(m2 / np.maximum(n - 1, 1))
    return np.where(np.isnan(spread), np.inf, spread)


def _or(values: npt.NDArray[np.float64], missing: Any, otherwise: float | None) -> pa.Array:
    if otherwise is None:
        return pa.array(values, mask=missing)
    return pa.array(np.where(missing, float(otherwise), values))


def _check_otherwise(name: str, given: Any) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float)) or not isfinite(given)):
        raise ConfigError(f"aggregates: {name!r}: what stands in for a missing result must be a number, got {given!r}")


def _duration(name: str, of: str | None, kind: pa.DataType | None) -> Reading:
    stat = Spans(of)
    begin, end = stat.cells()

    def result(cells: Cells) -> pa.Array:
        none = cells[end] < cells[begin]
        return pa.array(np.where(none, 0, cells[end] - cells[begin]) / SECOND, mask=none)

    return Reading((stat,), pa.float64(), "any", result, timed=True)


def _mean_gap(name: str, of: str | None, kind: pa.DataType | None, otherwise: Any = None) -> Reading:
    stat = Gaps(of)
    n, _, _, mean, _ = stat.cells()
    _check_otherwise(name, otherwise)
    return Reading(
        (stat,), pa.float64(), "any", lambda cells: _or(cells[mean] / SECOND, cells[n] < 2, otherwise), timed=True
    )


def _gap_deviation(name: str, of: str | None, kind: pa.DataType | None, otherwise: Any = None) -> Reading:
    stat = Gaps(of)
    n, *_, m2 = stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _or(_spread(cells[m2], cells[n] - 1) / SECOND, cells[n] < 3, otherwise)

    _check_otherwise(name, otherwise)
    return Reading((stat,), pa.float64(), "any", result, timed=True)


def _hits(name: str, of: str, relation: Any, bound: Any) -> Hits:
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ConfigError(f"aggregates: {name!r}: the relation must be one of {' '.join(RELATIONS)}, got {relation!r}")
    if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not isfinite(bound):
        raise ConfigError(f"aggregates: {name!r}: values are compared with a number, got {bound!r}")
    if relation == "&" and (bound != int(bound) or not 0 < bound < 2**53):
        raise ConfigError(f"aggregates: {name!r}: bits are those of a whole number from 1 on, got {bound!r}")
    return Hits(of, relation, float(bound))


def _matches(name: str, of: str, kind: pa.DataType | None, relation: Any = None, bound: Any = None) -> Reading:
    stat = _hits(name, of, relation, bound)
    (hits,) = stat.cells()
    return Reading((stat,), pa.int64(), "number", lambda cells: pa.array(cells[hits]))


def _share(name: str, of: str, kind: pa.DataType | None, relation: Any = None, bound: Any = None) -> Reading:
    counts, stat = Counts(of), _hits(name, of, relation, bound)
    (n,), (hits,) = counts.cells(), stat.cells()

    def result(cells: Cells) -> pa.Array:
        return _valid(cells[hits] / np.maximum(cells[n], 1), cells[n])

    return Reading((counts, stat), pa.float64(), "number", result)


def _unique(name: str, of: str, kind: pa.DataType | None) -> Reading:
    if kind is not None and not countable(kind):
        raise ConfigError(f"aggregates: {name!r}: unique values of {kind} cannot be counted; use text or numbers")
    stat = Uniques(of)
    (hashes,) = stat.cells()
    return Reading(
        (stat,), pa.int64(), "any", lambda cells: pa.array([len(one or ()) for one in cells[hashes]], pa.int64())
    )


def _quantile(name: str, of: str, kind: pa.DataType | None, q: Any = None, accuracy: Any = 0.01) -> Reading:
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ConfigError(f"aggregates: {name!r}: quantile needs a number from 0 to 1 behind its field, got {q!r}")
    if not isinstance(accuracy, float) or not 0.001 <= accuracy <= 0.5:
        raise ConfigError(f"aggregates: {name!r}: the accuracy must be from 0.001 to 0.5, got {accuracy!r}")
    stat = Bins(of, accuracy)

    def result(cells: Cells) -> pa.Array:
        (bins,) = (cells[cell] for cell in stat.cells())
        out = np.empty(len(bins))
        loops.quantiles(bins, float(q), stat.scale, LEAST, out)
        return _valid(out, ~np.isnan(out))

    return Reading((stat,), pa.float64(), "number", result)


def _distinct(name: str, of: str, kind: pa.DataType | None, precision: Any = 10) -> Reading:
    if not isinstance(precision, int) or not 4 <= precision <= 16:
        raise ConfigError(f"aggregates: {name!r}: the precision must be from 4 to 16, got {precision!r}")
    if kind is not None and not countable(kind):
        raise ConfigError(f"aggregates: {name!r}: distinct values of {kind} cannot be counted; use text or numbers")
    stat = Ranks(of, precision)

    def result(cells: Cells) -> pa.Array:
        (registers,) = (cells[cell] for cell in stat.cells())
        out = np.empty(len(registers))
        loops.estimates(registers, precision, alpha(precision), linear_counts(precision), out)
        return pa.array(np.floor(out + 0.5).astype(np.int64))

    return Reading((stat,), pa.int64(), "any", result)


def _top(name: str, of: str, kind: pa.DataType | None, k: Any = None) -> Reading:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ConfigError(f"aggregates: {name!r}: top needs a number of values >= 1 behind its field, got {k!r}")
    known = None if kind is None or pa.types.is_null(kind) else kind
    if known is not None and pa.types.is_dictionary(known):
        known = known.value_type
    if known is not None and not (_numeric(known) or pa.types.is_string(known) or pa.types.is_large_string(known)):
        raise ConfigError(f"aggregates: {name!r}: top is of text, numbers or truth values, its field has {kind}")
    stat = Tops(of)

    def result(cells: Cells) -> pa.Array:
        (found,) = (cells[cell] for cell in stat.cells())
        best = [sorted(one or (), key=lambda pair: (-pair[1], pair[0]))[:k] for one in found]
        pairs = [pair for one in best for pair in one]
        # where nothing is said of the field, the values say what they are
        values = pa.array([v for v, _ in pairs], known if known is not None or pairs else pa.string())
        counts = pa.array([n for _, n in pairs], pa.int64())
        ends = pa.array(np.cumsum([0, *map(len, best)]), pa.int32())
        return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([values, counts], ["value", "count"]))

    pairs = pa.list_(pa.struct([("value", known or pa.string()), ("count", pa.int64())]))
    return Reading((stat,), pairs, "any", result)


def _own(aggregate: Aggregate, name: str, of: str | None, kind: pa.DataType | None) -> Reading:
    stat = Own(of, aggregate)
    return Reading((stat,), pa.float64(), "number", lambda cells: _valid(v := stat.results(cells), ~np.isnan(v)))


#: Aggregates that may be of records, without a field.
_OF_RECORDS = ("count", "duration", "mean_gap", "std_gap")
#: By name: what makes the aggregate, and how many options it takes behind its field.
_KINDS: dict[str, tuple[Any, int]] = {
    "count": (_counted, 0),
    "sum": (_number(lambda of: (Sums(of),), lambda n, total, rest: (total + rest) / loops.SCALE), 0),
    "mean": (_number(lambda of: (Sums(of),), lambda n, total, rest: (total + rest) / n / loops.SCALE), 0),
    "min": (_number(lambda of: (Extremes(of),), lambda n, low, high: low), 0),
    "max": (_number(lambda of: (Extremes(of),), lambda n, low, high: high), 0),
    "first": (_number(lambda of: (Firsts(of),), lambda n, value, at: value), 0),
    "last": (_number(lambda of: (Lasts(of),), lambda n, value, at: value), 0),
    "std": (_deviation, 1),
    "quantile": (_quantile, 2),
    "distinct": (_distinct, 1),
    "unique": (_unique, 0),
    "top": (_top, 1),
    "matches": (_matches, 2),
    "share": (_share, 2),
    "duration": (_duration, 0),
    "mean_gap": (_mean_gap, 1),
    "std_gap": (_gap_deviation, 1),
}
