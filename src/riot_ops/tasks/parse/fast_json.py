"""The fast path for JSON lines without errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.fast_json import new_patterns, parse_json_lines
from riot_ops.kernels.text.json_fields import new_line_buffers, paths_table
from riot_ops.kernels.text.json_layouts import new_layouts
from riot_ops.kernels.text.json_paths import joined
from riot_ops.tasks.parse.column_builder import ColumnBuilder
from riot_ops.tasks.parse.line_cells import Mask

__all__ = ["FastJSONReader", "within"]


def within(wrapper: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the same values within an object.

    >>> within("data", ("id", "user.id"))
    ('data.id', 'data.user.id')
    """
    return tuple(joined(wrapper, path) for path in paths)


class FastJSONReader:
    """Reader of JSON lines in which each field has a plain value, or none if it may be missing.

    Parameters
    ----------
    fields : mapping of name to (paths, kind) or (paths, kind, default)
    wrapper : str, optional
        Path of the object that has the fields in lines that have it.
    """

    def __init__(self, fields: Mapping[str, Any], wrapper: str | None) -> None:
        self._names = list(fields)
        self._columns = ColumnBuilder([tuple(rest) for _, *rest in fields.values()])
        bare = [paths for paths, *_ in fields.values()]
        ways = [bare] if wrapper is None else [bare, [within(wrapper, paths) for paths in bare]]
        table, above, nodes = paths_table(path for way in ways for paths in way for path in paths)
        self._table: tuple[Any, ...] = (*table, readonly(above))
        choices = np.full((len(ways), len(fields), max(map(len, bare))), -1)
        for w, way in enumerate(ways):
            for f, paths in enumerate(way):
                choices[w, f, : len(paths)] = [nodes[path] for path in paths]
        quoted = np.array([kind == "quoted" for _, kind, *_ in fields.values()])
        self._choices = (readonly(choices), readonly(quoted), nodes[wrapper or ""])

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Columns of the lines that can be read, and which lines those are; None if there is too much text."""
        nodes = self._table[-1].size
        layouts = new_layouts(len(lines), len(self._names))
        room = (*self._table, *new_line_buffers(nodes), *new_patterns(nodes), *layouts, *self._choices)
        if (found := self._columns.read(lines, parse_json_lines, *room)) is None:
            return None
        return dict(zip(self._names, found[0], strict=True)), found[1]
