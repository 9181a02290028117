"""Lines of comma-separated values: from columns, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import byte_spans, strings_from_spans
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.csv.senml_writer import next_field

__all__ = ["csv_column", "csv_lines", "quote"]

#: The text of a null in a line.
NULL = "null"


def quote(column: pa.Array) -> pa.Array:
    """Quote the values of a text column that need it.

    >>> quote(pa.array(["a", 'b "c", d'])).to_pylist()
    ['a', '"b ""c"", d"']
    """
    needy = pc.match_substring_regex(column, '[",\\r\\n]')
    if not pc.any(needy).as_py():
        return column
    around = pc.binary_join_element_wise('"', pc.replace_substring(column, '"', '""'), '"', "")
    return pc.if_else(needy, around, column)


def csv_lines(columns: Sequence[pa.Array]) -> pa.Array:
    """Join columns to a line per row; nulls become the text ``null``.

    >>> csv_lines([pa.array(["a", None]), pa.array([8.0, 0.25])]).to_pylist()
    ['a,8', 'null,0.25']
    """
    texts = [quote(c) if pa.types.is_string(c.type) else c.cast(pa.string()) for c in columns]
    return pc.binary_join_element_wise(*texts, ",", null_handling="replace", null_replacement=NULL)


@kernel
def _column(data: Any, starts: Any, ends: Any, valid: Any, wanted: Any, text: Any, offsets: Any, found: Any) -> None:
    """Unquote the wanted field of each line into ``text``, one after the other."""
    o = 0
    for r in range(starts.size):
        offsets[r] = o
        found[r] = False
        if valid.size > 0 and not valid[r]:
            continue
        i = starts[r]
        end = ends[r]
        while end > i and (data[end - 1] == 10 or data[end - 1] == 13):
            end -= 1
        c = 0
        while True:
            n, i, ok = next_field(data, i, end, 44, text[o:])
            if not ok or c == wanted:
                found[r] = ok
                break
            if i >= end:
                break
            i += 1  # the comma
            c += 1
        if found[r]:
            o += n
    offsets[starts.size] = o


def csv_column(lines: pa.Array, place: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """``(texts, found)``: field number ``place`` (from 0) of each line, and which lines have it.

    >>> column, found = csv_column(pa.array(['a,"b,c",d', "a"]), 1)
    >>> column.to_pylist(), found.tolist()
    (['b,c', ''], [True, False])
    """
    data, starts, ends, valid = byte_spans(lines)
    n = len(lines)
    room = int(ends.max() - starts.min()) if n else 0
    text = np.empty(room + 1, np.uint8)
    offsets = np.empty(n + 1, np.int64)
    found = np.empty(n, np.bool_)
    _column(data, starts, ends, valid, place, text, offsets, found)
    return strings_from_spans(text, offsets[:-1], np.diff(offsets)), found
