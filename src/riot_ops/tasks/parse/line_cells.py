"""The cells of a batch of text lines, read as typed columns; a rejected line is not read any further."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import EXCERPT_LENGTH, escape_surrogates, excerpt
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import byte_spans, readonly, strings_from_spans
from riot_ops.kernels.text.fast_values import (
    BAD,
    BEYOND,
    DOUBLE,
    EPOCH,
    FLAG,
    GOOD,
    HARD,
    INSTANT,
    INSTANT_NS,
    INTEGER,
    ISO,
    LOG,
    ROOM,
    TEXT,
    TWEET,
    read_values,
)
from riot_ops.kernels.text.line_fields import split_lines, trim
from riot_ops.kernels.text.strings import name_table, non_utf8, span_codes

__all__ = ["CELL_TYPES", "KERNEL_CODES", "MICROS_PER_UNIT", "Cells", "LineCells", "Mask", "Numbers"]

#: Arrow type of each kind of cell.
CELL_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "quoted": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    **dict.fromkeys(("s", "ms", "us", "ns", "iso", "instant", "log", "tweet"), TIMESTAMP),
    "instant_ns": pa.int64(),
}
#: Microseconds per unit of an epoch; 0: nanoseconds.
MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}
#: Code of each kind of cell in the kernels; a ``quoted`` one is a string of JSON.
KERNEL_CODES = {
    "string": TEXT,
    "quoted": TEXT,
    "int64": INTEGER,
    "double": DOUBLE,
    "bool": FLAG,
    "iso": ISO,
    "log": LOG,
    "tweet": TWEET,
    "instant": INSTANT,
    "instant_ns": INSTANT_NS,
    **dict.fromkeys(MICROS_PER_UNIT, EPOCH),
}
REASONS = {"bool": "bad_bool", "int64": "bad_number", "double": "bad_number"}
#: Up to this many error messages are formatted in Python; for so few, the calls of Arrow cost more.
MAX_PYTHON_MESSAGES = 256

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Cells:
    """The cells of a batch of lines.

    Attributes
    ----------
    batch : record batch
        The records that contain the lines.
    data : array of uint8
        The bytes of the lines, followed by :data:`riot_ops.kernels.text.fast_values.ROOM` more.
    good : array of bool, shape (n,)
        Which lines have not been rejected.
    counts : array of int64, shape (n,)
        Number of cells per line; -1 where a quote or bracket is not closed.
    """

    counts: Numbers
    #: Spans of the cells that are read, a row for each; and the row of each cell.
    _starts: Any
    _ends: Any
    _places: Numbers

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array) -> None:
        self.batch = batch
        data, starts, ends, self._valid = byte_spans(lines)
        n = len(lines)
        first, last = (int(starts[0]), int(ends[-1])) if n else (0, 0)
        self.data = data[first:first]
        self._append(data[first:last])
        self._line_starts, self._line_ends = readonly(starts - first), readonly(ends - first)
        self.good = np.ones(n, np.bool_)
        self._invalid = non_utf8(lines)
        self._null = ~self._valid if self._valid.size else np.zeros(n, np.bool_)

    def _append(self, text: npt.NDArray[np.uint8]) -> None:
        """Append bytes to the data."""
        self.data = readonly(np.concatenate([self.data, text, np.zeros(ROOM, np.uint8)]))

    def reject_non_text(self, errors: RejectedRecords) -> None:
        """Reject null lines and lines that are not UTF-8."""
        self.reject(errors, self._null, "missing", "the line is null")
        self.reject(errors, self._invalid, "invalid_utf8", "the line is not UTF-8")

    def reject(self, errors: RejectedRecords, wrong: Mask, reason: str, text: str | list[str] | pa.StringArray) -> None:
        """Reject the lines in ``wrong`` not rejected before; ``text`` is one message, or one per line rejected now."""
        (rows,) = (wrong & self.good).nonzero()
        if rows.size:
            errors.reject(self.batch, rows, reason, text)
            self.good[rows] = False

    def matches(self, cell: int, texts: set[str], *, exactly: bool) -> Mask:
        """Whether the cell of each line is one of ``texts``; unless ``exactly``, case is ignored."""
        starts, ends = self._span(cell, cell)
        found = self.good & (self.counts > cell) & (ends - starts <= max(len(text.encode()) for text in texts))
        if exactly:
            codes = np.empty(found.size, np.int32)
            span_codes(self.data, starts, ends, readonly(found), *name_table(sorted(texts)), codes)
            return np.asarray(codes >= 0)
        same = {text.lower() for text in texts}
        rows = np.flatnonzero(found)
        found[rows] = [text.lower() in same for text in self._texts(starts, ends, rows)]
        return found

    def column(
        self, name: str, first: int, last: int, kind: str, absent: Mask, errors: RejectedRecords
    ) -> tuple[pa.Array, Mask]:
        """Read the text from the ``first`` to the ``last`` cell of each line as ``kind``.

        Returns the column, and which lines have no value; cells marked in ``absent`` count as empty.
        """
        starts, ends = self._span(first, last)
        here = self.good & (self.counts > last) & ~absent
        code = KERNEL_CODES[kind]
        if code == TEXT:
            found = here & self._has_text(first, starts, ends)
            column = strings_from_spans(self.data, np.where(found, starts, -1), ends - starts)
            return column, self.good & ~found
        # numbers and times may stand between blanks and tabs
        begins, sizes = np.empty((2, starts.size), np.int64)
        trim(self.data, readonly(starts), readonly(ends), here, begins, sizes)
        values, states = read_values(self.data, begins, sizes, code, MICROS_PER_UNIT.get(kind, 1))
        if states.any():
            ends = begins + sizes
            (hard,) = (states == HARD).nonzero()
            for row, text in zip(hard, self._texts(begins, ends, hard), strict=True):
                try:
                    values[row] = _int64(text) if code == INTEGER else _finite(text)
                    states[row] = GOOD
                except ValueError:
                    states[row] = BAD
            if first < last and code in (ISO, LOG, TWEET):
                self._reparse_spaced(values, states, begins, ends, code)
            self._reject_found(name, kind, begins, ends, states, errors)
        missing = sizes < 0
        column, dtype = pa.array(values, mask=missing | (states != GOOD)), CELL_TYPES[kind]
        return column.view(dtype) if dtype == TIMESTAMP else column, self.good & missing

    def _reject_found(
        self, name: str, kind: str, starts: Numbers, ends: Numbers, states: Any, errors: RejectedRecords
    ) -> None:
        for state, reason in ((BAD, REASONS.get(kind, "bad_time")), (BEYOND, "out_of_range")):
            wrong = self.good & (states == state)
            (rows,) = wrong.nonzero()
            if not rows.size:
                continue
            what = f"is not a valid {kind}" if state == BAD else "is outside the years 1 to 9999"
            self.reject(errors, wrong, reason, self._error_texts(f"{name}: ", f" {what}", starts[rows], ends[rows]))

    def _error_texts(self, before: str, after: str, starts: Numbers, ends: Numbers) -> list[str] | pa.StringArray:
        """Return the cells as Python string literals, between ``before`` and ``after``."""
        if starts.size > MAX_PYTHON_MESSAGES and (ends - starts).max() <= EXCERPT_LENGTH:
            texts = strings_from_spans(self.data, starts, ends - starts)
            if _UNCHANGED_BY_REPR[byte_spans(texts)[0]].all():
                return pc.binary_join_element_wise(escape_surrogates(before) + "'", texts, "'" + after, "")
        texts = self._texts(starts, ends, np.arange(starts.size))
        return [f"{before}{excerpt(text)!r}{after}" for text in texts]

    def _reparse_spaced(self, micros: Any, states: Any, starts: Numbers, ends: Numbers, code: int) -> None:
        """Also parse timestamps whose two cells are separated by several blanks, or by a tab."""
        (rows,) = (states == BAD).nonzero()
        if rows.size:
            joined = [b" ".join(text.split()) for text in self._bytes(starts, ends, rows)]
            data, begins, stops, _ = byte_spans(pa.array([*joined, bytes(ROOM)], pa.binary()))
            micros[rows], states[rows] = read_values(data, begins[:-1], (stops - begins)[:-1], code)

    def _has_text(self, cell: int, starts: Numbers, ends: Numbers) -> Mask:
        """Return where a text cell counts as a value; an empty one does not."""
        return np.asarray(ends > starts)

    def _span(self, first: int, last: int) -> tuple[Numbers, Numbers]:
        return self._starts[self._places[first]], self._ends[self._places[last]]

    def _texts(self, starts: Numbers, ends: Numbers, rows: Numbers) -> list[str]:
        return [text.decode() for text in self._bytes(starts, ends, rows)]

    def _bytes(self, starts: Numbers, ends: Numbers, rows: Numbers) -> list[bytes]:
        data = self.data.data
        return [bytes(data[p:q]) for p, q in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)]


class LineCells(Cells):
    """The cells of lines that :func:`riot_ops.kernels.text.line_fields.split_lines` splits."""

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array, cuts: Mask, how: int, places: Numbers) -> None:
        super().__init__(batch, lines)
        self._places, self._cuts = places, cuts
        n = len(lines)
        self._starts, self._ends = (np.zeros((int(places.max()) + 1, n), np.int64) for _ in range(2))
        self.counts = np.empty(n, np.int64)
        spans = (self._line_starts, self._line_ends)
        split_lines(self.data, *spans, self._valid, cuts, how, places, self._starts, self._ends, self.counts)

    @property
    def ends_with_delimiter(self) -> Mask:
        """Whether each line ends with a delimiter."""
        ends = self._line_ends
        for sign in b"\n\r":
            ends = ends - ((ends > self._line_starts) & (self.data[ends - 1] == sign))
        return np.asarray((ends > self._line_starts) & self._cuts[self.data[ends - 1]])


#: The characters of a decimal number.
_NUMBER = re.compile(r"[-+.\deE]+", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
#: The bytes that are the same in the ``repr`` of a text between two ``'``.
_UNCHANGED_BY_REPR = np.array([chr(b).isascii() and repr(chr(b)) == f"'{chr(b)}'" for b in range(256)])


def _finite(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _int64(text: str) -> int:
    value = int(text) if _INTEGER.fullmatch(text) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(text)
    return value
