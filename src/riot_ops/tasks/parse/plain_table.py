"""The fast way through a batch of lines, for such as are plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrow import byte_spans, readonly
from riot_ops.kernels.plain_lines import DOUBLE, EPOCH, INTEGER, ISO, ROOM, TEXT, plain_lines
from riot_ops.tasks.parse.cell_lines import PER_UNIT

__all__ = ["PlainTable"]

KINDS = {"string": TEXT, "int64": INTEGER, "double": DOUBLE, "iso": ISO, **dict.fromkeys(PER_UNIT, EPOCH)}
#: More bytes of text than this in a batch are not packed into one buffer per field.
MOST_BYTES = 1 << 30


class PlainTable:
    """Reads the fields of lines that are plain: ASCII, with the right number of cells, none of them empty or odd.

    Parameters
    ----------
    fields : mapping of name to (cells, kind, …)
        Cells as the first and the last. All kinds must be among :data:`KINDS`.
    delimiter : int
        The byte between two cells; with ``spaced`` there may be several.
    least, most : int
        How many cells a line may have.
    """

    def __init__(
        self, fields: Mapping[str, tuple[tuple[int, int], str]], delimiter: int, spaced: bool, least: int, most: int
    ) -> None:
        self.names = list(fields)
        cells = sorted({cell for span, _ in fields.values() for cell in span})
        place = np.full(cells[-1] + 1, -1)
        place[cells] = np.arange(len(cells))
        kinds = [KINDS[kind] for _, kind in fields.values()]
        stored = [INTEGER if kind in (ISO, EPOCH) else kind for kind in kinds]
        self._columns = [stored[:i].count(kind) for i, kind in enumerate(stored)]
        self._room = [stored.count(kind) for kind in (TEXT, INTEGER, DOUBLE)]
        self._kinds = kinds
        self._cells = len(cells)
        self._split = delimiter, spaced, least, most, readonly(place)
        self._plan = tuple(
            readonly(np.array(part, np.int64))
            for part in (
                kinds,
                self._columns,
                [place[span[0]] for span, _ in fields.values()],
                [place[span[1]] for span, _ in fields.values()],
                [PER_UNIT.get(kind, 1) for _, kind in fields.values()],
            )
        )

    def read(self, lines: pa.Array) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]] | None:
        """Columns, and which lines they are good for; None where there is too much text."""
        data, starts, ends, valid = byte_spans(lines)
        n = len(lines)
        size = int(ends[-1] - starts[0]) if n else 0
        if size > MOST_BYTES:
            return None
        texts = np.empty((self._room[0], size + ROOM), np.uint8)
        offsets = np.zeros((self._room[0], n + 1), np.int32)
        integers, doubles = np.empty((self._room[1], n), np.int64), np.empty((self._room[2], n))
        plain = np.empty(n, np.bool_)
        begins, stops = np.empty(self._cells, np.int64), np.empty(self._cells, np.int64)
        plan: list[Any] = [*self._split, *self._plan, begins, stops, texts, offsets, integers, doubles, plain]
        inside = int(np.searchsorted(ends, data.size - ROOM, side="right"))
        plain_lines(data, starts, ends, valid, 0, inside, 0, *plan)
        if inside < n:  # behind the last lines there is nothing that might be read with them
            before = int(starts[inside])
            tail = readonly(np.concatenate([data[before : ends[-1]], np.zeros(ROOM, np.uint8)]))
            plain_lines(tail, starts, ends, valid, inside, n, before, *plan)
        made: dict[str, pa.Array] = {}
        for name, kind, c in zip(self.names, self._kinds, self._columns, strict=True):
            if kind == TEXT:
                buffers = [None, pa.py_buffer(offsets[c]), pa.py_buffer(texts[c, : offsets[c, -1]])]
                made[name] = pa.Array.from_buffers(pa.string(), n, buffers)
            else:
                numbers: npt.NDArray[Any] = doubles[c] if kind == DOUBLE else integers[c]
                dtype = {DOUBLE: pa.float64(), INTEGER: pa.int64()}.get(kind, TIMESTAMP)
                made[name] = pa.Array.from_buffers(dtype, n, [None, pa.py_buffer(numbers)])
        return made, plain
