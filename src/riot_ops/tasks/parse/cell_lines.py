"""The cells of a batch of lines, and what they say; of a line that has been rejected nothing more is looked at."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import EXCERPT_LENGTH, encodable, excerpt
from riot_ops.core.schema import EARLIEST, LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import byte_spans, readonly, strings_from_spans
from riot_ops.kernels.text.fields import (
    BAD,
    EMPTY,
    GOOD,
    HARD,
    are_plainly_quoted,
    booleans,
    doubles,
    ends_with,
    far_apart,
    integers,
    split_lines,
    times,
    trimmed,
)
from riot_ops.kernels.text.strings import name_table, not_utf8, span_codes

__all__ = ["KINDS", "CellLines", "Mask", "Numbers"]

#: The kinds of cells.
KINDS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    **dict.fromkeys(("s", "ms", "us", "ns", "iso", "log"), TIMESTAMP),
}
PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}
REASONS = {"bool": "bad_bool", "int64": "bad_number", "double": "bad_number"}
#: Of a cell: it is a time that no record can have.
BEYOND = 4
#: Texts that are told of one by one: of so few, each call of Arrow's costs more than they do.
FEW = 256

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class CellLines:
    """Lines, cut into cells.

    Attributes
    ----------
    batch : record batch
        What has the lines.
    good : array of bool, shape (n,)
        The lines that have not been rejected.
    counts : array of int64, shape (n,)
        How many cells each has; -1 where a quote or bracket is open.
    """

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array, cuts: Mask, kind: int, places: Numbers) -> None:
        self.batch = batch
        self._places = places
        self._cuts = cuts
        self.data, self._line_starts, self._line_ends, valid = byte_spans(lines)
        n = len(lines)
        #: By place of a cell.
        self._starts: Any
        self._ends: Any
        self._starts, self._ends = (np.zeros((int(places.max()) + 1, n), np.int64) for _ in range(2))
        self.counts = np.empty(n, np.int64)
        split_lines(
            self.data,
            self._line_starts,
            self._line_ends,
            valid,
            cuts,
            kind,
            places,
            self._starts,
            self._ends,
            self.counts,
        )
        self.good = np.ones(n, np.bool_)
        self._spoiled = not_utf8(lines)
        self._null = ~valid if valid.size else np.zeros(n, np.bool_)

    def reject_what_is_no_text(self, dead: DeadLetters) -> None:
        """Null lines, and those that are no UTF-8."""
        self.reject(dead, self._null, "missing", "the line is null")
        self.reject(dead, self._spoiled, "invalid_utf8", "the line is no UTF-8")

    def reject(self, dead: DeadLetters, wrong: Mask, reason: str, text: str | list[str] | pa.StringArray) -> None:
        """Reject those of the lines that have not been rejected; of several texts each of these has one."""
        (rows,) = (wrong & self.good).nonzero()
        if rows.size:
            dead.reject(self.batch, rows, reason, text)
            self.good[rows] = False

    @property
    def ends_empty(self) -> Mask:
        """Which lines end with a delimiter."""
        last = np.empty(self.good.size, np.bool_)
        ends_with(self.data, self._line_starts, self._line_ends, self._cuts, last)
        return last

    def says(self, cell: int, texts: set[str], *, exactly: bool) -> Mask:
        """Which lines have one of these texts in a cell, in capitals or not unless ``exactly``."""
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
        self, name: str, first: int, last: int, kind: str, absent: Mask, dead: DeadLetters
    ) -> tuple[pa.Array, Mask]:
        """What stands from one cell to another, and where there is nothing; ``absent`` are cells that do not count."""
        starts, ends = self._span(first, last)
        here = self.good & (self.counts > last) & ~absent
        found = np.full(starts.size, EMPTY, np.int8)
        if kind != "string":  # blanks and tabs mean nothing around a number or a time
            spans, (starts, ends) = (readonly(starts), readonly(ends)), np.empty((2, starts.size), np.int64)
            trimmed(self.data, *spans, here, starts, ends)
        if kind == "string":
            found[here & self._filled(first, starts, ends)] = GOOD
            column = strings_from_spans(self.data, np.where(found == GOOD, starts, -1), ends - starts)
        elif kind == "double":
            column = _array(self._read(starts, ends, here, found, doubles, np.float64, _finite), found)
        elif kind == "bool":
            column = _array(self._read(starts, ends, here, found, booleans, np.bool_, bool), found)
        elif kind in ("iso", "log"):
            micros = self._read(starts, ends, here, found, times, np.int64, int, kind == "log")
            if first < last:
                self._close_up(micros, starts, ends, found, kind == "log")
            column = _times(micros, 1, found)
        else:
            numbers = self._read(starts, ends, here, found, integers, np.int64, _int64)
            column = _array(numbers, found) if kind == "int64" else _times(numbers, PER_UNIT.get(kind, 0), found)
        if (self.good & (found >= BAD)).any():
            self._reject_found(name, kind, starts, ends, found, dead)
        return column, self.good & (found == EMPTY)

    def _reject_found(
        self, name: str, kind: str, starts: Numbers, ends: Numbers, found: Any, dead: DeadLetters
    ) -> None:
        for code, reason in ((BAD, REASONS.get(kind, "bad_time")), (BEYOND, "out_of_range")):
            wrong = self.good & (found == code)
            (rows,) = wrong.nonzero()
            if not rows.size:
                continue
            what = f"is no {kind}" if code == BAD else "is not within the years 1 to 9999"
            self.reject(dead, wrong, reason, self._told(f"{name}: ", f" {what}", starts[rows], ends[rows]))

    def _told(self, before: str, behind: str, starts: Numbers, ends: Numbers) -> list[str] | pa.StringArray:
        """Texts as Python writes them, with what stands before and behind."""
        if starts.size > FEW and are_plainly_quoted(self.data, readonly(starts), readonly(ends), EXCERPT_LENGTH):
            texts = strings_from_spans(self.data, starts, ends - starts)
            return pc.binary_join_element_wise(encodable(before) + "'", texts, "'" + behind, "")
        given = self._texts(starts, ends, np.arange(starts.size))
        return [f"{before}{excerpt(text)!r}{behind}" for text in given]

    def _read(
        self,
        starts: Numbers,
        ends: Numbers,
        here: Mask,
        found: Any,
        kernel: Callable[..., None],
        dtype: Any,
        exact: Callable[[str], Any],
        *options: Any,
    ) -> npt.NDArray[Any]:
        """Cells by a kernel; what it finds hard by Python."""
        out = np.empty(starts.size, dtype)
        kernel(self.data, readonly(starts), readonly(ends), here, *options, out, found)
        (hard,) = (found == HARD).nonzero()
        if not hard.size:
            return out
        for row, text in zip(hard, self._texts(starts, ends, hard), strict=True):
            try:
                out[row] = exact(text)
                found[row] = GOOD
            except ValueError:
                found[row] = BAD
        return out

    def _close_up(self, micros: Any, starts: Numbers, ends: Numbers, found: Any, logged: bool) -> None:
        """Read also the times of which the cells are further apart than by one blank, or by another one."""
        (bad,) = (found == BAD).nonzero()
        apart = np.empty(bad.size, np.bool_)
        far_apart(self.data, readonly(starts[bad]), readonly(ends[bad]), apart)
        rows = bad[apart]
        if not rows.size:
            return
        closed = [b" ".join(text.split()) for text in self._bytes(starts, ends, rows)]
        data, begins, stops, _ = byte_spans(pa.array(closed, pa.binary()))
        again, what = np.empty(rows.size, np.int64), np.empty(rows.size, np.int8)
        times(data, begins, stops, np.ones(rows.size, np.bool_), logged, again, what)
        micros[rows], found[rows] = again, what

    def _filled(self, cell: int, starts: Numbers, ends: Numbers) -> Mask:
        """Where text that is there is text."""
        return np.asarray(ends > starts)

    def _span(self, first: int, last: int) -> tuple[Numbers, Numbers]:
        return self._starts[self._places[first]], self._ends[self._places[last]]

    def _texts(self, starts: Numbers, ends: Numbers, rows: Numbers) -> list[str]:
        return [text.decode() for text in self._bytes(starts, ends, rows)]

    def _bytes(self, starts: Numbers, ends: Numbers, rows: Numbers) -> list[bytes]:
        data = self.data.data
        return [bytes(data[p:q]) for p, q in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)]


def _array(values: npt.NDArray[Any], found: Any) -> pa.Array:
    return pa.array(values, mask=found != GOOD)


def _times(values: Numbers, unit: int, found: Any) -> pa.Array:
    """Times of so many microseconds (0: of nanoseconds)."""
    if unit == 0:
        values, unit = values // 1000, 1
    beyond = (values > LATEST // unit) | (values < -(-EARLIEST // unit))
    found[beyond & (found == GOOD)] = BEYOND
    return _array(np.where(found == GOOD, values, 0) * unit, found).view(TIMESTAMP)


#: What a number is written with.
_OF_NUMBERS = re.compile(r"[-+.\deE]+", re.ASCII)


def _finite(text: str) -> float:
    value = float(text) if _OF_NUMBERS.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _int64(text: str) -> int:
    value = int(text) if re.fullmatch(r"[-+]?\d+", text, re.ASCII) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(text)
    return value
