"""The cells of a batch of text lines, read as typed columns; a rejected line is not read any further."""

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
from riot_ops.core.errors import EXCERPT_LENGTH, escape_surrogates, excerpt
from riot_ops.core.schema import EARLIEST, LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import byte_spans, readonly, strings_from_spans
from riot_ops.kernels.text.line_fields import (
    BAD,
    EMPTY,
    GOOD,
    HARD,
    ISO,
    LOG,
    TWEET,
    booleans,
    doubles,
    ends_with,
    epochs,
    has_plain_repr,
    has_wide_spaces,
    instants,
    integers,
    split_lines,
    times,
    trimmed,
)
from riot_ops.kernels.text.strings import name_table, non_utf8, span_codes

__all__ = ["CELL_TYPES", "LineCells", "Mask", "Numbers"]

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
#: Kinds of text; a ``quoted`` one is a string of JSON.
TEXT_KINDS = ("string", "quoted")
#: Form of each kind of written times.
TIME_FORMS = {"iso": ISO, "log": LOG, "tweet": TWEET}
#: Microseconds per unit of an epoch; 0: nanoseconds.
MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}
REASONS = {"bool": "bad_bool", "int64": "bad_number", "double": "bad_number"}
#: Status of a cell, beside those of the kernels: its time is outside the years 1 to 9999.
OUT_OF_RANGE = 4
#: Up to this many error messages are formatted in Python; for so few, the calls of Arrow cost more.
MAX_PYTHON_MESSAGES = 256

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class LineCells:
    """A batch of lines split into cells.

    Attributes
    ----------
    batch : record batch
        The records that contain the lines.
    good : array of bool, shape (n,)
        Which lines have not been rejected.
    counts : array of int64, shape (n,)
        Number of cells per line; -1 where a quote or bracket is not closed.
    """

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array, cuts: Mask, kind: int, places: Numbers) -> None:
        self.batch = batch
        self._places = places
        self._cuts = cuts
        self.data, self._line_starts, self._line_ends, valid = byte_spans(lines)
        n = len(lines)
        # one row per cell that is read
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
        self._invalid = non_utf8(lines)
        self._null = ~valid if valid.size else np.zeros(n, np.bool_)

    def reject_non_text(self, dead: DeadLetters) -> None:
        """Reject null lines and lines that are not UTF-8."""
        self.reject(dead, self._null, "missing", "the line is null")
        self.reject(dead, self._invalid, "invalid_utf8", "the line is not UTF-8")

    def reject(self, dead: DeadLetters, wrong: Mask, reason: str, text: str | list[str] | pa.StringArray) -> None:
        """Reject the lines in ``wrong`` not rejected before; ``text`` is one message, or one per line rejected now."""
        (rows,) = (wrong & self.good).nonzero()
        if rows.size:
            dead.reject(self.batch, rows, reason, text)
            self.good[rows] = False

    @property
    def ends_with_delimiter(self) -> Mask:
        """Whether each line ends with a delimiter."""
        last = np.empty(self.good.size, np.bool_)
        ends_with(self.data, self._line_starts, self._line_ends, self._cuts, last)
        return last

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
        self, name: str, first: int, last: int, kind: str, absent: Mask, dead: DeadLetters
    ) -> tuple[pa.Array, Mask]:
        """Read the text from the ``first`` to the ``last`` cell of each line as ``kind``.

        Returns the column, and which lines have no value; cells marked in ``absent`` count as empty.
        """
        starts, ends = self._span(first, last)
        here = self.good & (self.counts > last) & ~absent
        found = np.full(starts.size, EMPTY, np.int8)
        if kind not in TEXT_KINDS:  # numbers and times may stand between blanks and tabs
            spans, (starts, ends) = (readonly(starts), readonly(ends)), np.empty((2, starts.size), np.int64)
            trimmed(self.data, *spans, here, starts, ends)
        if kind in TEXT_KINDS:
            found[here & self._has_text(first, starts, ends)] = GOOD
            column = strings_from_spans(self.data, np.where(found == GOOD, starts, -1), ends - starts)
        elif kind == "double":
            column = _masked(self._read(starts, ends, here, found, doubles, np.float64, _finite), found)
        elif kind == "bool":
            column = _masked(self._read(starts, ends, here, found, booleans, np.bool_, bool), found)
        elif kind in TIME_FORMS:
            micros = self._read(starts, ends, here, found, times, np.int64, int, TIME_FORMS[kind])
            if first < last:
                self._reparse_spaced(micros, starts, ends, found, TIME_FORMS[kind])
            column = _timestamps(micros, found)
        elif kind in MICROS_PER_UNIT:
            unit = MICROS_PER_UNIT[kind]
            column = _timestamps(self._read(starts, ends, here, found, epochs, np.int64, int, unit), found)
        elif kind in ("instant", "instant_ns"):
            nanos = self._read(starts, ends, here, found, instants, np.int64, int)
            column = _masked(nanos, found) if kind == "instant_ns" else _timestamps(nanos // 1000, found)
        else:
            column = _masked(self._read(starts, ends, here, found, integers, np.int64, _int64), found)
        if (self.good & (found >= BAD)).any():
            self._reject_found(name, kind, starts, ends, found, dead)
        return column, self.good & (found == EMPTY)

    def _reject_found(
        self, name: str, kind: str, starts: Numbers, ends: Numbers, found: Any, dead: DeadLetters
    ) -> None:
        for code, reason in ((BAD, REASONS.get(kind, "bad_time")), (OUT_OF_RANGE, "out_of_range")):
            wrong = self.good & (found == code)
            (rows,) = wrong.nonzero()
            if not rows.size:
                continue
            what = f"is not a valid {kind}" if code == BAD else "is outside the years 1 to 9999"
            self.reject(dead, wrong, reason, self._error_texts(f"{name}: ", f" {what}", starts[rows], ends[rows]))

    def _error_texts(self, before: str, after: str, starts: Numbers, ends: Numbers) -> list[str] | pa.StringArray:
        """Return the cells as Python string literals, between ``before`` and ``after``."""
        if starts.size > MAX_PYTHON_MESSAGES and has_plain_repr(
            self.data, readonly(starts), readonly(ends), EXCERPT_LENGTH
        ):
            texts = strings_from_spans(self.data, starts, ends - starts)
            return pc.binary_join_element_wise(escape_surrogates(before) + "'", texts, "'" + after, "")
        texts = self._texts(starts, ends, np.arange(starts.size))
        return [f"{before}{excerpt(text)!r}{after}" for text in texts]

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
        """Read cells with a kernel, and those that the kernel leaves open (``HARD``) in Python with ``exact``."""
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

    def _reparse_spaced(self, micros: Any, starts: Numbers, ends: Numbers, found: Any, form: int) -> None:
        """Also parse timestamps whose two cells are separated by several blanks, or by a tab."""
        (bad,) = (found == BAD).nonzero()
        apart = np.empty(bad.size, np.bool_)
        has_wide_spaces(self.data, readonly(starts[bad]), readonly(ends[bad]), apart)
        rows = bad[apart]
        if not rows.size:
            return
        joined = [b" ".join(text.split()) for text in self._bytes(starts, ends, rows)]
        data, begins, stops, _ = byte_spans(pa.array(joined, pa.binary()))
        parsed, status = np.empty(rows.size, np.int64), np.empty(rows.size, np.int8)
        times(data, begins, stops, np.ones(rows.size, np.bool_), form, parsed, status)
        micros[rows], found[rows] = parsed, status

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


def _masked(values: npt.NDArray[Any], found: Any) -> pa.Array:
    return pa.array(values, mask=found != GOOD)


def _timestamps(micros: Numbers, found: Any) -> pa.Array:
    """Return the times in microseconds since 1970 as a column; those out of range are marked."""
    found[((micros > LATEST) | (micros < EARLIEST)) & (found == GOOD)] = OUT_OF_RANGE
    return _masked(micros, found).view(TIMESTAMP)


#: The characters of a decimal number.
_NUMBER = re.compile(r"[-+.\deE]+", re.ASCII)


def _finite(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _int64(text: str) -> int:
    value = int(text) if re.fullmatch(r"[-+]?\d+", text, re.ASCII) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(text)
    return value
