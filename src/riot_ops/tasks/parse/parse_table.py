"""Parsing of table lines into records, with headers that give the order of columns."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.parameters import MAX_CELL_INDEX
from riot_ops.kernels.arrays.arrow import byte_spans, concat_batches
from riot_ops.kernels.text.encodings import to_utf8
from riot_ops.kernels.text.strings import contains, without_marks
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register
from riot_ops.tasks.parse.parse_lines import ParseLines

__all__ = ["ParseTable"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseTable(KeyedTask):
    r"""Read a record from each line of a table whose headers may list the columns in any order.

    A header is a line that begins with a letter and names all columns that ``fields`` reads, among at most 65,536. It
    applies to the lines that follow, up to the next header; ``columns`` applies to lines before the first header.

    Parameters
    ----------
    fields : dict of str to (column, kind) or (column, kind, default)
        The fields of a record and the columns they are read from. Kinds and defaults are those of
        :class:`ParseLines`.
    columns : tuple of str
        The columns in the order that applies without a header.
    delimiter : str, default ","
        The ASCII characters that separate cells, each on its own.
    field : str, default "payload"
        Field with the line.
    encoding : str, default "utf-8"
        Encoding of lines of bytes, by a name that Python knows, such as "latin-1"; columns of text have none.
    by, ttl
        Not used: a header applies to the whole stream.

    Shapes and rates
    ----------------
    text[n] -> record[m], 1:0/1; O(bytes) time. The state is the last header.

    Missing values
    --------------
    An empty cell without a default, and a null line, are errors (``missing``).

    Errors
    ------
    Those of :class:`ParseLines`. A line must have as many cells as the header.

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
    encoding: str = "utf-8"

    def validate(self) -> None:
        if self.by or self.ttl is not None:
            raise ConfigError("parse_table does not use by and ttl: a header applies to the whole stream")
        if len(self.columns) > MAX_CELL_INDEX + 1:
            raise ConfigError(f"columns must be at most {MAX_CELL_INDEX + 1:,} names, got {len(self.columns):,}")
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"columns must not name a column twice, got {value_text(self.columns)}")
        if not isinstance(self.fields, Mapping) or not self.fields:
            raise ConfigError(f"fields must be a dict of name to (column, kind), got {value_text(self.fields)}")
        fields = {name: tuple(one) if isinstance(one, list | tuple) else () for name, one in self.fields.items()}
        for name, one in fields.items():
            if not one or one[0] not in self.columns:
                column = one[0] if one else self.fields[name]
                hint = did_you_mean(str(column), self.columns)
                raise ConfigError(
                    f"fields: {name!r} is read from {value_text(column)}, which is not one of the columns{hint}"
                )
        object.__setattr__(self, "fields", fields)
        self._parser(self.columns)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _parser(self, columns: Iterable[str]) -> ParseLines:
        """Return the task that parses lines with these columns."""
        return _parser(tuple(self.fields.items()), tuple(columns), self.delimiter, self.field, self.encoding)

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
        parts: list[pa.RecordBatch] = []
        start = 0
        for row, header in [*self._headers(batch.column(self.field)), (batch.num_rows, None)]:
            if row > start or not parts:
                parser = self._parser(state["header"][0] or self.columns)
                parts.append(parser.apply(batch.slice(start, row - start), dead))
            state["header"][0] = header or state["header"][0]
            start = row + 1
        return concat_batches(parts)

    def _headers(self, lines: pa.Array) -> list[tuple[int, list[str]]]:
        """Return the rows that are headers, each with its columns."""
        if pa.types.is_null(lines.type):
            return []
        lines = without_marks(to_utf8(lines, self.encoding)[0])
        wanted = {one[0] for one in self.fields.values()}
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
        lines = ["7,1.5,x", "b,a\n", "2.5,8", "c,d", None, "", "a,b,c,d", "ü,1,,", "9,inf,,", "a,b", "1,2"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(len(lines)), pa.int64()), "payload": lines})
        yield Case(cls(fields={"k": ("a", "string"), "v": ("b", "double")}, columns=("a", "b", "c")), batch)


@functools.lru_cache(maxsize=64)
def _parser(
    fields: tuple[tuple[str, Any], ...], columns: tuple[str, ...], delimiter: str, field: str, encoding: str
) -> ParseLines:
    places = {name: (columns.index(one[0]), *one[1:]) for name, one in fields}
    return ParseLines(fields=places, cells=len(columns), delimiter=delimiter, field=field, encoding=encoding)
