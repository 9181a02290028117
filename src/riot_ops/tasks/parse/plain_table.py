"""The fast way through a batch of lines, for such as are plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.plain_lines import plain_lines
from riot_ops.tasks.parse.cell_lines import Mask
from riot_ops.tasks.parse.plain_columns import PlainColumns

__all__ = ["PlainTable"]


class PlainTable:
    """Reads the fields of lines that are plain: ASCII, with the right number of cells, none of them odd.

    Parameters
    ----------
    fields : mapping of name to (cells, kind) or (cells, kind, default)
        Cells as the first and the last. What has a default may be missing.
    delimiters : bytes
        Each of them stands between two cells.
    how : int
        How lines are cut, see :func:`riot_ops.kernels.text.fields.split_lines`.
    least, most : int
        How many cells a line may have.
    trailing : bool
        Whether a delimiter may end the line as well.
    nulls : bytes
        What stands for an empty cell.
    """

    def __init__(
        self,
        fields: Mapping[str, tuple[Any, ...]],
        delimiters: bytes,
        how: int,
        least: int,
        most: int,
        trailing: bool,
        nulls: bytes,
    ) -> None:
        read = list(dict.fromkeys(fields.values()))  # what several fields are is read once
        self._names = {name: read.index(field) for name, field in fields.items()}
        self._columns = PlainColumns([tuple(rest) for _, *rest in read])
        self._cells = 1 + max(span[1] for span, *_ in read)
        empty = np.zeros(256 if nulls else 0, np.bool_)
        empty[list(nulls)] = True
        between = readonly(np.frombuffer(delimiters, np.uint8))
        spans = (readonly(np.array([span[side] for span, *_ in read])) for side in (0, 1))
        self._split = (between, how, least, most, trailing, readonly(empty), *spans)

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Columns of those lines, and which they are; None where there is too much text."""
        begins, stops = np.empty(self._cells + 1, np.int64), np.empty(self._cells, np.int64)
        if (found := self._columns.read(lines, plain_lines, *self._split, begins, stops)) is None:
            return None
        return {name: found[0][i] for name, i in self._names.items()}, found[1]
