"""What a field may be that a task asks for."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

__all__ = ["FITS"]


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_null(kind)
    )


#: By what is asked for, whether a type is that.
FITS: dict[str, Callable[[pa.DataType], bool]] = {"number": _is_number, "text": _is_text, "any": lambda _: True}
