"""Arrow columns filled by the kernels of the fast path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.dates import MEMO, NONE
from riot_ops.kernels.text.fast_values import BATCH_LINES, DOUBLE, FLAG, INTEGER, ROOM, TEXT
from riot_ops.tasks.parse.line_cells import CELL_TYPES, KERNEL_CODES, MICROS_PER_UNIT, Mask

__all__ = ["ColumnBuilder"]

#: Batches with more bytes of text are not read on the fast path, which packs the text of a field into one buffer.
MAX_BYTES = 1 << 30


class ColumnBuilder:
    """Builder of the columns of some fields.

    Parameters
    ----------
    fields : sequence of (kind,) or (kind, default)
        Fields without a default must have a value.
    """

    def __init__(self, fields: Sequence[tuple[Any, ...]]) -> None:
        self._fields = fields
        kinds = [KERNEL_CODES[kind] for kind, *_ in fields]
        stored = [kind if kind in (TEXT, DOUBLE, FLAG) else INTEGER for kind in kinds]
        self._stored = stored
        self._columns = [stored[:i].count(kind) for i, kind in enumerate(stored)]
        maybe = [len(rest) > 0 for _, *rest in fields]
        self._optional = [sum(maybe[:i]) if has else -1 for i, has in enumerate(maybe)]
        units = [MICROS_PER_UNIT.get(kind, 1) for kind, *_ in fields]
        plan = (kinds, self._columns, units, self._optional)
        self._plan = [readonly(np.array(part, np.int64)) for part in plan]

    def read(self, lines: pa.Array, kernel: Callable[..., int], *arguments: Any) -> tuple[list[pa.Array], Mask] | None:
        """Fill the columns with a kernel: columns, and the lines that they hold; None if there is too much text."""
        data, starts, ends, valid = byte_spans(lines)
        n = len(lines)
        size = int(ends[-1] - starts[0]) if n else 0
        if size > MAX_BYTES:
            return None
        texts, integers, doubles, flags = (self._stored.count(kind) for kind in (TEXT, INTEGER, DOUBLE, FLAG))
        room: dict[int, npt.NDArray[Any]] = {
            TEXT: np.empty((texts, size + ROOM), np.uint8),
            INTEGER: np.empty((integers, n), np.int64),
            DOUBLE: np.empty((doubles, n)),
            FLAG: np.empty((flags, n), np.bool_),
        }
        offsets = np.zeros((texts, n + 1), np.int32)
        present, plain = np.empty((max(self._optional, default=-1) + 1, n), np.bool_), np.empty(n, np.bool_)
        outputs = (room[TEXT], offsets, room[INTEGER], room[DOUBLE], room[FLAG], present, plain)
        fields = len(self._fields)
        scratch: list[Any] = [
            *np.empty((2, fields, BATCH_LINES), np.int64),
            np.empty(BATCH_LINES, np.int64),
            np.empty(BATCH_LINES, np.int8),
        ]
        plan = (*scratch, *arguments, *self._plan, np.full(MEMO, NONE), *outputs)
        inside = int(np.searchsorted(ends, data.size - ROOM, side="right"))
        k = kernel(data, starts, ends, valid, 0, inside, 0, 0, *plan)
        if inside < n:  # the kernel reads past the end of a line: pad the last lines
            before = int(starts[inside])
            tail = readonly(np.concatenate([data[before : ends[-1]], np.zeros(ROOM, np.uint8)]))
            k = kernel(tail, starts, ends, valid, inside, n, before, k, *plan)
        columns = []
        for (kind, *default), stored, c, p in zip(
            self._fields, self._stored, self._columns, self._optional, strict=True
        ):
            if stored == TEXT:
                buffers = [pa.py_buffer(offsets[c, : k + 1]), pa.py_buffer(room[TEXT][c, : offsets[c, k]])]
            else:
                values: npt.NDArray[Any] = room[stored][c, :k]
                buffers = [pa.py_buffer(np.packbits(values, bitorder="little") if stored == FLAG else values)]
            there = present[p, :k] if default else present[:0]
            missing = there.size - int(np.count_nonzero(there))
            bitmap = pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None
            column = pa.Array.from_buffers(CELL_TYPES[kind], k, [bitmap, *buffers], missing)
            if missing and default[0] is not None:
                column = column.fill_null(pa.scalar(default[0], CELL_TYPES[kind]))
            columns.append(column)
        return columns, plain
