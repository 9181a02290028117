"""The fast path for plain text lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.fast_lines import ACCESS, parse_lines
from riot_ops.tasks.parse.column_builder import ColumnBuilder
from riot_ops.tasks.parse.line_cells import Mask

__all__ = ["FastLineReader"]


class FastLineReader:
    """Reader of plain lines: UTF-8, with the right number of cells, and only values in their usual form.

    Parameters
    ----------
    fields : mapping of name to (cells, kind) or (cells, kind, default)
        Cells as the numbers of the first and the last. A field with a default may be missing.
    delimiters : bytes
        The bytes that separate cells, each on its own.
    mode : int
        How lines are split, see :func:`riot_ops.kernels.text.fast_lines.parse_lines`.
    min_cells, max_cells : int
        Limits for the number of cells in a line.
    trailing : bool
        Whether a delimiter may end the line.
    nulls : bytes
        Bytes that, alone in a cell, stand for an empty one.
    """

    def __init__(
        self,
        fields: Mapping[str, tuple[Any, ...]],
        delimiters: bytes,
        mode: int,
        min_cells: int,
        max_cells: int,
        trailing: bool,
        nulls: bytes,
    ) -> None:
        read = list(dict.fromkeys(fields.values()))  # equal fields are read once
        self._names = {name: read.index(field) for name, field in fields.items()}
        self._columns = ColumnBuilder([tuple(rest) for _, *rest in read])
        self._cells = max_cells if mode == ACCESS else 1 + max(span[1] for span, *_ in read)
        empty = np.zeros(256 if nulls else 0, np.bool_)
        empty[list(nulls)] = True
        separators = readonly(np.frombuffer(delimiters, np.uint8))
        spans = (readonly(np.array([span[side] for span, *_ in read])) for side in (0, 1))
        self._split = (separators, mode, min_cells, max_cells, trailing, readonly(empty), *spans)

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Columns of the lines that can be read, and which lines those are; None if there is too much text."""
        begins, stops = np.empty(self._cells + 1, np.int64), np.empty(self._cells, np.int64)
        if (found := self._columns.read(lines, parse_lines, *self._split, begins, stops)) is None:
            return None
        return {name: found[0][i] for name, i in self._names.items()}, found[1]
