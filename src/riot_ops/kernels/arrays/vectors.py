"""What the kernels of :mod:`riot_ops.kernels.arrays.masks` are where numba compiles them: a few instructions of the processor.

Only the compiler reads this module; it imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_item_pointer2
from numba.extending import intrinsic

__all__ = ["below64", "copy64", "equal64", "ones", "same64", "strange64", "unusual64"]

_BYTES = ir.VectorType(ir.IntType(8), 64)


def _vector(context: Any, builder: Any, array_type: Any, array: Any, at_type: Any, at: Any) -> Any:
    """Where the 64 bytes of an array from a place on are."""
    made = context.make_array(array_type)(context, builder, array)
    place = context.cast(builder, at, at_type, types.intp)
    first = get_item_pointer2(  # type: ignore[no-untyped-call]
        context, builder, made.data, (made.shape,), (made.strides,), array_type.layout, [place]
    )
    return builder.bitcast(first, _BYTES.as_pointer())


def _loaded(context: Any, builder: Any, array_type: Any, array: Any, at_type: Any, at: Any) -> Any:
    """The 64 bytes of an array from a place on."""
    return builder.load(_vector(context, builder, array_type, array, at_type, at), align=1)


def _each(context: Any, builder: Any, value_type: Any, value: Any) -> Any:
    """A byte 64 times."""
    byte = context.cast(builder, value, value_type, types.uint8)
    one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), lanes)


def _compared(sign: str, signed: bool = False) -> Any:
    """An intrinsic that compares the 64 bytes from a place on with one, which gives a bit for each."""

    def typed(typing: Any, data: Any, at: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_type, at_type, value_type = signature.args
            loaded = _loaded(context, builder, array_type, arguments[0], at_type, arguments[1])
            each = _each(context, builder, value_type, arguments[2])
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.bitcast(compare(sign, loaded, each), ir.IntType(64))

        return types.uint64(data, at, value), code

    return intrinsic(typed)


equal64 = _compared("==")
below64 = _compared("<")
#: Bytes above 127 are below all others as numbers with a sign.
strange64 = _compared("<", signed=True)


@intrinsic
def unusual64(typing: Any, data: Any, at: Any, least: Any, value: Any) -> Any:
    """Those that are that value, and as numbers with a sign below the least: which those above 127 are, too."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, at_type, least_type, value_type = signature.args
        loaded = _loaded(context, builder, array_type, arguments[0], at_type, arguments[1])
        below = builder.icmp_signed("<", loaded, _each(context, builder, least_type, arguments[2]))
        same = builder.icmp_unsigned("==", loaded, _each(context, builder, value_type, arguments[3]))
        return builder.bitcast(builder.or_(below, same), ir.IntType(64))

    return types.uint64(data, at, least, value), code


@intrinsic
def same64(typing: Any, data: Any, at: Any, other: Any, there: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data_type, at_type, other_type, there_type = signature.args
        one = _loaded(context, builder, data_type, arguments[0], at_type, arguments[1])
        two = _loaded(context, builder, other_type, arguments[2], there_type, arguments[3])
        return builder.bitcast(builder.icmp_unsigned("==", one, two), ir.IntType(64))

    return types.uint64(data, at, other, there), code


@intrinsic
def ones(typing: Any, word: Any) -> Any:
    """The number of bits that are set."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(context.cast(builder, arguments[0], signature.args[0], types.uint64))

    return types.uint64(word), code


@intrinsic
def copy64(typing: Any, data: Any, at: Any, out: Any, to: Any) -> Any:
    """64 bytes from one array to another."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data_type, at_type, out_type, to_type = signature.args
        loaded = _loaded(context, builder, data_type, arguments[0], at_type, arguments[1])
        builder.store(loaded, _vector(context, builder, out_type, arguments[2], to_type, arguments[3]), align=1)
        return context.get_dummy_value()

    return types.none(data, at, out, to), code
