"""Arithmetic and comparison of numbers, exactly: integers of both 64-bit types and floats, checked row by row.

Arrow's checked functions raise for a whole batch. These return which rows have no result: those are few, and Python's
integers decide the rows that float64 cannot.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import numpy_values
from riot_ops.kernels.arrays.exact import compared, exact_numbers
from riot_ops.kernels.expressions.columns import Kind, integer

__all__ = [
    "EXACT",
    "compare",
    "float_function",
    "float_power",
    "integer_power",
    "integer_result",
    "integers",
    "order_of_times",
    "rounded",
    "scaled",
    "true_quotient",
]

Mask = npt.NDArray[np.bool_]

#: Up to this size, float64 holds every integer.
EXACT = 2**53
#: A result whose float64 is below fits 64 bits, one whose float64 is above does not.
_FITS, _TOO_LARGE = 2.0**62, 2.0**66
#: Functions that NumPy takes from the C library.
_C_LIBRARY: dict[str, Any] = {"sin": np.sin, "cos": np.cos}
_PYTHON: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_UFUNCS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
}


# -- integers --------------------------------------------------------------------------------------


def integer_result(op: str, left: Kind, right: Kind) -> tuple[Kind, bool]:
    """Return the kind of a result, and whether it may be beyond its type.

    It is uint64 if one operand is and neither can be negative, except of differences; otherwise int64.

    >>> integer_result("+", integer(0, 255), integer(-5, 5))
    (Kind(name='int', unit='', low=-5, high=260, unsigned=False, large=False, digits=0, scale=0), False)
    """
    unsigned = (left.unsigned or right.unsigned) and left.low >= 0 and right.low >= 0 and op != "-"
    if op in ("//", "%"):
        return integer(-(2**64), 2**64, unsigned), not unsigned
    if op == "**":
        largest = max(abs(left.low), abs(left.high), 1)
        bound = largest**right.high if largest.bit_length() * right.high < 256 else 2**200
        low, high = 0 if left.low >= 0 else -bound, bound
    else:
        corners = [_PYTHON[op](a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
        low, high = min(corners), max(corners)
    kind = integer(low, high, unsigned)
    return kind, (kind.low, kind.high) != (low, high)


def integers(op: str, kind: Kind, checked: bool, x: Any, y: Any) -> tuple[Any, Any]:
    """Return ``x op y`` for integers and where it is beyond the type of ``kind``, or None; no divisor is 0.

    >>> integers("*", integer(-(2**63), 2**63 - 1), True, np.array([3, 2**62]), np.int64(2))
    (array([                   6, -9223372036854775808]), array([False,  True]))
    """
    x, y = np.asarray(x), np.asarray(y)
    with np.errstate(all="ignore"):
        if kind.unsigned:
            found = _UFUNCS[op](x.astype(np.uint64, copy=False), y.astype(np.uint64, copy=False))
        else:  # modulo 2^64, both types are the same
            found = _UFUNCS[op](_signed(x), _signed(y))
        if not checked:
            return found, None
        if op in ("//", "%"):
            suspect = _beyond(x) | _beyond(y) | ((x == -(2**63)) & (y == -1))
            too_large = None
        else:
            size = np.abs(_UFUNCS[op](x.astype(np.float64), y.astype(np.float64)))
            suspect = size >= _FITS
            too_large = size > _TOO_LARGE
    if not suspect.any():
        return found, None
    return _decide(_PYTHON[op], kind, found, suspect, too_large, x, y)


def _signed(x: npt.NDArray[Any]) -> Any:
    return x.view(np.int64) if x.dtype == np.uint64 else x


def _unsigned(x: Any) -> Any:
    return np.asarray(x).view(np.uint64)


def _beyond(x: npt.NDArray[Any]) -> Any:
    """Return where an integer is beyond int64."""
    return x >= np.uint64(2**63) if x.dtype == np.uint64 else np.False_


def _decide(
    function: Callable[[int, int], int], kind: Kind, found: Any, suspect: Any, too_large: Any, x: Any, y: Any
) -> tuple[Any, Any]:
    """Compute the suspect rows with Python's integers."""
    shape = np.broadcast_shapes(np.shape(found), np.shape(suspect))
    found, wrong = np.broadcast_to(found, shape).copy(), np.zeros(shape, np.bool_)
    x, y, suspect = (np.broadcast_to(one, shape) for one in (x, y, suspect))
    if too_large is not None:
        wrong |= too_large
        suspect = suspect & ~wrong
    lowest, highest = (0, 2**64 - 1) if kind.unsigned else (-(2**63), 2**63 - 1)
    for place in zip(*np.nonzero(np.atleast_1d(suspect)), strict=True):
        at = place if shape else ()
        exact = function(int(x[at]), int(y[at]))
        if lowest <= exact <= highest:
            found[at] = exact
        else:
            wrong[at] = True
    return found, wrong


def integer_power(kind: Kind, checked: bool, x: Any, exponent: int) -> tuple[Any, Any]:
    """Return integers to the power of a constant that is not negative, and where it is beyond the type."""
    return integers("**", kind, checked, x, np.uint64(exponent) if kind.unsigned else np.int64(exponent))


def scaled(x: Any, factor: int) -> tuple[Any, Any]:
    """Return int64 times a factor, and where the product is beyond int64, or None.

    >>> scaled(np.array([2, 2**62]), 1000)[1].tolist()
    [False, True]
    """
    kind, checked = integer_result("*", integer(-(2**63), 2**63 - 1), integer(factor, factor))
    return integers("*", kind, checked, x, np.int64(factor))


def true_quotient(x: Any, y: Any) -> Any:
    """Return ``x / y`` of integers as float64, rounded once as in Python; no divisor is 0.

    >>> true_quotient(np.array([2**53 + 1]), np.int64(1)) == (2**53 + 1) / 1
    array([ True])
    """
    x, y = np.asarray(x), np.asarray(y)
    found = np.asarray(x.astype(np.float64) / y.astype(np.float64))
    large = np.asarray((x > EXACT) | (x < -EXACT) | (y > EXACT) | (y < -EXACT))
    if not large.any():
        return found
    x, y, large = (np.broadcast_to(one, found.shape) for one in (x, y, large))
    for place in zip(*np.nonzero(np.atleast_1d(large)), strict=True):
        at = place if found.shape else ()
        found[at] = int(x[at]) / int(y[at])
    return found


# -- floats ----------------------------------------------------------------------------------------


def float_function(name: str, *values: Any) -> Any:
    """Return a function of floats by the C library, which Python calls, too: Arrow calls it, NumPy only for some."""
    if name in _C_LIBRARY:
        with np.errstate(all="ignore"):
            return _C_LIBRARY[name](*values)
    args = [pa.array(v) if np.ndim(v) else pa.scalar(float(v)) for v in values]
    found = pc.call_function(name, args)
    return np.float64(found.as_py()) if isinstance(found, pa.Scalar) else numpy_values(found)


def float_power(x: Any, y: Any) -> Any:
    """Return ``x ** y`` of floats."""
    return float_function("power", x, y)


def rounded(x: Any, digits: int) -> Any:
    """Return floats rounded to a number of digits, half to even, as Python does it by their decimal digits.

    >>> rounded(np.array([2.675, 0.5, 1234.5]), 2).tolist(), rounded(np.array([2.5, 1250.0]), 0).tolist()
    ([2.67, 0.5, 1234.5], [2.0, 1250.0])
    """
    if digits == 0:
        return np.rint(x)
    with np.errstate(all="ignore"):
        power = 10.0 ** abs(digits)
        moved = x * power if digits > 0 else x / power
        whole = np.rint(moved)
        found = np.asarray(whole / power if digits > 0 else whole * power)
        # whole numbers below 2^53 over powers of ten are rounded once; only near a half `whole` is uncertain
        close = np.abs(np.abs(moved - np.floor(moved)) - 0.5) <= np.abs(moved) * 1e-15 + 1e-300
        unsure = np.asarray((close | (np.abs(moved) >= 2.0**50)) & np.isfinite(x))
    if not unsure.any():
        return found
    x = np.broadcast_to(x, found.shape)
    for place in zip(*np.nonzero(np.atleast_1d(unsure)), strict=True):
        at = place if found.shape else ()
        found[at] = _python_round(float(x[at]), digits)
    return found


def _python_round(x: float, digits: int) -> float:
    try:
        return round(x, digits)
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


# -- comparison ------------------------------------------------------------------------------------


def compare(left: Kind, right: Kind, ufunc: Any) -> Callable[[Any, Any], Any]:
    """Return the comparison of two kinds of numbers; exact also between integers and floats, and both integer types.

    >>> compare(integer(-(2**63), 2**63 - 1), Kind("float"), np.equal)(np.array([2**53 + 1]), np.float64(2**53))
    array([False])
    """
    if left.name == right.name == "float" or (left.name == right.name and left.unsigned == right.unsigned):
        return ufunc  # type: ignore[no-any-return]
    if left.name == right.name:
        if left.low >= 0 and right.low >= 0:
            return lambda x, y: ufunc(_unsigned(x), _unsigned(y))
        order = _mixed_order if right.unsigned else lambda x, y: -_mixed_order(y, x)
        return lambda x, y: ufunc(order(x, y), 0)
    whole = left if left.name == "int" else right
    if max(-whole.low, whole.high) <= EXACT:
        return ufunc  # type: ignore[no-any-return] # NumPy converts the integers to float64
    return lambda x, y: ufunc(compared(*_pair(x), *_pair(y)), 0)


def _mixed_order(x: Any, y: Any) -> Any:
    """Return -1, 0 or 1 for int64 against uint64."""
    near = np.asarray(x).view(np.uint64)
    return np.where(x < 0, -1, (near > y).astype(np.int8) - (near < y).astype(np.int8))


def _pair(x: Any) -> tuple[Any, Any]:
    x = np.asarray(x)
    if x.dtype == np.float64:
        return x, 0.0
    high, rest = exact_numbers(pa.array(np.atleast_1d(x)))
    if not rest.size:
        return (high, 0.0) if x.ndim else (high[0], 0.0)
    return (high, rest) if x.ndim else (high[0], rest[0])


def order_of_times(factor: int, fine: Any, coarse: Any) -> Any:
    """Return -1, 0 or 1 for times in a unit against times in a unit that is ``factor`` times as long.

    >>> order_of_times(1000, np.array([1999, 2000, 2001]), np.int64(2)).tolist()
    [-1, 0, 1]
    """
    high = fine // factor
    order = (high > coarse).astype(np.int8) - (high < coarse).astype(np.int8)
    return np.where(order == 0, (fine % factor > 0).astype(np.int8), order)
