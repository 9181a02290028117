"""Lines of a table to records: a header says which column is where."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean, short
from riot_ops.core.parameters import LAST_CELL
from riot_ops.kernels.arrays.arrow import byte_spans, joined
from riot_ops.kernels.text.strings import contain
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register
from riot_ops.tasks.parse.parse_lines import ParseLines

__all__ = ["ParseTable"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseTable(KeyedTask):
    r"""Read a record from each line of a table whose header may have its columns in any order.

    A header is a line that begins with a letter and has the names of all columns that ``fields`` reads, of 65,536 at
    the most. The lines behind it are read by it, up to the next; those before the first by ``columns``.

    Parameters
    ----------
    fields : dict of str to (column, kind) or (column, kind, default)
        The fields of a record, and the names of the columns that they are read from. Kinds and defaults are those of
        :class:`ParseLines`.
    columns : tuple of str
        The columns in the order that holds without a header.
    delimiter : str, default ","
        The ASCII characters each of which stands between two cells.
    field : str, default "payload"
        Field with the line.
    by, ttl
        Have no use here: a header is one for the whole stream.

    Shapes and rates
    ----------------
    text[n] -> record[m], 1:0/1; O(bytes) time. State is the last header.

    Missing values
    --------------
    An empty cell without a default, and a null line, are errors (``missing``).

    Errors
    ------
    Those of :class:`ParseLines`; a line must have as many cells as the header.

    References
    ----------
    .. [1] Z. Jerzak et al., *The DEBS 2012 Grand Challenge*, DEBS 2012: files of 66 columns.

    Examples
    --------
    >>> table = ParseTable(fields={"t": ("temp", "double")}, columns=("id", "temp")).session()
    >>> [table.push({"payload": line}) for line in ("7,21.5", "temp,id", "22.0,8")]
    [[{'t': 21.5}], [], [{'t': 22.0}]]
    """

    code: ClassVar[str] = "PTB"
    category: ClassVar[str] = "Parse"
    selectivity: ClassVar[str] = "1:0/1"

    fields: Any
    columns: tuple[str, ...]
    delimiter: str = ","
    field: str = "payload"

    def validate(self) -> None:
        if self.by or self.ttl is not None:
            raise ConfigError("parse_table has no use for by and ttl: a header is one for the whole stream")
        if len(self.columns) > LAST_CELL + 1:
            raise ConfigError(f"columns must be at most {LAST_CELL + 1:,} names, got {len(self.columns):,}")
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"columns must not name one twice, got {short(self.columns)}")
        if not isinstance(self.fields, Mapping) or not self.fields:
            raise ConfigError(f"fields must be a dict of name to (column, kind), got {short(self.fields)}")
        fields = {name: tuple(one) if isinstance(one, list | tuple) else () for name, one in self.fields.items()}
        for name, one in fields.items():
            if not one or one[0] not in self.columns:
                column = one[0] if one else self.fields[name]
                hint = did_you_mean(str(column), self.columns)
                raise ConfigError(f"fields: {name!r} is read from {short(column)}, which is none of columns{hint}")
        object.__setattr__(self, "fields", fields)
        self._parser(self.columns)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _parser(self, columns: Iterable[str]) -> ParseLines:
        """What reads lines with these columns."""
        return _parser(tuple(self.fields.items()), tuple(columns), self.delimiter, self.field)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def writes(self) -> frozenset[str] | None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return self._parser(self.columns).output_schema(schema)

    def state_fields(self) -> Mapping[str, StateField]:
        return {"header": StateField("json", initial=None)}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        if not batch.num_rows:
            return self._parser(self.columns).apply(batch, dead)
        made: list[pa.RecordBatch] = []
        start = 0
        for row, header in [*self._headers(batch.column(self.field)), (batch.num_rows, None)]:
            if row > start or not made:
                parser = self._parser(state["header"][0] or self.columns)
                made.append(parser.apply(batch.slice(start, row - start), dead))
            state["header"][0] = header or state["header"][0]
            start = row + 1
        return joined(made)

    def _headers(self, lines: pa.Array) -> list[tuple[int, list[str]]]:
        """The rows that are headers, and their columns."""
        if pa.types.is_null(lines.type):
            return []
        wanted = {one[0] for one in self.fields.values()}
        data, starts, ends, _ = byte_spans(lines)
        filled = np.flatnonzero(ends > starts)
        first = data[starts[filled]] | 32
        rows = filled[((first >= ord("a")) & (first <= ord("z"))) | (first >= 128)]
        rows = rows[contain(lines.take(pa.array(rows)), min(wanted))]
        found = []
        for row in rows.tolist():
            line = lines[row].as_py()
            text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
            names = [name.strip() for name in re.split(f"[{re.escape(self.delimiter)}]", text.rstrip("\r\n"))]
            if wanted <= set(names) and len(names) <= LAST_CELL + 1:
                found.append((row, names))
        return found

    @classmethod
    def cases(cls) -> Iterable[Case]:
        lines = ["7,1.5,x", "b,a\n", "2.5,8", "c,d", None, "", "a,b,c,d", "ü,1,,", "9,inf,,", "a,b", "1,2"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(len(lines)), pa.int64()), "payload": lines})
        yield Case(cls(fields={"k": ("a", "string"), "v": ("b", "double")}, columns=("a", "b", "c")), batch)


@functools.lru_cache(maxsize=64)
def _parser(fields: tuple[tuple[str, Any], ...], columns: tuple[str, ...], delimiter: str, field: str) -> ParseLines:
    places = {name: (columns.index(one[0]), *one[1:]) for name, one in fields}
    return ParseLines(fields=places, cells=len(columns), delimiter=delimiter, field=field)
