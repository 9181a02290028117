"""The kernels of :mod:`riot_ops.kernels.arrays.byte_masks` as SIMD intrinsics, for callers compiled by numba.

It imports numba, so only the compiler may load it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_item_pointer2
from numba.extending import intrinsic

__all__ = ["below64", "copy64", "equal64", "match64", "outside64", "outside_or_equal64", "popcount"]

_BYTES = ir.VectorType(ir.IntType(8), 64)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, at_type: Any, at: Any) -> Any:
    """Pointer to the 64 bytes of an array at an index."""
    struct = context.make_array(array_type)(context, builder, array)
    index = context.cast(builder, at, at_type, types.intp)
    first = get_item_pointer2(  # type: ignore[no-untyped-call]
        context, builder, struct.data, (struct.shape,), (struct.strides,), array_type.layout, [index]
    )
    return builder.bitcast(first, _BYTES.as_pointer())


def _load(context: Any, builder: Any, array_type: Any, array: Any, at_type: Any, at: Any) -> Any:
    """Load the 64 bytes of an array at an index."""
    return builder.load(_pointer(context, builder, array_type, array, at_type, at), align=1)


def _broadcast(context: Any, builder: Any, value_type: Any, value: Any) -> Any:
    """Broadcast a byte to 64 lanes."""
    byte = context.cast(builder, value, value_type, types.uint8)
    one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), lanes)


def _comparison(sign: str, signed: bool = False) -> Any:
    """Return an intrinsic that compares 64 bytes with a value and returns a mask."""

    def typed(typing: Any, data: Any, at: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_type, at_type, value_type = signature.args
            loaded = _load(context, builder, array_type, arguments[0], at_type, arguments[1])
            each = _broadcast(context, builder, value_type, arguments[2])
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.bitcast(compare(sign, loaded, each), ir.IntType(64))

        return types.uint64(data, at, value), code

    return intrinsic(typed)


equal64 = _comparison("==")
below64 = _comparison("<")
#: As signed numbers, bytes above 127 are below all others.
outside64 = _comparison("<", signed=True)


@intrinsic
def outside_or_equal64(typing: Any, data: Any, at: Any, low: Any, value: Any) -> Any:
    """Equal to ``value``, or below ``low`` as signed numbers, which bytes above 127 are too."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, at_type, low_type, value_type = signature.args
        loaded = _load(context, builder, array_type, arguments[0], at_type, arguments[1])
        below = builder.icmp_signed("<", loaded, _broadcast(context, builder, low_type, arguments[2]))
        same = builder.icmp_unsigned("==", loaded, _broadcast(context, builder, value_type, arguments[3]))
        return builder.bitcast(builder.or_(below, same), ir.IntType(64))

    return types.uint64(data, at, low, value), code


@intrinsic
def match64(typing: Any, data: Any, at: Any, other: Any, there: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data_type, at_type, other_type, there_type = signature.args
        one = _load(context, builder, data_type, arguments[0], at_type, arguments[1])
        two = _load(context, builder, other_type, arguments[2], there_type, arguments[3])
        return builder.bitcast(builder.icmp_unsigned("==", one, two), ir.IntType(64))

    return types.uint64(data, at, other, there), code


@intrinsic
def popcount(typing: Any, word: Any) -> Any:
    """Return the number of bits set."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(context.cast(builder, arguments[0], signature.args[0], types.uint64))

    return types.uint64(word), code


@intrinsic
def copy64(typing: Any, data: Any, at: Any, out: Any, to: Any) -> Any:
    """Copy 64 bytes from one array to another."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data_type, at_type, out_type, to_type = signature.args
        loaded = _load(context, builder, data_type, arguments[0], at_type, arguments[1])
        builder.store(loaded, _pointer(context, builder, out_type, arguments[2], to_type, arguments[3]), align=1)
        return context.get_dummy_value()

    return types.none(data, at, out, to), code
