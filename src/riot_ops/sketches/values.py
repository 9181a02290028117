"""Values that users give to sketches, as Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from riot_ops.core.casting import CAST_ERRORS, is_key_type
from riot_ops.core.errors import ConfigError, value_text

__all__ = ["chunks_of"]


def chunks_of(values: Any, owner: str) -> list[pa.Array]:
    """Convert values to Arrow arrays: an array, a chunked one, a series of pandas or Polars, a list or other iterable.

    One text is not taken for its letters: that raises :class:`ConfigError`, as do values that cannot be compared.

    >>> [chunk.to_pylist() for chunk in chunks_of({"a"}, "add")]
    [['a']]
    """
    if isinstance(values, (str, bytes, bytearray, Mapping)) or not (
        isinstance(values, Iterable) or hasattr(values, "__arrow_array__")
    ):
        raise ConfigError(
            f"{owner} takes values, such as a list of them, got {value_text(values)}; give [value] for one"
        )
    try:
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            known = hasattr(values, "__len__") and hasattr(values, "__getitem__")  # arrays and series keep their type
            values = pa.array(values if known else list(values))
    except CAST_ERRORS as error:
        raise ConfigError(f"{owner} takes values of one type: {error}") from None
    if not is_key_type(values.type):
        raise ConfigError(f"{owner} takes text, bytes, numbers or times, got values of type {values.type}")
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]
