"""Parsing of text lines into records by a table of cells."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.parameters import MAX_CELL_INDEX, OWN_CHECK, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import byte_spans, concat_batches, readonly
from riot_ops.kernels.text.encodings import to_utf8
from riot_ops.kernels.text.strings import contains, without_marks
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register
from riot_ops.tasks.parse.fast_lines import FastLineReader
from riot_ops.tasks.parse.line_cells import LineCells, Mask
from riot_ops.tasks.parse.line_parser import LineParser, ParsedFields

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
    schema : dict of str to (cell, kind) or (cell, kind, default)
        The fields of a record. A cell is given by its number, from 0 to 65,535, or by the first and the last number if
        a value spans several cells, such as date and time; with ``header``, by the name of its column. Kinds are
        ``string``, ``int64``, ``double``, ``bool`` (true, false, 1, 0), and for times ``s``, ``ms``, ``us`` and ``ns``
        (decimal numbers since 1970), ``iso`` (a date, or a date and time, in ISO 8601; UTC without a zone), ``log``
        (10/Jun/1998:12:00:01 +0000), ``instant`` (like ``iso``, or a whole number of ns since 1970) and ``instant_ns``
        (the same as int64, in ns since 1970).
        With a default, which may be null, the cell may be missing or empty.
    header : tuple of str, optional
        Names of the columns of a table whose headers may list them in any order. A header is a line that begins with a
        letter and names all columns that ``schema`` reads, among at most 65,536. It applies to the lines that follow,
        up to the next header; ``header`` applies to the lines before the first one. A line must have as many cells as
        its header; ``format``, ``cells`` and ``skip`` are for lines without headers. All lines are read in one place.
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
    null_values : tuple of str, default ()
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
    text[n] -> record[n], 1:1; O(bytes) time, no state; with ``header`` 1:0/1, and the last header is the state.
    Digits of times below a microsecond are cut off.

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
    .. [2] Z. Jerzak et al., *The DEBS 2012 Grand Challenge*, DEBS 2012: files of 66 columns.

    Examples
    --------
    >>> trades = ParseLines(schema={"stock": (0, "string"), "event_time": (1, "iso"), "price": (2, "double")}, cells=3)
    >>> session = trades.session()
    >>> out = session.push({"payload": "AAPL,2018-08-15,11.84"})[0]
    >>> out["stock"], f"{out['event_time']:%d %b %Y}", out["price"]
    ('AAPL', '15 Aug 2018', 11.84)
    >>> session.push({"payload": "AAPL,2018-08-15,?"}), session.errors[0]["message"]
    ([], "price: '?' is not a valid double")
    >>> table = ParseLines(schema={"t": ("temp", "double")}, header=("id", "temp")).session()
    >>> [table.push({"payload": line}) for line in ("7,21.5", "temp,id", "22.0,8")]
    [[{'t': 21.5}], [], [{'t': 22.0}]]
    """

    code: ClassVar[str] = "PRS"
    category: ClassVar[str] = "Parse"

    header: Names | None = None
    format: Literal["delimited", "spaces", "log"] = "delimited"
    delimiter: str = ","
    cells: Annotated[int, msgspec.Meta(ge=1, le=MAX_CELL_INDEX + 1)] | None = None
    trailing: bool = False
    more: bool = False
    skip: Annotated[Mapping[int, str] | None, OWN_CHECK] = None
    null_values: Names = ()

    def __new__(cls, **parameters: Any) -> Self:
        """Create the task; with headers, it is one with state."""
        if parameters.get("header") is None:
            return super().__new__(cls)
        usual: dict[str, Any] = {"format": "delimited", "cells": None, "skip": None}
        for name, value in usual.items():
            if (given := parameters.pop(name, value)) != value:
                raise ConfigError(f"{name} is for lines without headers, got {given!r} with header")
        return cast("Self", HeaderLines(**parameters))

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
        spans = [cell if isinstance(cell, tuple) else (cell, cell) for cell, *_ in self.schema.values()]
        return sorted({c for span in spans for c in span} | set(self.skip or ()))

    @property
    def _last_cell(self) -> int:
        return max(_last(cell) for cell, *_ in self.schema.values())

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
        if not all(map(self._is_unparsable, self.skip or ())) or any(
            len(text.encode()) != 1 for text in self.null_values
        ):
            return None
        fields = {name: (self._cells(0, name), *rest) for name, (_, *rest) in self.schema.items()}
        min_cells = self._last_cell + 1 if self.cells is None else self.cells
        max_cells = UNLIMITED if self._more else min_cells
        delimiters = self.delimiter.encode() if self.format == "delimited" else b" "
        nulls = "".join(self.null_values).encode()
        trailing = self.trailing and self.format != "spaces"
        return FastLineReader(fields, delimiters, FORMATS.index(self.format), min_cells, max_cells, trailing, nulls)

    def _is_unparsable(self, cell: int) -> bool:
        """Whether the text that skips a line, a name in a numeric cell, cannot be parsed as that cell's value."""
        kinds = {kind for place, kind, *_ in self.schema.values() if place in (cell, (cell, cell))}
        text = (self.skip or {})[cell]
        return text[:1].isalpha() and text not in self.null_values and bool(kinds - {"string", "bool"})

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
                f"schema: the cell of {name!r} must be a number from 0 to {MAX_CELL_INDEX:,} or a pair of "
                f"such numbers, got {value_text(place)}"
            )

    def _cut_lines(self, batch: pa.RecordBatch, text: pa.Array, errors: RejectedRecords) -> LineCells:
        lines = LineCells(batch, text, *self._layout)
        lines.reject_non_text(errors)
        for cell, text_of_header in (self.skip or {}).items():
            lines.good[lines.matches(cell, {text_of_header}, exactly=False)] = False
        self._count_cells(lines, errors)
        return lines

    def _cells(self, number: int, name: str) -> tuple[int, int]:
        cell = self.schema[name][0]
        return cell if isinstance(cell, tuple) else (cell, cell)

    def _missing(self, lines: LineCells, cell: int, name: str, errors: RejectedRecords) -> Mask:
        if not self.null_values:
            return super()._missing(lines, cell, name, errors)
        return lines.matches(cell, {*self.null_values}, exactly=True)

    def _count_cells(self, lines: LineCells, errors: RejectedRecords) -> None:
        counts = lines.counts
        needed = [
            cell[-1] if isinstance(cell, tuple) else cell for cell, _, *default in self.schema.values() if not default
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
        lines.reject(errors, wrong, "wrong_cells", [messages[n] for n in numbers])

    @classmethod
    def cases(cls) -> Iterable[Case]:
        lines = ["a,1,2.5,true,0", "ü,-7,1e300,0,12", "", None, "b,x,1,1,1", "c,1,inf,1,1", "d,1,,1,99999999999999"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(7), pa.int64()), "line": lines})
        kinds = ("string", "int64", "double", "bool", "s")
        fields: dict[str, Any] = {name: (i, kind) for i, (name, kind) in enumerate(zip("abcde", kinds, strict=True))}
        yield Case(cls(schema=fields, field="line", cells=5), batch)
        fields = {"event_time": ((0, 1), "iso"), "n": (2, "int64", 0), "rest": (3, "string", None)}
        lines = [
            "2024-05-01 12:00:00.25 5 x",
            " 2024-05-01   12:00 6",
            "2024-05-01 25:00 1",
            "0001-01-01 00:00+05:00 2",
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(4), pa.int64()), "line": lines})
        yield Case(cls(schema=fields, format="spaces", field="line", keep=("line",)), batch)
        lines = [
            'h - - [10/Jun/1998:12:00:01 +0000] "GET /" 200 - x',
            'h - - [10/Jux/1998:12:00:01 +0000] "GET /" 200 1',
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(2), pa.int64()), "payload": lines})
        fields = {"host": (0, "string"), "event_time": (3, "log"), "request": (4, "string"), "bytes": (6, "int64", 0)}
        yield Case(cls(schema=fields, format="log", cells=7, more=True, null_values=("-",)), batch)
        values = ["5", "", "2024-05-01T12:00:00.5Z", "x"]
        lines = [",".join([value] * len(cls.kinds)) for value in values]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(4), pa.int64()), "payload": lines})
        fields = {f"cell_{kind}": (i, kind, None) for i, kind in enumerate(cls.kinds)}
        yield Case(cls(schema=fields, problems="problems"), batch)
        lines = ["7,1.5,x", "b,a\n", "2.5,8", "c,d", None, "", "a,b,c,d", "ü,1,,", "9,inf,,", "a,b", "1,2"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(len(lines)), pa.int64()), "payload": lines})
        yield Case(cls(schema={"k": ("a", "string"), "v": ("b", "double")}, header=("a", "b", "c")), batch, "header")


@dataclass(frozen=True, kw_only=True)
class HeaderLines(KeyedTask):
    """The :class:`ParseLines` of lines with headers, whose state is the last header."""

    code: ClassVar[str] = ParseLines.code
    category: ClassVar[str] = ParseLines.category
    selectivity: ClassVar[str] = "1:0/1"

    schema: ParsedFields
    header: Names
    delimiter: str = ","
    trailing: bool = False
    more: bool = False
    null_values: Names = ()
    field: str = "payload"
    keep: Names = ()
    encoding: str = "utf-8"
    problems: str | None = None

    @classmethod
    def name(cls) -> str:
        return ParseLines.name()

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name not in ("by", "ttl")}

    def validate(self) -> None:
        if self.by or self.ttl is not None:
            raise ConfigError("parse_lines does not use by and ttl: a header applies to the whole stream")
        if len(self.header) > MAX_CELL_INDEX + 1:
            raise ConfigError(f"header must be at most {MAX_CELL_INDEX + 1:,} names, got {len(self.header):,}")
        if len(set(self.header)) < len(self.header):
            raise ConfigError(f"header must not name a column twice, got {value_text(self.header)}")
        if not isinstance(self.schema, Mapping) or not self.schema:
            raise ConfigError(f"schema must be a dict of name to (column, kind), got {value_text(self.schema)}")
        fields = {name: tuple(one) if isinstance(one, list | tuple) else () for name, one in self.schema.items()}
        for name, one in fields.items():
            if not one or one[0] not in self.header:
                column = one[0] if one else self.schema[name]
                hint = did_you_mean(str(column), self.header)
                raise ConfigError(
                    f"schema: {name!r} is read from {value_text(column)}, which is not one of the columns{hint}"
                )
        object.__setattr__(self, "schema", fields)
        self._parser(self.header)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _parser(self, columns: Iterable[str]) -> ParseLines:
        """Return the task that parses lines with these columns."""
        return _parser_of(self, tuple(columns))

    def requires(self) -> Mapping[str, Requirement]:
        return self._parser(self.header).requires()

    def writes(self) -> frozenset[str] | None:
        return self._parser(self.header).writes()

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return self._parser(self.header).output_schema(schema)

    def state_fields(self) -> Mapping[str, StateField]:
        return {"header": StateField("json", initial=None)}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        if not batch.num_rows:
            return self._parser(self.header).apply(batch, errors)
        parts: list[pa.RecordBatch] = []
        start = 0
        for row, header in [*self._headers(batch.column(self.field)), (batch.num_rows, None)]:
            if row > start or not parts:
                parser = self._parser(state["header"][0] or self.header)
                parts.append(parser.apply(batch.slice(start, row - start), errors))
            state["header"][0] = header or state["header"][0]
            start = row + 1
        return concat_batches(parts)

    def _headers(self, lines: pa.Array) -> list[tuple[int, list[str]]]:
        """Return the rows that are headers, each with its columns."""
        if pa.types.is_null(lines.type):
            return []
        lines = without_marks(to_utf8(lines, self.encoding)[0])
        wanted = {one[0] for one in self.schema.values()}
        by_fold = {name.casefold(): name for name in wanted}
        data, starts, ends, _ = byte_spans(lines)
        filled = np.flatnonzero(ends > starts)
        first = data[starts[filled]] | 32
        rows = filled[
            ((first >= ord("a")) & (first <= ord("z"))) | (first >= 128) | (first == 32) | (first == ord('"'))
        ]
        name = min(by_fold)
        if name.isascii():
            texts = lines.take(pa.array(rows))
            texts = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
            wide = pa.types.is_large_binary(texts.type) or pa.types.is_large_string(texts.type)
            rows = rows[contains(pc.ascii_lower(texts.view(pa.large_string() if wide else pa.string())), name)]
        found = []
        for row in rows.tolist():
            line = lines[row].as_py()
            text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
            cells = re.split(f"[{re.escape(self.delimiter)}]", text.rstrip("\r\n"))
            names = [cell.strip().strip('"').strip() for cell in cells]
            if not wanted <= set(names) and len(by_fold) == len(wanted):  # perhaps in other capitals
                names = [by_fold.get(one.casefold(), one) for one in names]
            if wanted <= set(names) and len(names) <= MAX_CELL_INDEX + 1:
                found.append((row, names))
        return found

    @classmethod
    def cases(cls) -> Iterable[Case]:
        return ParseLines.cases()


# the signature that inspect shows, and the table of parameters checks
ParseLines.__new__.__wrapped__ = ParseLines.__init__  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=64)
def _parser_of(task: HeaderLines, columns: tuple[str, ...]) -> ParseLines:
    places = {name: (columns.index(one[0]), *one[1:]) for name, one in task.schema.items()}
    same = ("delimiter", "trailing", "more", "null_values", "field", "keep", "encoding", "problems")
    return ParseLines(schema=places, cells=len(columns), **{name: getattr(task, name) for name in same})


def _is_cell_number(cell: Any) -> bool:
    """Whether ``cell`` is the number of a cell, be it an int or, as a key in JSON, a text."""
    return str(cell).isdecimal() and int(cell) <= MAX_CELL_INDEX


def _last(cell: Cell) -> int:
    return cell[1] if isinstance(cell, tuple) else cell
