"""The values of a batch of JSON lines, as cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text.json_fields import (
    ABSENT,
    ESCAPED,
    NESTED,
    PLAIN,
    TEXT,
    find_values,
    new_line_buffers,
    paths_table,
)
from riot_ops.kernels.text.json_paths import Steps, is_plain, parse_path
from riot_ops.tasks.parse.fast_json import within
from riot_ops.tasks.parse.line_cells import Cells, Mask, Numbers

__all__ = ["JSONCells"]


class JSONCells(Cells):
    """A batch of JSON objects, one per line: cell i is the value at the first of the i-th paths that has one.

    In lines with an object at the path ``wrapper``, the paths begin there.
    """

    def __init__(
        self, batch: pa.RecordBatch, lines: pa.Array, paths: Sequence[Sequence[str]], wrapper: str | None = None
    ) -> None:
        super().__init__(batch, lines)
        n = len(lines)
        spans = (self._line_starts, self._line_ends)
        wrapped = [] if wrapper is None else [within(wrapper, one) for one in paths]
        places = [path for one in [*paths, *wrapped] for path in one]
        if all(map(is_plain, places)):
            table, above, nodes = paths_table(places)
        else:  # msgspec decodes all lines
            nodes = {path: i for i, path in enumerate(dict.fromkeys(["", *([wrapper] if wrapper else ()), *places]))}
        at = np.zeros((2, len(nodes), n), np.int64)
        kinds, read = np.zeros((len(nodes), n), np.int8), np.zeros(n, np.bool_)
        if all(map(is_plain, places)):
            room: tuple[Any, ...] = (*table, readonly(above), *new_line_buffers(above.size))
            find_values(self.data, *spans, self._valid, *(*room, *at, kinds, read))
        self._no_json = np.zeros(n, np.bool_)
        self._unescape(read & ~self._invalid, at, kinds)
        self._decode(np.flatnonzero(~(read | self._invalid | self._null)), *spans, nodes, at, kinds)
        chosen = [self._first_of([nodes[path] for path in one], kinds) for one in paths]
        if wrapper is not None:
            inside, columns = kinds[nodes[wrapper]] == NESTED, np.arange(n)
            others = [self._first_of([nodes[path] for path in one], kinds) for one in wrapped]
            chosen = [
                (np.where(inside, _rows(other), _rows(one)), columns) for one, other in zip(chosen, others, strict=True)
            ]
        self._starts, self._ends = ([part[place] for place in chosen] for part in at)
        self._kinds = [kinds[place] for place in chosen]
        self._places = np.arange(len(paths))
        self.counts = np.full(n, len(paths))

    def reject_non_text(self, errors: RejectedRecords) -> None:
        super().reject_non_text(errors)
        self.reject(errors, self._no_json, "not_json", "the line is not a JSON object")

    def absent(self, cell: int) -> Mask:
        """Return where the cell has no value, or null."""
        return np.asarray(self._kinds[cell] == ABSENT)

    def unquoted(self, cell: int) -> Mask:
        """Return where the cell is a number or a boolean."""
        return np.asarray(self._kinds[cell] == PLAIN)

    def nested(self, cell: int) -> Mask:
        """Return where the cell is an object or a list."""
        return np.asarray(self._kinds[cell] == NESTED)

    def _has_text(self, cell: int, starts: Numbers, ends: Numbers) -> Mask:
        return ~self.absent(cell)

    def _unescape(self, rows: Mask, at: Any, kinds: Any) -> None:
        """Decode the texts with escapes in these lines and append them to the data."""
        nodes, places = np.nonzero((kinds == ESCAPED) & rows)
        if not nodes.size:
            return
        spans = zip(at[0, nodes, places].tolist(), at[1, nodes, places].tolist(), strict=True)
        quoted = [self.data[start - 1 : end + 1].tobytes() for start, end in spans]
        texts = [msgspec.json.decode(text, type=str).encode() for text in quoted]
        ends = self.data.size + np.cumsum([len(text) for text in texts])
        at[0, nodes, places] = np.append(self.data.size, ends[:-1])
        at[1, nodes, places] = ends
        kinds[nodes, places] = TEXT
        self._append(np.frombuffer(b"".join(texts), np.uint8))

    def _decode(
        self, rows: Numbers, starts: Numbers, ends: Numbers, nodes: dict[str, int], at: Any, kinds: Any
    ) -> None:
        """Decode with msgspec the lines that the kernel left open, and append their values to the data."""
        more, data = bytearray(), self.data.data
        steps = {path: parse_path(path) for path in nodes if path}
        for row, start, end in zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True):
            try:
                document = msgspec.json.decode(data[start:end], type=dict[str, msgspec.Raw])
                holders: dict[Steps, Any] = {(): document}
                values = {path: _raw_value(holders, step) for path, step in steps.items()}
                texts = {path: _text_of(value) for path, value in values.items()}
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._no_json[row] = True
                continue
            for path, node in nodes.items():
                kinds[node, row], text = texts.get(path, (NESTED, b""))
                if kinds[node, row] in (TEXT, PLAIN):
                    at[:, node, row] = self.data.size + len(more), self.data.size + len(more) + len(text)
                    more += text
        if more:
            self._append(np.frombuffer(bytes(more), np.uint8))

    def _first_of(self, nodes: list[int], kinds: Any) -> Any:
        """Return the index of the first of several nodes that has a value, per line; for a single node, its row."""
        if len(nodes) == 1:
            return nodes[0]
        chosen = np.full(kinds.shape[1], nodes[0])
        for node in nodes[:0:-1]:
            chosen = np.where(kinds[node] != ABSENT, node, chosen)
        return np.where(kinds[nodes[0]] != ABSENT, nodes[0], chosen), np.arange(kinds.shape[1])


def _rows(chosen: Any) -> Any:
    """Return the nodes among what :meth:`JSONCells._first_of` returns."""
    return chosen[0] if isinstance(chosen, tuple) else chosen


def _raw_value(holders: dict[Steps, Any], steps: Steps) -> bytes | None:
    """Return the JSON text at a path; ``holders`` caches the decoded objects and lists by path."""
    *above, last = steps
    holder = tuple(above)
    if holder not in holders:
        text = _raw_value(holders, holder)
        kind: Any = {b"{": dict[str, msgspec.Raw], b"[": list[msgspec.Raw]}.get((text or b"")[:1])
        holders[holder] = msgspec.json.decode(text, type=kind) if text and kind else None
    found = holders[holder]
    if isinstance(last, str):
        value = found.get(last) if isinstance(found, dict) else None
    else:
        value = found[last] if isinstance(found, list) and last < len(found) else None
    return None if value is None else bytes(value)


def _text_of(raw: bytes | None) -> tuple[int, bytes]:
    """Return the kind and the text of a JSON value; the text of a number is unchanged."""
    if raw is None or raw == b"null":
        return ABSENT, b""
    if raw[:1] in (b"{", b"["):
        return NESTED, b""
    if raw[:1] == b'"':
        return TEXT, msgspec.json.decode(raw, type=str).encode()
    return PLAIN, raw
