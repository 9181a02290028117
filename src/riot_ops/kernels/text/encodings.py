"""Texts in other encodings than UTF-8."""

from __future__ import annotations

import codecs
import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import byte_spans
from riot_ops.kernels.text.strings import non_ascii

__all__ = ["is_utf8_codec", "to_utf8"]

#: All ASCII characters, and what some encodings read as an escape.
_PROBE = bytes(range(128)) + rb"\u0041 ~{AA~} +AEE- " + b"\x1b$B0!\x1b(B \x0e0\x0f"


def is_utf8_codec(encoding: str) -> bool:
    """Whether a codec of this name is UTF-8.

    >>> is_utf8_codec("U8"), is_utf8_codec("latin-1")
    (True, False)
    """
    return codecs.lookup(encoding).name == "utf-8"


@functools.cache
def _extends_ascii(encoding: str) -> bool:
    """Whether texts of ASCII characters are the same bytes in an encoding."""
    try:
        return _PROBE.decode(encoding) == _PROBE.decode("ascii")
    except (UnicodeError, ValueError):
        return False


def to_utf8(texts: pa.Array, encoding: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    r"""Convert bytes in an encoding to UTF-8: the column, and which values are not in that encoding; these are null.

    A column of text is returned unchanged, and so are bytes that are to be UTF-8 already, which are not checked.

    >>> column, wrong = to_utf8(pa.array([b"caf\xe9", None, b"tea", b"\x81"]), "cp1252")
    >>> column.to_pylist(), wrong.tolist()
    ([b'caf\xc3\xa9', None, b'tea', None], [False, False, False, True])
    """
    wrong = np.zeros(len(texts), np.bool_)
    dtype = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
    if not (pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)) or is_utf8_codec(encoding):
        return texts, wrong
    texts = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
    todo = non_ascii(texts) if _extends_ascii(encoding) else np.asarray(texts.is_valid().to_numpy(zero_copy_only=False))
    if not todo.any():
        return texts, wrong
    data, starts, ends, _ = byte_spans(texts)
    found: list[bytes | None] = []
    for row in np.flatnonzero(todo).tolist():
        try:
            found.append(data[starts[row] : ends[row]].tobytes().decode(encoding).encode())
        except (UnicodeError, ValueError):
            found.append(None)
            wrong[row] = True
    return pc.replace_with_mask(texts, pa.array(todo), pa.array(found, texts.type)), wrong
