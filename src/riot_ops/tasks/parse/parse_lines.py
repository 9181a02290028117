"""Lines of text to records, by a table of what stands where."""

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
from riot_ops.core.errors import ConfigError, short
from riot_ops.core.parameters import LAST_CELL
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.task import Case, register
from riot_ops.tasks.parse.cell_lines import CellLines, Mask
from riot_ops.tasks.parse.field_table import FieldTable
from riot_ops.tasks.parse.plain_table import PlainTable

__all__ = ["ParseLines"]

#: More cells than a line has.
MANY = 1 << 60
FORMATS = ("delimited", "spaces", "log")

Numbers = npt.NDArray[np.int64]
Cell = int | tuple[int, int]


@register
@dataclass(frozen=True, kw_only=True)
class ParseLines(FieldTable):
    r"""Read a record from each line of text.

    Parameters
    ----------
    fields : dict of str to (cell, kind) or (cell, kind, default)
        The fields of a record. A cell is its number from 0 to 65,535, or a pair of the first and the last of several
        that are one value, as date and time are. Kinds are ``string``, ``int64``, ``double``, ``bool`` (true, false, 1,
        0), and of times ``s``, ``ms``, ``us`` and ``ns`` (since 1970), ``iso`` (a date, or a date and time; without a
        zone it is UTC) and ``log`` (10/Jun/1998:12:00:01 +0000). With a default, even null, the cell may be missing or
        empty.
    format : "delimited", "spaces" or "log", default "delimited"
        Whether cells stand between delimiters, between runs of white space, or between single blanks and may be
        in double quotes or brackets, as web servers log them.
    delimiter : str, default ","
        With ``delimited``: the ASCII characters each of which stands between two cells.
    cells : int from 1 to 65,536, optional
        How many cells a line must have; without it, as many as the fields need.
    trailing : bool, default False
        Whether one empty cell more may end a line.
    more : bool, default False
        Whether any cells more may.
    skip : dict of int to str, optional
        Lines that have one of these texts in the cell of that number, in capitals or not, are left out: headers.
    nulls : tuple of str, default ()
        Texts that stand for an empty cell.
    field : str, default "payload"
        Field with the line.
    keep : tuple of str, default ()
        Fields of the line's record that are kept, besides its order and time.

    Shapes and rates
    ----------------
    text[n] -> record[n], 1:1; O(bytes) time, no state. Digits of times below a microsecond are cut.

    Missing values
    --------------
    An empty cell without a default, and a null line, are errors (``missing``). Blanks and tabs around what is not a
    string do not count, so a cell of nothing else is empty.

    Errors
    ------
    ``wrong_cells``, ``missing``, ``bad_number`` (also one that is not finite, or no int64), ``bad_bool``, ``bad_time``,
    ``out_of_range`` (a time outside of the years 1 to 9999), ``invalid_utf8``.

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
    ([], "price: '?' is no double")
    """

    code: ClassVar[str] = "PRS"
    category: ClassVar[str] = "Parse"

    format: Literal["delimited", "spaces", "log"] = "delimited"
    delimiter: str = ","
    cells: Annotated[int, msgspec.Meta(ge=1, le=LAST_CELL + 1)] | None = None
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
        if not isinstance(skip, Mapping) or not all(_is_place(c) and isinstance(v, str) for c, v in skip.items()):
            raise ConfigError(
                f"skip must be a dict of the number of a cell, 0 to {LAST_CELL:,}, to a text, got {short(self.skip)}"
            )
        object.__setattr__(self, "skip", {int(cell): text for cell, text in skip.items()} or None)
        if self.cells is not None and self.cells <= self._highest:
            raise ConfigError(f"cells = {self.cells}, but a field is in cell {self._highest}, counted from 0")

    @property
    def _places(self) -> list[int]:
        """The cells that something is read from, in order."""
        spans = [cell if isinstance(cell, tuple) else (cell, cell) for cell, *_ in self.fields.values()]
        return sorted({c for span in spans for c in span} | set(self.skip or ()))

    @property
    def _highest(self) -> int:
        return max(_last(cell) for cell, *_ in self.fields.values())

    @cached_property
    def _layout(self) -> tuple[npt.NDArray[np.bool_], int, Numbers]:
        """What stands between cells, how lines are cut, and where each cell goes."""
        between = {"delimited": self.delimiter, "spaces": " \t\x0b\x0c\r\n", "log": " "}[self.format]
        cuts = np.zeros(256, np.bool_)
        cuts[list(between.encode())] = True
        places = np.full(max(self._places) + 1, -1, np.int64)
        places[self._places] = np.arange(len(self._places))
        return readonly(cuts), FORMATS.index(self.format), readonly(places)

    @cached_property
    def _plain_table(self) -> PlainTable | None:
        """The fast way, where there is one."""
        if not all(map(self._is_odd, self.skip or ())) or any(len(text.encode()) != 1 for text in self.nulls):
            return None
        fields = {name: (self._cells(0, name), *rest) for name, (_, *rest) in self.fields.items()}
        least = self._highest + 1 if self.cells is None else self.cells
        most = MANY if self._more else least
        delimiters = self.delimiter.encode() if self.format == "delimited" else b" "
        nulls = "".join(self.nulls).encode()
        trailing = self.trailing and self.format != "spaces"
        return PlainTable(fields, delimiters, FORMATS.index(self.format), least, most, trailing, nulls)

    def _is_odd(self, cell: int) -> bool:
        """Whether a line that is left out for what is in a cell could not be read: a name where a number should be."""
        kinds = {kind for place, kind, *_ in self.fields.values() if place in (cell, (cell, cell))}
        text = self.skip[cell]
        return text[:1].isalpha() and text not in self.nulls and bool(kinds - {"string", "bool"})

    def _plain(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        return None if self._plain_table is None else self._plain_table.read(text)

    @property
    def _more(self) -> bool:
        return self.more or self.cells is None

    def __hash__(self) -> int:
        return hash(repr(self))

    def _check_place(self, name: str, place: Any) -> None:
        span = place if isinstance(place, tuple) else (place, place)
        if len(span) != 2 or not all(type(c) is int and 0 <= c <= LAST_CELL for c in span) or span[0] > span[1]:
            raise ConfigError(
                f"fields: the cell of {name!r} must be a number from 0 to {LAST_CELL:,} or a pair of them, "
                f"got {short(place)}"
            )

    def _lines(self, batch: pa.RecordBatch, text: pa.Array, dead: DeadLetters) -> CellLines:
        lines = CellLines(batch, text, *self._layout)
        lines.reject_what_is_no_text(dead)
        for cell, said in (self.skip or {}).items():
            lines.good[lines.says(cell, {said}, exactly=False)] = False
        self._count_cells(lines, dead)
        return lines

    def _cells(self, number: int, name: str) -> tuple[int, int]:
        cell = self.fields[name][0]
        return cell if isinstance(cell, tuple) else (cell, cell)

    def _absent(self, lines: CellLines, cell: int, name: str, dead: DeadLetters) -> Mask:
        if not self.nulls:
            return super()._absent(lines, cell, name, dead)
        return lines.says(cell, {*self.nulls}, exactly=True)

    def _count_cells(self, lines: CellLines, dead: DeadLetters) -> None:
        counts = lines.counts
        needed = [
            cell[-1] if isinstance(cell, tuple) else cell for cell, _, *default in self.fields.values() if not default
        ]
        least = max(needed, default=-1) + 1 if self.cells is None else self.cells
        wrong = counts < least if self._more else counts != least
        if self.trailing and not self._more:
            wrong &= ~((counts == least + 1) & lines.ends_empty)
        wrong &= lines.good
        if not wrong.any():
            return
        wanted = f"{'at least ' if self._more else ''}{least} are wanted"
        numbers = counts[wrong].tolist()
        told = {n: f"{n} cells, {wanted}" if n >= 0 else "a quote or a bracket is open" for n in set(numbers)}
        lines.reject(dead, wrong, "wrong_cells", [told[n] for n in numbers])

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


def _is_place(cell: Any) -> bool:
    """Whether it is the number of a cell, which is a text in JSON."""
    return str(cell).isdecimal() and int(cell) <= LAST_CELL


def _last(cell: Cell) -> int:
    return cell[1] if isinstance(cell, tuple) else cell
