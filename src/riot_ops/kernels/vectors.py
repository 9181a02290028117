"""What the kernels of :mod:`riot_ops.kernels.masks` are where numba compiles them: a few instructions of the processor.

Only the compiler reads this module; it imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_item_pointer2
from numba.extending import intrinsic

__all__ = ["below64", "equal64", "ones"]

_BYTES = ir.VectorType(ir.IntType(8), 64)


def _compared(sign: str) -> Any:
    """An intrinsic that compares the 64 bytes from a place on with one, which gives a bit for each."""

    def typed(typing: Any, data: Any, at: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_type, at_type, value_type = signature.args
            array = context.make_array(array_type)(context, builder, arguments[0])
            place = context.cast(builder, arguments[1], at_type, types.intp)
            byte = context.cast(builder, arguments[2], value_type, types.uint8)
            first = get_item_pointer2(  # type: ignore[no-untyped-call]
                context, builder, array.data, (array.shape,), (array.strides,), array_type.layout, [place]
            )
            loaded = builder.load(builder.bitcast(first, _BYTES.as_pointer()), align=1)
            one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            each = builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), lanes)
            return builder.bitcast(builder.icmp_unsigned(sign, loaded, each), ir.IntType(64))

        return types.uint64(data, at, value), code

    return intrinsic(typed)


equal64 = _compared("==")
below64 = _compared("<")


@intrinsic
def ones(typing: Any, word: Any) -> Any:
    """The number of bits that are set."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(context.cast(builder, arguments[0], signature.args[0], types.uint64))

    return types.uint64(word), code
