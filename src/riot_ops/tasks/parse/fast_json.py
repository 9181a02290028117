"""The fast path for JSON lines without errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.fast_json import new_patterns, parse_json_lines
from riot_ops.kernels.text.json_fields import new_line_buffers, paths_table
from riot_ops.kernels.text.json_layouts import new_layouts
from riot_ops.tasks.parse.column_builder import ColumnBuilder
from riot_ops.tasks.parse.line_cells import Mask

__all__ = ["FastJSONReader"]


class FastJSONReader:
    """Reader of JSON lines in which each field has a plain value, or none if it may be missing.

    Parameters
    ----------
    fields : mapping of name to (paths, kind) or (paths, kind, default)
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._names = list(fields)
        self._columns = ColumnBuilder([tuple(rest) for _, *rest in fields.values()])
        table, above, nodes = paths_table(path for paths, *_ in fields.values() for path in paths)
        self._table: tuple[Any, ...] = (*table, readonly(above))
        choices = np.full((len(fields), max(len(paths) for paths, *_ in fields.values())), -1)
        for f, (paths, *_) in enumerate(fields.values()):
            choices[f, : len(paths)] = [nodes[path] for path in paths]
        self._choices = readonly(choices)

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Columns of the lines that can be read, and which lines those are; None if there is too much text."""
        nodes = self._table[-1].size
        layouts = new_layouts(len(lines), len(self._choices))
        room = (*self._table, *new_line_buffers(nodes), *new_patterns(nodes), *layouts, self._choices)
        if (found := self._columns.read(lines, parse_json_lines, *room)) is None:
            return None
        return dict(zip(self._names, found[0], strict=True)), found[1]
