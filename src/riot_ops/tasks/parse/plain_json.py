"""The fast way through a batch of lines of JSON, for such as have no errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.json_fields import line_room, paths_table
from riot_ops.kernels.text.json_layouts import layout_room
from riot_ops.kernels.text.json_rows import json_rows, pattern_room
from riot_ops.tasks.parse.cell_lines import Mask
from riot_ops.tasks.parse.plain_columns import PlainColumns

__all__ = ["PlainJson"]


class PlainJson:
    """Reads the fields of lines that are JSON, and have of each field a plain value or, where it may miss, none.

    Parameters
    ----------
    fields : mapping of name to (paths, kind) or (paths, kind, default)
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._names = list(fields)
        self._columns = PlainColumns([tuple(rest) for _, *rest in fields.values()])
        table, above, nodes = paths_table(path for paths, *_ in fields.values() for path in paths)
        self._table: tuple[Any, ...] = (*table, readonly(above))
        choices = np.full((len(fields), max(len(paths) for paths, *_ in fields.values())), -1)
        for f, (paths, *_) in enumerate(fields.values()):
            choices[f, : len(paths)] = [nodes[path] for path in paths]
        self._choices = readonly(choices)

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Columns of those lines, and which they are; None where there is too much text."""
        nodes = self._table[-1].size
        layouts = layout_room(len(lines), len(self._choices))
        room = (*self._table, *line_room(nodes), *pattern_room(nodes), *layouts, self._choices)
        if (found := self._columns.read(lines, json_rows, *room)) is None:
            return None
        return dict(zip(self._names, found[0], strict=True)), found[1]
