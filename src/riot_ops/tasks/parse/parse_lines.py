"""Parsing of text lines into records by a table of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import MAX_CELL_INDEX
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.task import Case, register
from riot_ops.tasks.parse.fast_lines import FastLineReader
from riot_ops.tasks.parse.line_cells import LineCells, Mask
from riot_ops.tasks.parse.line_parser import LineParser

__all__ = ["ParseLines"]

#: More cells than any line has.
UNLIMITED = 1 << 60
FORMATS = ("delimited", "spaces", "log")

Numbers = npt.NDArray[np.int64]
Cell = int | tuple[int, int]


@register
@dataclass(frozen=True, kw_only=True)
class ParseLines(LineParser):
    r"""Read a record from each line of text.

    Parameters
    ----------
    fields : dict of str to (cell, kind) or (cell, kind, default)
        The fields of a record. A cell is given by its number, from 0 to 65,535, or by the first and the last number if
        a value spans several cells, such as date and time. Kinds are ``string``, ``int64``, ``double``, ``bool``
        (true, false, 1, 0), and for times ``s``, ``ms``, ``us`` and ``ns`` (decimal numbers since 1970), ``iso`` (a
        date, or a date and time, in ISO 8601; UTC without a zone), ``log`` (10/Jun/1998:12:00:01 +0000), ``instant``
        (like ``iso``, or a whole number of ns since 1970) and ``instant_ns`` (the same as int64, in ns since 1970).
        With a default, which may be null, the cell may be missing or empty.
    format : "delimited", "spaces" or "log", default "delimited"
        What separates cells: delimiters; runs of white space; or single blanks, with cells that may be in double
        quotes or brackets, as in logs of many forms. A quote after a backslash only ends a cell if no other does. For
        access logs of web servers see :class:`ParseAccessLog`.
    delimiter : str, default ","
        With ``delimited``: the ASCII characters that separate cells, each on its own.
    cells : int from 1 to 65,536, optional
        Number of cells that a line must have; None: at least as many as the fields need.
    trailing : bool, default False
        Whether a line may end with one more, empty cell; white space at the end never makes one.
    more : bool, default False
        Whether a line may have any number of further cells.
    skip : dict of int to str, optional
        By number of a cell, a text: lines with this text there, in upper or lower case, are skipped, such as headers.
    nulls : tuple of str, default ()
        Texts that count as an empty cell.
    field : str, default "payload"
        Field with the line.
    keep : tuple of str, default ()
        Fields of the input record to keep, besides those of its order and time.
    encoding : str, default "utf-8"
        Encoding of lines of bytes, by a name that Python knows, such as "latin-1"; columns of text have none.
    problems : str, optional
        Field for the reasons why values of fields with a default are replaced by it, joined by ``; ``; null if there
        is none. By default such a record is rejected.

    Shapes and rates
    ----------------
    text[n] -> record[n], 1:1; O(bytes) time, no state. Digits of times below a microsecond are cut off.

    Missing values
    --------------
    An empty cell without a default, and a null line, are errors (``missing``). Except for strings, blanks and tabs
    around a value are ignored, so a cell of only blanks is empty.

    Errors
    ------
    ``wrong_cells``, ``missing``, ``bad_number`` (also one that is not finite or exceeds int64), ``bad_bool``,
    ``bad_time``, ``out_of_range`` (a time outside the years 1 to 9999), ``invalid_utf8``, or with another encoding
    ``invalid_encoding``.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the inputs of its applications.

    Examples
    --------
    >>> trades = ParseLines(fields={"stock": (0, "string"), "event_time": (1, "iso"), "price": (2, "double")}, cells=3)
    >>> session = trades.session()
    >>> out = session.push({"payload": "AAPL,2018-08-15,11.84"})[0]
    >>> out["stock"], f"{out['event_time']:%d %b %Y}", out["price"]
    ('AAPL', '15 Aug 2018', 11.84)
    >>> session.push({"payload": "AAPL,2018-08-15,?"}), session.errors[0]["message"]
    ([], "price: '?' is not a valid double")
    """

    code: ClassVar[str] = "PRS"
    category: ClassVar[str] = "Parse"

    format: Literal["delimited", "spaces", "log"] = "delimited"
    delimiter: str = ","
    cells: Annotated[int, msgspec.Meta(ge=1, le=MAX_CELL_INDEX + 1)] | None = None
    trailing: bool = False
    more: bool = False
    skip: Any = None
    nulls: tuple[str, ...] = ()

    def validate(self) -> None:
        super().validate()
        if not self.delimiter or not self.delimiter.isascii() or set(self.delimiter) & set("\r\n"):
            raise ConfigError(f"delimiter must be ASCII characters other than line breaks, got {self.delimiter!r}")
        if self.format != "delimited" and self.delimiter != ",":
            raise ConfigError(f"delimiter is for format='delimited', got {self.delimiter!r} with {self.format!r}")
        skip = {} if self.skip is None else self.skip
        if not isinstance(skip, Mapping) or not all(_is_cell_number(c) and isinstance(v, str) for c, v in skip.items()):
            raise ConfigError(
                f"skip must map numbers of cells, 0 to {MAX_CELL_INDEX:,}, to texts, got {value_text(self.skip)}"
            )
        object.__setattr__(self, "skip", {int(cell): text for cell, text in skip.items()} or None)
        if self.cells is not None and self.cells <= self._last_cell:
            raise ConfigError(f"cells = {self.cells}, but a field is in cell {self._last_cell}, counted from 0")

    @property
    def _places(self) -> list[int]:
        """Sorted numbers of the cells that are read."""
        spans = [cell if isinstance(cell, tuple) else (cell, cell) for cell, *_ in self.fields.values()]
        return sorted({c for span in spans for c in span} | set(self.skip or ()))

    @property
    def _last_cell(self) -> int:
        return max(_last(cell) for cell, *_ in self.fields.values())

    @cached_property
    def _layout(self) -> tuple[npt.NDArray[np.bool_], int, Numbers]:
        """The separating bytes, the mode of splitting, and the row of each cell among those read."""
        between = {"delimited": self.delimiter, "spaces": " \t\x0b\x0c\r\n", "log": " "}[self.format]
        cuts = np.zeros(256, np.bool_)
        cuts[list(between.encode())] = True
        places = np.full(max(self._places) + 1, -1, np.int64)
        places[self._places] = np.arange(len(self._places))
        return readonly(cuts), FORMATS.index(self.format), readonly(places)

    @cached_property
    def _fast_reader(self) -> FastLineReader | None:
        """The fast path for plain lines; None if the parameters rule it out."""
        if not all(map(self._is_unparsable, self.skip or ())) or any(len(text.encode()) != 1 for text in self.nulls):
            return None
        fields = {name: (self._cells(0, name), *rest) for name, (_, *rest) in self.fields.items()}
        min_cells = self._last_cell + 1 if self.cells is None else self.cells
        max_cells = UNLIMITED if self._more else min_cells
        delimiters = self.delimiter.encode() if self.format == "delimited" else b" "
        nulls = "".join(self.nulls).encode()
        trailing = self.trailing and self.format != "spaces"
        return FastLineReader(fields, delimiters, FORMATS.index(self.format), min_cells, max_cells, trailing, nulls)

    def _is_unparsable(self, cell: int) -> bool:
        """Whether the text that skips a line, a name in a numeric cell, cannot be parsed as that cell's value."""
        kinds = {kind for place, kind, *_ in self.fields.values() if place in (cell, (cell, cell))}
        text = self.skip[cell]
        return text[:1].isalpha() and text not in self.nulls and bool(kinds - {"string", "bool"})

    def read_fast(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        return None if self._fast_reader is None else self._fast_reader.read(text)

    @property
    def _more(self) -> bool:
        return self.more or self.cells is None

    def __hash__(self) -> int:
        return hash(repr(self))

    def _check_location(self, name: str, place: Any) -> None:
        span = place if isinstance(place, tuple) else (place, place)
        if len(span) != 2 or not all(type(c) is int and 0 <= c <= MAX_CELL_INDEX for c in span) or span[0] > span[1]:
            raise ConfigError(
                f"fields: the cell of {name!r} must be a number from 0 to {MAX_CELL_INDEX:,} or a pair of "
                f"such numbers, got {value_text(place)}"
            )

    def _cut_lines(self, batch: pa.RecordBatch, text: pa.Array, dead: DeadLetters) -> LineCells:
        lines = LineCells(batch, text, *self._layout)
        lines.reject_non_text(dead)
        for cell, text_of_header in (self.skip or {}).items():
            lines.good[lines.matches(cell, {text_of_header}, exactly=False)] = False
        self._count_cells(lines, dead)
        return lines

    def _cells(self, number: int, name: str) -> tuple[int, int]:
        cell = self.fields[name][0]
        return cell if isinstance(cell, tuple) else (cell, cell)

    def _missing(self, lines: LineCells, cell: int, name: str, dead: DeadLetters) -> Mask:
        if not self.nulls:
            return super()._missing(lines, cell, name, dead)
        return lines.matches(cell, {*self.nulls}, exactly=True)

    def _count_cells(self, lines: LineCells, dead: DeadLetters) -> None:
        counts = lines.counts
        needed = [
            cell[-1] if isinstance(cell, tuple) else cell for cell, _, *default in self.fields.values() if not default
        ]
        min_cells = max(needed, default=-1) + 1 if self.cells is None else self.cells
        wrong = counts < min_cells if self._more else counts != min_cells
        if self.trailing and not self._more and self.format != "spaces":
            wrong &= ~((counts == min_cells + 1) & lines.ends_with_delimiter)
        wrong &= lines.good
        if not wrong.any():
            return
        wanted = f"{'at least ' if self._more else ''}{min_cells} expected"
        numbers = counts[wrong].tolist()
        messages = {n: f"{n} cells, {wanted}" if n >= 0 else "a quote or bracket is not closed" for n in set(numbers)}
        lines.reject(dead, wrong, "wrong_cells", [messages[n] for n in numbers])

    @classmethod
    def cases(cls) -> Iterable[Case]:
        lines = ["a,1,2.5,true,0", "ü,-7,1e300,0,12", "", None, "b,x,1,1,1", "c,1,inf,1,1", "d,1,,1,99999999999999"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(7), pa.int64()), "line": lines})
        kinds = ("string", "int64", "double", "bool", "s")
        fields: dict[str, Any] = {name: (i, kind) for i, (name, kind) in enumerate(zip("abcde", kinds, strict=True))}
        yield Case(cls(fields=fields, field="line", cells=5), batch)
        fields = {"event_time": ((0, 1), "iso"), "n": (2, "int64", 0), "rest": (3, "string", None)}
        lines = [
            "2024-05-01 12:00:00.25 5 x",
            " 2024-05-01   12:00 6",
            "2024-05-01 25:00 1",
            "0001-01-01 00:00+05:00 2",
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(4), pa.int64()), "line": lines})
        yield Case(cls(fields=fields, format="spaces", field="line", keep=("line",)), batch)
        lines = [
            'h - - [10/Jun/1998:12:00:01 +0000] "GET /" 200 - x',
            'h - - [10/Jux/1998:12:00:01 +0000] "GET /" 200 1',
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(2), pa.int64()), "payload": lines})
        fields = {"host": (0, "string"), "event_time": (3, "log"), "request": (4, "string"), "bytes": (6, "int64", 0)}
        yield Case(cls(fields=fields, format="log", cells=7, more=True, nulls=("-",)), batch)
        values = ["5", "", "2024-05-01T12:00:00.5Z", "x"]
        lines = [",".join([value] * len(cls.kinds)) for value in values]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(4), pa.int64()), "payload": lines})
        fields = {f"cell_{kind}": (i, kind, None) for i, kind in enumerate(cls.kinds)}
        yield Case(cls(fields=fields, problems="problems"), batch)


def _is_cell_number(cell: Any) -> bool:
    """Whether ``cell`` is the number of a cell, be it an int or, as a key in JSON, a text."""
    return str(cell).isdecimal() and int(cell) <= MAX_CELL_INDEX


def _last(cell: Cell) -> int:
    return cell[1] if isinstance(cell, tuple) else cell
